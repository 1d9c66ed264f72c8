package decompress

import (
	"bytes"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

func TestReader(t *testing.T) {
	content := bytes.Repeat([]byte("peer to peer "), 1000)
	for how, format := range map[string]Format{"gz": Gzip, "xz": XZ, "zst": Zstd, "": None} {
		data := debiantest.Compress(t, how, content)
		require.Equal(t, format, Detect(data[:Head]))
		z, err := NewReader(bytes.NewReader(data), format)
		require.NoError(t, err)
		got, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		assert.Equal(t, content, got, how)
	}
	assert.Equal(t, Bzip2, Detect([]byte("BZh91A")))
	assert.Equal(t, None, Detect(nil))
	for _, format := range []Format{Gzip, XZ} {
		_, err := NewReader(bytes.NewReader(nil), format)
		assert.Error(t, err, format)
	}
}
