package runfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/runfile/runtest"
)

// Sums as the program cksum of GNU coreutils 9.1 prints them.
func TestCksum(t *testing.T) {
	tests := map[string]struct {
		data []byte
		want uint32
	}{
		"empty":  {nil, 4294967295},
		"digits": {[]byte("123456789"), 930766865},
		"zeros":  {make([]byte, 65536), 4215202376},
		"long":   {bytes.Repeat([]byte("mkp2pimg\n"), 100_000), 2044929995},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var c cksum
			for _, part := range [][]byte{tt.data[:len(tt.data)/3], tt.data[len(tt.data)/3:]} {
				_, err := c.Write(part)
				require.NoError(t, err)
			}
			assert.Equal(t, tt.want, binary.BigEndian.Uint32(c.Sum(nil)))
			assert.Equal(t, tt.want, runtest.CRC(tt.data))
			c.Reset()
			assert.Equal(t, uint32(4294967295), binary.BigEndian.Uint32(c.Sum(nil)))
		})
	}
}

// verify reads the whole file that h is the header of and compares it with the
// checksums of the header. The error is a *ChecksumError if they differ.
func verify(ctx context.Context, r io.ReaderAt, h *Header) error {
	d := newDigests(h.Sums)
	section := io.NewSectionReader(r, h.Sums.From, h.Offset+h.Size-h.Sums.From)
	if _, err := io.CopyBuffer(d, contextReader{ctx, section}, make([]byte, 256<<10)); err != nil {
		return fmt.Errorf("check the checksums: %w", err)
	}
	return d.check()
}

func TestVerify(t *testing.T) {
	data := runtest.Bytes(t, runtest.Options{Files: runtest.Driver(t, version)})
	size := int64(len(data))
	h, err := ReadHeader(bytes.NewReader(data), size)
	require.NoError(t, err)
	require.NoError(t, verify(t.Context(), bytes.NewReader(data), h))

	for name, at := range map[string]int64{"script": h.Sums.From, "before the payload": h.Offset - 1, "payload": h.Offset, "end": size - 1} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Clone(data)
			bad[at] ^= 1
			var e *ChecksumError
			require.ErrorAs(t, verify(t.Context(), bytes.NewReader(bad), h), &e)
			assert.Equal(t, "MD5", e.Kind)
			assert.Equal(t, h.Sums.MD5, e.Want)

			crcOnly := *h
			crcOnly.Sums.MD5 = ""
			require.ErrorAs(t, verify(t.Context(), bytes.NewReader(bad), &crcOnly), &e)
			assert.Equal(t, "CRC", e.Kind)
			assert.Equal(t, h.Sums.CRC, e.Want)
			assert.NotEqual(t, h.Sums.CRC, e.Got)
		})
	}

	sha := *h
	sha.Sums.SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" // of nothing
	require.ErrorContains(t, verify(t.Context(), bytes.NewReader(data), &sha), "its SHA-256 is ")

	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	require.ErrorIs(t, verify(ctx, bytes.NewReader(data), h), stop)
}
