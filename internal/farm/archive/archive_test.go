package archive

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
)

const id = "00000000-0000-4000-8000-00000000000"

func filled(t *testing.T) *store.Store {
	t.Helper()
	return filledAt(t, t.TempDir()+"/farm.db")
}

// filledAt is a store with a node, what is pinned of it, and runs of every kind.
func filledAt(t *testing.T, path string) *store.Store {
	t.Helper()
	ctx := t.Context()
	s := storetest.Open(t, path)
	require.NoError(t, s.Touch(ctx, farm.Node{Name: "n1", MAC: "52:54:00:12:34:56", Serial: "S1"}))
	require.NoError(t, s.Touch(ctx, farm.Node{Name: "n2"}))
	require.NoError(t, s.Pin(ctx, farm.Baseline{Node: "n1", Key: "bandwidth/*/*/write/ce", Unit: "GB/s", Median: 26.1}))
	at := time.Date(2026, 3, 5, 18, 0, 0, 0, time.UTC)
	worst := 97.5
	for i, r := range []farm.Run{
		{State: farm.Complete, Source: farm.Network, Summary: &farm.Summary{
			Verdict: checks.VerdictReady, Reason: "well", Driver: "580.159.04", Settings: map[string]string{"bios.version": "1.2"}, Worst: &worst,
			Pairs:    []farm.Pair{{Initiator: "0000:41:00.0", Peer: "0000:61:00.0", Direction: "write", Method: "ce", GBps: 26.1, Verdict: "ok"}},
			Findings: []farm.Finding{{ID: checks.IOMMU, Status: checks.Pass, Title: "no IOMMU in use", Devices: []string{"0000:41:00.0"}}},
		}},
		{State: farm.Lost, Source: farm.Network, Why: "the deadline passed", Changes: []farm.Change{{Kind: farm.NotDelivered, Subject: "report", Before: "complete", After: "nothing", Worse: true, Fix: "Look."}}},
		{State: farm.Complete, Source: farm.Serial, Summary: &farm.Summary{Verdict: checks.VerdictBlocked}},
	} {
		r.ID, r.Node, r.Night = id+fmt.Sprint(i), []string{"n1", "n1", "n2"}[i], []string{"2026-03-05", "2026-03-06", "2026-03-06"}[i]
		r.Offered, r.Started, r.Updated, r.Ended = at.AddDate(0, 0, i), at.AddDate(0, 0, i), at.AddDate(0, 0, i), at.AddDate(0, 0, i)
		text := []string{"{\"a\": \"<&\u2028\"}\n", "", "boot \xff\xfe\x00 log\n"}[i]
		var chunks []store.Chunk
		if text != "" {
			chunks = append(chunks, store.Chunk{Data: []byte(text)})
		}
		_, err := s.Import(ctx, r, chunks)
		require.NoError(t, err)
	}
	require.NoError(t, s.Offer(ctx, farm.Run{ID: id + "9", Node: "n2", Night: "2026-03-07", Offered: at}, store.Token{}))
	return s
}

func written(t *testing.T, s *store.Store, q store.Query) string {
	t.Helper()
	var b bytes.Buffer
	_, err := Write(t.Context(), s, &b, q)
	require.NoError(t, err)
	return b.String()
}

func TestRoundTrip(t *testing.T) {
	from := filled(t)
	text := written(t, from, store.Query{})
	assert.True(t, Is([]byte(text)))
	assert.Contains(t, text, `"kind":"lost"`, "also the changes of a run that says nothing")
	assert.Equal(t, 6, strings.Count(text, "\n"), "two nodes, a baseline, three runs that are over")
	to := storetest.Open(t, t.TempDir()+"/other.db")
	n, err := Read(t.Context(), strings.NewReader(text), to)
	require.NoError(t, err)
	assert.Equal(t, Counts{Nodes: 2, Baselines: 1, Runs: 3}, n)
	assert.Equal(t, text, written(t, to, store.Query{}), "nothing is lost on the way")
	for i, want := range []string{"{\"a\": \"<&\u2028\"}\n", "", "boot \xff\xfe\x00 log\n"} {
		r, err := to.Report(t.Context(), id+fmt.Sprint(i))
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}

	n, err = Read(t.Context(), strings.NewReader(text), to)
	require.NoError(t, err)
	assert.Equal(t, Counts{Nodes: 2, Baselines: 1, Runs: 3, Present: 3}, n)
	assert.Equal(t, text, written(t, to, store.Query{}), "nor is anything there twice")
}

