package debian

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"mkp2pimg/internal/decompress"
)

// unzip returns the content of r, which its first bytes say how to unpack: xz,
// gzip, zstd, bzip2, or none.
func unzip(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 128<<10)
	head, err := b.Peek(decompress.Head)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	format := decompress.Detect(head)
	z, err := decompress.NewReader(b, format)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", format, err)
	}
	return z, nil
}
