package runfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// maxWindow bounds the memory of a decompressor: 128 MiB is what the program
// zstd takes without further options; "xz -9" needs 64 MiB.
const maxWindow = 128 << 20

// magics are the first bytes of compressed streams.
var magics = []struct{ name, magic string }{
	{"gzip", "\x1f\x8b"},         // RFC 1952, section 2.3.1
	{"xz", "\xfd7zXZ\x00"},       // xz file format 1.2.1, section 2.1.1.1
	{"zstd", "\x28\xb5\x2f\xfd"}, // RFC 8878, section 3.1.1
}

// compression says how the payload is compressed.
func compression(r io.ReaderAt, offset, size int64) (string, error) {
	head := make([]byte, min(size, 6))
	if _, err := io.ReadFull(io.NewSectionReader(r, offset, size), head); err != nil {
		return "", fmt.Errorf("read the payload: %w", err)
	}
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.magic)) {
			return m.name, nil
		}
	}
	if len(head) < 6 {
		return "", fmt.Errorf("%w: its payload has %d bytes", ErrTruncated, size)
	}
	return "", fmt.Errorf("%w: its payload, at byte %d, begins with %x, which is none of gzip, xz and zstd", ErrFormat, offset, head)
}

// decompress returns the content of r, which must end with it.
func decompress(r *bufio.Reader, how string) (io.ReadCloser, error) {
	switch how {
	case "gzip":
		return gzip.NewReader(r)
	case "xz":
		z, err := xz.NewReader(r, maxWindow)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(z), nil
	}
	// With more goroutines it takes longer: half the rate on two cores.
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// contextReader is a reader until its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
