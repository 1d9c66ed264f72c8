// Package decompress reads what tar archives are compressed with, told by the
// first bytes of the stream, with bounded memory.
package decompress

import (
	"compress/bzip2"
	"compress/gzip"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/mikelolasagasti/xz"
)

// Format is how a stream is compressed.
type Format string

// The formats.
const (
	None  Format = ""
	Gzip  Format = "gzip"
	XZ    Format = "xz"
	Zstd  Format = "zstd"
	Bzip2 Format = "bzip2"
)

// magics are the first bytes of compressed streams.
var magics = []struct {
	format Format
	bytes  string
}{
	{Gzip, "\x1f\x8b"},         // RFC 1952, section 2.3.1
	{XZ, "\xfd7zXZ\x00"},       // xz file format 1.2.1, section 2.1.1.1
	{Zstd, "\x28\xb5\x2f\xfd"}, // RFC 8878, section 3.1.1
	{Bzip2, "BZh"},
}

// Head is how many bytes of a stream [Detect] needs.
const Head = 6

// Detect tells the format of a stream by its first bytes.
func Detect(head []byte) Format {
	for _, m := range magics {
		if strings.HasPrefix(string(head), m.bytes) {
			return m.format
		}
	}
	return None
}

// maxWindow bounds the memory of a decompressor: 128 MiB is what the program
// zstd takes without further options. "xz -9" and "zstd -19" need 64 MiB and 8
// MiB.
const maxWindow = 128 << 20

// NewReader returns the content of r, a stream of the format f. Errors of the
// decompressor are returned as they are.
func NewReader(r io.Reader, f Format) (io.ReadCloser, error) {
	switch f {
	case Gzip:
		return gzip.NewReader(r)
	case XZ:
		z, err := xz.NewReader(r, maxWindow)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(z), nil
	case Zstd:
		// With more goroutines it takes longer: half the rate on two cores.
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case Bzip2:
		return io.NopCloser(bzip2.NewReader(r)), nil
	}
	return io.NopCloser(r), nil
}
