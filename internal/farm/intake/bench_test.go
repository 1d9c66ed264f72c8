package intake

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store/storetest"
)

// BenchmarkPost posts chunks of about 8 KiB, a hundred at once, through the handler
// into SQLite.
func BenchmarkPost(b *testing.B) {
	s := storetest.Open(b, filepath.Join(b.TempDir(), "farm.db"))
	in := New(Config{
		Store: s, Admin: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler),
		Addresses: limit.New(time.Nanosecond, 1e9, 10), Runs: limit.New(time.Nanosecond, 1e9, 1e6),
	})
	body := gzipped(load{chunks: 2, lines: 40}.report(0)[0])
	var runs atomic.Int64
	b.SetParallelism(50)
	b.RunParallel(func(p *testing.PB) {
		l := lab{Intake: in, t: &testing.T{}}
		var id string
		for seq := 0; p.Next(); seq++ {
			if seq%20 == 0 { // another run
				seq = 0
				id = fmt.Sprintf("00000000-0000-0000-0000-%012d", runs.Add(1))
				require.NoError(b, s.Offer(b.Context(), farm.Run{ID: id, Node: "gpu-1", Offered: time.Now()}, sha256.Sum256([]byte(nodeToken+"gpu-1"))))
			}
			w := l.post(id, fmt.Sprint(seq), body, "Content-Encoding", "gzip")
			require.Equal(b, 200, w.Code, w.Body.String())
		}
	})
}
