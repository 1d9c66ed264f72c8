package intake

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/store/storetest"
	"mkp2pimg/internal/report"
)

const (
	adminToken = "the-token-of-the-administrator"
	nodeToken  = "Zm9yLXRlc3RzLW9ubHktMzItYnl0ZXMtbG9uZy1hYmM"
)

// begin is when the tests take place.
var begin = time.Date(2026, 3, 5, 22, 0, 0, 0, time.UTC)

// lab is an intake with its store and a clock that stands still.
type lab struct {
	*Intake
	t   *testing.T
	log *bytes.Buffer

	mu  sync.Mutex
	now time.Time
}

// newLab makes an intake on a store.
func newLab(t *testing.T, name string, change ...func(*Config)) *lab {
	l := &lab{t: t, now: begin, log: &bytes.Buffer{}}
	c := Config{
		Store: storetest.Open(t, name),
		Judge: Judge{Summarise: judge.Summarise, Compare: judge.Judge, Learn: judge.Learn, Depth: judge.Depth},
		Night: func(t time.Time) string { return t.Add(-12 * time.Hour).Format(time.DateOnly) },
		Known: func(node string) bool { return strings.HasPrefix(node, "gpu-") },
		Admin: func(token string) bool { return token == adminToken },
		Log:   slog.New(slog.NewTextHandler(l.log, nil)),
		Now: func() time.Time {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.now
		},
	}
	for _, f := range change {
		f(&c)
	}
	l.Intake = New(c)
	return l
}

// sqlite is the name of an empty store.
func sqlite(t *testing.T) string { return t.TempDir() + "/farm.db" }

func (l *lab) sleep(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = l.now.Add(d)
}

// offer offers a run to a node and returns its ID. The run's token is nodeToken
// with the node's name behind it.
func (l *lab) offer(node string) string {
	l.t.Helper()
	r := farm.Run{ID: uuid.NewString(), Node: node, Night: l.Night(l.Now()), Offered: l.Now(), Deadline: l.Now().Add(30 * time.Minute)}
	require.NoError(l.t, l.Store.Offer(context.Background(), r, sha256.Sum256([]byte(nodeToken+node))))
	return r.ID
}

// call makes a request; header is name, value, name, value …
func (l *lab) call(method, path, token string, body []byte, header ...string) *httptest.ResponseRecorder {
	l.t.Helper()
	r := httptest.NewRequestWithContext(l.t.Context(), method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for ; len(header) > 0; header = header[2:] {
		r.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// post sends a chunk of gpu-1.
func (l *lab) post(run string, seq string, body []byte, header ...string) *httptest.ResponseRecorder {
	return l.call("POST", "/v1/runs/"+run+"/chunks/"+seq, nodeToken+"gpu-1", body, header...)
}

// stored returns what the store has of a run's report.
func (l *lab) stored(run string) string {
	l.t.Helper()
	r, err := l.Store.Report(context.Background(), run)
	require.NoError(l.t, err)
	text, err := io.ReadAll(r)
	require.NoError(l.t, err)
	return string(text)
}

// run returns a run as the store has it.
func (l *lab) run(id string) farm.Run {
	l.t.Helper()
	r, err := l.Store.Run(context.Background(), id)
	require.NoError(l.t, err)
	return r
}

// settle judges all that can be judged now.
func (l *lab) settle() {
	l.t.Helper()
	require.NoError(l.t, l.Settle(context.Background()))
}

// lines is a report in its lines.
func lines(node string) [][]byte {
	at := begin
	w := report.New(report.Clock(func() time.Time {
		at = at.Add(time.Second)
		return at
	}))
	w.Start(report.RunStart{Name: "mkp2pimg", Version: "1.0", DUT: report.DUT{ID: node}})
	for _, stage := range []string{"facts", "driver", "report"} {
		s := w.Step(stage, stage)
		if stage == "report" {
			s.Verdict(report.Verdict{Verdict: checks.VerdictBlocked, Reason: "ACS redirects"})
		}
		s.End(report.StatusComplete)
	}
	if err := w.End(report.StatusComplete, report.ResultFail); err != nil {
		panic(err) // a legal pair
	}
	return bytes.SplitAfter(bytes.TrimSuffix(w.Bytes(), []byte("\n")), []byte("\n"))
}

// chunks is a report in so many chunks.
func chunks(node string, n int) [][]byte {
	all := lines(node)
	all[len(all)-1] = append(all[len(all)-1], '\n')
	out := make([][]byte, n)
	for i, line := range all {
		at := i * n / len(all)
		out[at] = append(out[at], line...)
	}
	return out
}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text) // a Buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

func zstded(text []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(text, nil)
}

// answered returns the body of an answer that must be JSON.
func answered(t *testing.T, w *httptest.ResponseRecorder) failure {
	t.Helper()
	var f failure
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &f), w.Body.String())
	return f
}

var _ http.Handler = (*Intake)(nil)
