package boot

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/pin/tftp/v3"
)

// maxTransfers bounds the transfers at the same time; firmware asks again.
const maxTransfers = 128

// newTFTP is a server that hands out what open opens, and takes nothing.
func newTFTP(open func(name string) (*os.File, error), log *slog.Logger) *tftp.Server {
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
			log.Warn("tftp", "to", who, "file", name, "error", err)
			return errors.New("no such file") // the client need not know more
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && ok {
			transfer.SetSize(st.Size())
		}
		if _, err = to.ReadFrom(f); err != nil {
			// Firmware asks for the size first, and breaks off.
			log.Debug("tftp", "to", who, "file", name, "error", err)
			return err
		}
		log.Info("tftp", "to", who, "file", name)
		return nil
	}, nil)
	s.SetTimeout(3 * time.Second)
	s.SetRetries(5)
	return s
}
