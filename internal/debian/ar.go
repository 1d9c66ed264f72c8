package debian

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// arMagic begins an ar archive, arHeader bytes begin each member: name[16],
// date[12], uid[6], gid[6], mode[8], size[10] and "`\n" (ar(5), common form).
const (
	arMagic  = "!<arch>\n"
	arHeader = 60
)

// arReader reads the members of an ar archive in turn.
type arReader struct {
	r    io.Reader
	left int64 // bytes of the current member still to read
	pad  int64 // 1 if a padding byte follows them
}

func newArReader(r io.Reader) (*arReader, error) {
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != arMagic {
		return nil, fmt.Errorf("not a .deb: begins with %q and not with %q", magic, arMagic)
	}
	return &arReader{r: r}, nil
}

// next goes to the next member. At the end it returns io.EOF.
func (a *arReader) next() (name string, err error) {
	if _, err := io.CopyN(io.Discard, a.r, a.left+a.pad); err != nil {
		return "", cutOff(err)
	}
	var h [arHeader]byte
	if _, err := io.ReadFull(a.r, h[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return "", io.EOF
		}
		return "", cutOff(err)
	}
	name = strings.TrimSuffix(strings.TrimRight(string(h[:16]), " "), "/")
	size, err := strconv.ParseInt(strings.TrimRight(string(h[48:58]), " "), 10, 64)
	if err != nil || size < 0 || string(h[58:]) != "`\n" {
		return "", fmt.Errorf("ar: bad member header %q", h)
	}
	a.left, a.pad = size, size%2
	return name, nil
}

// Read reads the current member.
func (a *arReader) Read(p []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	n, err := a.r.Read(p[:min(int64(len(p)), a.left)])
	a.left -= int64(n)
	if errors.Is(err, io.EOF) && a.left > 0 {
		err = cutOff(err)
	}
	return n, err
}

// cutOff says that the archive ends too early if that is what err means.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file is cut off: %w", io.ErrUnexpectedEOF)
	}
	return err
}
