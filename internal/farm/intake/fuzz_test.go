package intake

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
)

// FuzzChunk sends bodies of all kinds: what is taken is what was sent, unpacked.
func FuzzChunk(f *testing.F) {
	good := chunks("gpu-1", 1)[0]
	for _, encoding := range []string{"", "identity", "gzip", "zstd", "br"} {
		f.Add(encoding, good)
		f.Add(encoding, gzipped(good))
		f.Add(encoding, zstded(good))
		f.Add(encoding, []byte(nil))
	}
	f.Add("", good[:len(good)-5])
	f.Add("", append(bytes.Clone(good), "\xff\x00\n"...))
	f.Fuzz(func(t *testing.T, encoding string, body []byte) {
		c, err := chunk(encoding, body)
		if err != nil {
			var p *problem
			require.True(t, errors.As(err, &p))
			assert.Contains(t, []int{400, 413, 415}, p.status)
			assert.Zero(t, p.retry)
			return
		}
		assert.LessOrEqual(t, len(c.Data), MaxChunk)
		assert.True(t, bytes.HasSuffix(c.Data, []byte("\n")))
		if encoding == "" || encoding == "identity" {
			assert.Equal(t, body, c.Data)
		}
	})
}

// FuzzImport looks at files of all kinds: what is made of them can be kept, and is
// what they were.
func FuzzImport(f *testing.F) {
	good := chunks("gpu-1", 1)[0]
	f.Add("gpu-1", good)
	f.Add("", bytes.ReplaceAll(good, []byte("\n"), []byte("\r\nusb 1-1: \xff\x00\n")))
	f.Add("gpu-\x00", good)
	f.Add("gpu-1", good[:len(good)/2])
	in := New(Config{
		Night: func(t time.Time) string { return t.Format(time.DateOnly) },
		Known: func(node string) bool { return node == "gpu-1" },
		Now:   func() time.Time { return begin },
	})
	f.Fuzz(func(t *testing.T, node string, text []byte) {
		r, err := in.describe(farm.Serial, node, text)
		if err != nil {
			var p *ImportError
			require.True(t, errors.As(err, &p), "%v", err)
			return
		}
		assert.Equal(t, "gpu-1", r.Node)
		assert.True(t, r.State.Over())
		assert.LessOrEqual(t, r.Started.Sub(begin).Abs(), plausible)
		var all []byte
		for _, c := range split(text) {
			all = append(all, c.Data...)
		}
		assert.Equal(t, text, all)
	})
}
