package boot

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pin/tftp/v3"
)

// maxTransfers bounds the transfers at the same time; firmware asks again.
const maxTransfers = 128

// newTFTP is a server that hands out what open opens, and takes nothing.
func newTFTP(open func(name string) (*os.File, error), log func(who net.IP, name string, err error)) *tftp.Server {
	slots := make(chan struct{}, maxTransfers)
	s := tftp.NewServer(func(name string, to io.ReaderFrom) (err error) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		default:
			return errors.New("too many transfers: try again")
		}
		var who net.IP
		transfer, ok := to.(tftp.OutgoingTransfer)
		if ok {
			addr := transfer.RemoteAddr()
			who = addr.IP
		}
		f, err := open(strings.TrimLeft(name, "/"))
		if err != nil {
			log(who, name, err)
			return errors.New("no such file") // the client need not know more
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && ok {
			transfer.SetSize(st.Size())
		}
		_, err = to.ReadFrom(f)
		log(who, name, err)
		return err
	}, nil)
	s.SetTimeout(3 * time.Second)
	s.SetRetries(5)
	return s
}
