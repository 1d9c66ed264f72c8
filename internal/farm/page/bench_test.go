package page

import (
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store/storetest"
)

// BenchmarkPages makes the pages of 2,000 nodes with 90 nights each, out of SQLite.
// Filling the store takes minutes. The time of the processors, which counts the
// collector of garbage too, tells the cost where other programs run beside it.
func BenchmarkPages(b *testing.B) {
	const nodes, nights = 2000, 90
	s := openStore(b)
	storetest.Seed(b, s, nodes, nights)
	l := newLabFile()
	for i := range nodes {
		l.Nodes = append(l.Nodes, lab.Node{Name: storetest.NodeName(i), Group: "rack-" + storetest.NodeName(i/40)})
	}
	night := storetest.LastNight.Format(time.DateOnly)
	runs, err := s.History(b.Context(), storetest.NodeName(0), 1)
	require.NoError(b, err)
	h := Handler(Config{Store: s, Lab: read(l), Now: func() time.Time { return storetest.LastNight.Add(3 * time.Hour) }})
	for name, path := range map[string]string{
		"fleet": "/", "fleet-searched": "/?q=gpu+bios&changed=1&sort=-worst", "node-8-gpus": "/nodes/" + storetest.NodeName(0),
		"node-2-gpus": "/nodes/" + storetest.NodeName(1), "night": "/nights/" + night, "nights": "/nights", "run": "/runs/" + runs[0].ID,
	} {
		b.Run(name, func(b *testing.B) {
			before := cpuTime(b)
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil))
				require.Equal(b, http.StatusOK, w.Code)
				b.ReportMetric(float64(w.Body.Len()), "page-bytes")
			}
			b.ReportMetric((cpuTime(b)-before).Seconds()*1e3/float64(b.N), "cpu-ms/op")
		})
	}
}

// cpuTime is how long processors have worked for this program.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