func TestPart(t *testing.T) {
	s := filled(t)
	for name, test := range map[string]struct {
		query store.Query
		runs  []string
		nodes int
	}{
		"all":       {store.Query{}, []string{"0", "1", "2"}, 2},
		"a night":   {store.Query{Night: "2026-03-06"}, []string{"1", "2"}, 2},
		"a node":    {store.Query{Node: "n1"}, []string{"0", "1"}, 1},
		"from then": {store.Query{Since: "2026-03-06", Node: "n2"}, []string{"2"}, 1},
		"nothing":   {store.Query{Night: "1999-01-01"}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			text := written(t, s, test.query)
			var runs []string
			for i := range 10 {
				if strings.Contains(text, `"run":{"id":"`+id+fmt.Sprint(i)) {
					runs = append(runs, fmt.Sprint(i))
				}
			}
			assert.Equal(t, test.runs, runs)
			assert.Equal(t, test.nodes, strings.Count(text, `"node":{`))
		})
	}
}

// A report that was removed is left out, the run stays.
func TestRemoved(t *testing.T) {
	s := filled(t)
	_, err := s.Retain(t.Context(), store.Policy{Reports: time.Hour}, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC))
	require.NoError(t, err)
	text := written(t, s, store.Query{Night: "2026-03-05"})
	assert.Contains(t, text, `"run":{"id":"`+id)
	assert.NotContains(t, text, `"report"`)
}

// TestDamaged: a report that the database has lost keeps no others from being
// written.
func TestDamaged(t *testing.T) {
	path := t.TempDir() + "/farm.db"
	s := filledAt(t, path)
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE chunks SET data = X'00' WHERE run = (SELECT key FROM runs WHERE id = $1)`, id+"0")
	require.NoError(t, err)
	var b bytes.Buffer
	n, err := Write(t.Context(), s, &b, store.Query{})
	require.NoError(t, err)
	assert.Equal(t, Counts{Nodes: 2, Baselines: 1, Runs: 3, Damaged: []string{id + "0"}}, n)
	assert.Contains(t, b.String(), `"reason":"well"`, "what was found out")
	assert.Contains(t, b.String(), `"report_base64"`, "the other report")
}

func TestBad(t *testing.T) {
	run := func(change func(s string) string) string {
		return change(`{"version":1,"run":{"id":"` + id + `0","node":"n","night":"2026-03-05","source":"stick","state":"complete"}}`)
	}
	replace := func(old, by string) string {
		return run(func(s string) string {
			assert.Contains(t, s, old)
			return strings.Replace(s, old, by, 1)
		})
	}
	for name, test := range map[string]struct{ text, want string }{
		"not JSON":     {"{", "line 1: no JSON of an archive"},
		"no version":   {`{"node":{"name":"n"}}`, "line 1: no line of an archive"},
		"newer":        {`{"version":2,"node":{"name":"n"}}`, "version 2: this program reads up to 1"},
		"empty":        {`{"version":1}`, "holds one of node, baseline and run"},
		"two":          {`{"version":1,"node":{"name":"n"},"run":{}}`, "holds one of node, baseline and run"},
		"second line":  {`{"version":1,"node":{"name":"n"}}` + "\n\nx", "line 3: no JSON"},
		"name":         {`{"version":1,"node":{"name":"../n"}}`, `"../n" is no name of a node`},
		"no key":       {`{"version":1,"baseline":{"node":"n"}}`, "a baseline without a key"},
		"run's node":   {replace(`"n"`, `""`), `"" is no name of a node`},
		"run's ID":     {replace(id+"0", "x"), `run ID "x"`},
		"run's night":  {replace("2026-03-05", "2026-13-05"), "night"},
		"run's state":  {replace("complete", "running"), "only complete and lost ones"},
		"run's source": {replace("stick", "x"), `"x" is no source`},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.Open(t, t.TempDir()+"/farm.db")
			_, err := Read(t.Context(), strings.NewReader(test.text), s)
			require.ErrorContains(t, err, test.want)
			var bad *LineError
			require.ErrorAs(t, err, &bad)
		})
	}
}

func TestIs(t *testing.T) {
	assert.True(t, Is([]byte(`{"version":1,"node":{`)))
	assert.False(t, Is([]byte(`{"schemaVersion":{"major":2,"minor":0},"sequenceNumber":0}`)))
	assert.False(t, Is([]byte("[    0.000000] Linux version\n{\"version\":1,\"node\":{")))
	assert.False(t, Is(nil))
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":1,"node":{"name":"n"}}`))
	f.Add([]byte(`{"version":1,"run":{"id":"` + id + `0","node":"n","night":"2026-03-05","source":"stick","state":"complete","chunks":-1},"report_base64":"AA=="}`))
	s, err := store.Open(context.Background(), f.TempDir()+"/farm.db")
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close()) })
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := Read(t.Context(), bytes.NewReader(text), s); err != nil {
			return
		}
		_, err := Write(t.Context(), s, io.Discard, store.Query{})
		require.NoError(t, err)
	})
}
