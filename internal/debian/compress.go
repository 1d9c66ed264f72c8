package debian

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// maxDict bounds the memory of a decompressor. "xz -9" and "zstd -19" need
// 64 MiB and 8 MiB.
const maxDict = 128 << 20

// decompress returns the content of r, which its first bytes say how to
// unpack: xz, gzip, zstd, bzip2, or none.
func decompress(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 128<<10)
	head, err := b.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xfd7zXZ\x00")): // xz file format 1.2.1, section 2.1.1.1
		z, err := xz.NewReader(b, maxDict)
		if err != nil {
			return nil, fmt.Errorf("xz: %w", err)
		}
		return io.NopCloser(z), nil
	case bytes.HasPrefix(head, []byte("\x1f\x8b")): // RFC 1952, section 2.3.1
		return gzip.NewReader(b)
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")): // RFC 8878, section 3.1.1
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxDict))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	case bytes.HasPrefix(head, []byte("BZh")):
		return io.NopCloser(bzip2.NewReader(b)), nil
	}
	return io.NopCloser(b), nil
}
