package runfile

import (
	"context"
	"fmt"
	"io"

	"mkp2pimg/internal/decompress"
)

// compression says how the payload is compressed.
func compression(r io.ReaderAt, offset, size int64) (string, error) {
	head := make([]byte, min(size, decompress.Head))
	if _, err := io.ReadFull(io.NewSectionReader(r, offset, size), head); err != nil {
		return "", fmt.Errorf("read the payload: %w", err)
	}
	switch f := decompress.Detect(head); f {
	case decompress.Gzip, decompress.XZ, decompress.Zstd:
		return string(f), nil
	}
	if len(head) < decompress.Head {
		return "", fmt.Errorf("%w: its payload has %d bytes", ErrTruncated, size)
	}
	return "", fmt.Errorf("%w: its payload, at byte %d, begins with %x, which is none of gzip, xz and zstd", ErrFormat, offset, head)
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
