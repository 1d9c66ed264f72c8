package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// now is the time of the tests, with microseconds: a store keeps those.
var now = time.Date(2026, 3, 5, 22, 0, 0, 123456000, time.UTC)

func offered(id, node, night string) farm.Run {
	return farm.Run{ID: id, Node: node, Night: night, Image: "lab", Plan: "quick", Offered: now, Deadline: now.Add(30 * time.Minute)}
}

// complete offers a run to n1 and delivers it in one chunk.
func complete(t *testing.T, s *store.Store, id, night, text string, at time.Time) {
	t.Helper()
	r := offered(id, "n1", night)
	r.Offered = at
	require.NoError(t, s.Offer(t.Context(), r, store.Token{}))
	_, err := s.Append(t.Context(), id, store.Chunk{Data: []byte(text), End: true, At: at})
	require.NoError(t, err)
}

func reportOf(t *testing.T, s *store.Store, id string) string {
	t.Helper()
	r, err := s.Report(t.Context(), id)
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	return string(text)
}

// summary has each field set.
func summary() *farm.Summary {
	worst := 91.5
	return &farm.Summary{
		Verdict: checks.VerdictDegraded, Reason: "x8", Driver: "580.95.05", Kernel: "6.12.48", Product: "1.0",
		Settings: map[string]string{"bios.version": "2.4"},
		Pairs: []farm.Pair{
			{Initiator: "0000:01:00.0", Peer: "0000:21:00.0", Direction: "write", Method: "ce", GBps: 26.1, Ceiling: 28.3, Verdict: "ok"},
			{Initiator: "0000:21:00.0", Peer: "0000:01:00.0", Direction: "read", Method: "sm", GBps: 25.9, Ceiling: 28.3, LatencyNS: 1250.5, Verdict: "slow"},
		},
		Findings: []farm.Finding{{ID: checks.LinkWidth, Status: checks.Warn, Title: "x8 of x16", Fix: "reseat it", Devices: []string{"0000:01:00.0"}}},
		Worst:    &worst,
	}
}

var worse = farm.Change{Kind: farm.LinkChanged, Subject: "link.0000:01:00.0", Before: "x16", After: "x8", Worse: true, Fix: "reseat it"}

func TestRunIsKept(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		want := offered("r1", "n1", "2026-03-05")
		require.NoError(t, s.Offer(t.Context(), want, store.Token{1, 2}))
		token, err := s.Token(t.Context(), "r1")
		require.NoError(t, err)
		assert.Equal(t, store.Token{1, 2}, token)

		want.Source, want.State = farm.Network, farm.Offered
		check := func() {
			t.Helper()
			got, err := s.Run(t.Context(), "r1")
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		check()

		at := now.Add(time.Minute)
		p, err := s.Append(t.Context(), "r1", store.Chunk{Data: []byte("a\n"), Stage: "facts", At: at})
		require.NoError(t, err)
		assert.Equal(t, store.Progress{Next: 1}, p)
		want.State, want.Started, want.Updated, want.Stage, want.Chunks, want.Bytes = farm.Running, at, at, "facts", 1, 2
		check()

		p, err = s.Append(t.Context(), "r1", store.Chunk{Seq: 1, Data: []byte("bc\n"), End: true, At: at.Add(time.Second)})
		require.NoError(t, err)
		assert.Equal(t, store.Progress{Next: 2, Complete: true}, p)
		want.State, want.Updated, want.Ended, want.Chunks, want.Bytes = farm.Complete, at.Add(time.Second), at.Add(time.Second), 2, 5
		check()

		base := []farm.Baseline{{Node: "n1", Key: "k", Unit: "GB/s", Median: 26, MAD: 0.1, Runs: 5}}
		require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{At: at, Chunks: 2, Summary: summary(), Changes: []farm.Change{worse}, Baselines: base}))
		require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{At: at, Chunks: 1}), "an older one does not matter")
		want.Judged, want.Summary, want.Changes = true, summary(), []farm.Change{worse}
		check()
		assert.Equal(t, "a\nbc\n", reportOf(t, s, "r1"))
		got, err := s.Baselines(t.Context(), "n1")
		require.NoError(t, err)
		assert.Equal(t, base, got)

		for what, err := range map[string]error{
			"run":      second(s.Run(t.Context(), "r2")),
			"token":    second(s.Token(t.Context(), "r2")),
			"report":   second(s.Report(t.Context(), "r2")),
			"progress": second(s.Progress(t.Context(), "r2", now)),
			"node":     second(s.Node(t.Context(), "n2")),
			"append":   second(s.Append(t.Context(), "r2", store.Chunk{Data: []byte("a\n")})),
			"judge":    s.Judge(t.Context(), "r2", store.Judgement{}),
			"armed":    second(s.Armed(t.Context(), "2026-03-05", "n1")),
		} {
			assert.ErrorIs(t, err, store.ErrNotFound, what)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// TestQueries seeds a small lab and looks at it from all sides.
func TestQueries(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		const nodes, nights = 12, 35
		storetest.Seed(t, s, nodes, nights)
		storetest.Seed(t, s, nodes, nights) // the same again: nothing new
		last := storetest.LastNight.Format(time.DateOnly)

		fleet, err := s.Fleet(t.Context())
		require.NoError(t, err)
		require.Len(t, fleet, nodes)
		all, err := s.Nodes(t.Context())
		require.NoError(t, err)
		require.Len(t, all, nodes)
		worse := 0
		for i, row := range fleet {
			assert.Equal(t, all[i], row.Node)
			history, err := s.History(t.Context(), row.Node.Name, 100)
			require.NoError(t, err)
			require.Len(t, history, nights)
			newest := history[nights-1]
			assert.Equal(t, last, newest.Night)
			assert.Equal(t, newest.Changes, row.Last.Changes)
			require.Len(t, row.Trend, store.TrendNights)
			for j, r := range history[nights-store.TrendNights:] {
				if r.Summary.Worst == nil {
					assert.True(t, math.IsNaN(row.Trend[j]))
				} else {
					assert.InDelta(t, *r.Summary.Worst, row.Trend[j], 0.051)
				}
			}
			gpus := map[bool]int{true: 8, false: 2}[i == 0]
			if newest.State == farm.Complete {
				assert.Len(t, newest.Summary.Pairs, gpus*(gpus-1)*4)
				assert.NotEmpty(t, newest.Summary.Findings)
				assert.NotEmpty(t, newest.Summary.Settings)
			}
			light := *newest.Summary
			light.Settings, light.Pairs, light.Findings = nil, nil, nil
			assert.Equal(t, light, *row.Last.Summary)
			for _, c := range newest.Changes {
				if c.Worse {
					worse++
					break
				}
			}
		}

		of, err := s.Runs(t.Context(), store.Query{Night: last})
		require.NoError(t, err)
		require.Len(t, of, nodes)
		for i, r := range of {
			assert.Equal(t, *fleet[i].Last, r)
		}
		rows, err := s.Nights(t.Context(), 10)
		require.NoError(t, err)
		require.Len(t, rows, 10)
		assert.Equal(t, last, rows[0].Night)
		assert.Equal(t, nodes, rows[0].States[farm.Complete]+rows[0].States[farm.Lost])
		assert.Equal(t, worse, rows[0].Worse)

		lost, err := s.Runs(t.Context(), store.Query{State: farm.Lost, Since: rows[9].Night, Limit: 1})
		require.NoError(t, err)
		for _, r := range lost {
			assert.Equal(t, farm.Lost, r.State)
			assert.GreaterOrEqual(t, r.Night, rows[9].Night)
		}
		none, err := s.Unjudged(t.Context(), 10, now)
		require.NoError(t, err)
		assert.Empty(t, none)
	})
}

func TestNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		fleet, err := s.Fleet(t.Context())
		require.NoError(t, err)
		assert.Empty(t, fleet)
		nights, err := s.Nights(t.Context(), 5)
		require.NoError(t, err)
		assert.Empty(t, nights)
		require.NoError(t, s.Touch(t.Context(), farm.Node{Name: "n1", MAC: "52:54:00:00:00:01", FirstSeen: now, LastSeen: now}))
		require.NoError(t, s.Touch(t.Context(), farm.Node{Name: "n1", Serial: "S1", FirstSeen: now.Add(time.Hour), LastSeen: now.Add(-time.Hour)}))
		fleet, err = s.Fleet(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []store.FleetRow{{Node: farm.Node{Name: "n1", MAC: "52:54:00:00:00:01", Serial: "S1", FirstSeen: now, LastSeen: now}}}, fleet)
	})
}

// TestNewestRun is about which run the table of all nodes shows.
func TestNewestRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		complete(t, s, "r1", "2026-03-05", "a\n", now)
		complete(t, s, "r0", "2026-03-04", "a\n", now.Add(time.Hour)) // delivered late
		last := func() string {
			fleet, err := s.Fleet(t.Context())
			require.NoError(t, err)
			return fleet[0].Last.ID
		}
		assert.Equal(t, "r1", last())
		complete(t, s, "r2", "2026-03-05", "a\n", now.Add(time.Minute))
		assert.Equal(t, "r2", last())
	})
}

// TestHostileTexts keeps what reports may hold: nothing of it is SQL, and what a
// database can't hold does not stop the rest.
func TestHostileTexts(t *testing.T) {
	for what, text := range map[string]string{
		"quotes":  `'; DROP TABLE runs; --`,
		"markup":  `<script>alert(1)</script>`,
		"NUL":     "a\x00b",
		"not UTF": "a\xff\xfeb",
		"control": "a\x1b[31mb\r\n\u202e",
		"places":  `$1 ?1 :a %s`,
	} {
		t.Run(what, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, name string) {
				s := storetest.Open(t, name)
				want := strings.NewReplacer("\x00", "\uFFFD", "\xff\xfe", "\uFFFD").Replace(text)
				require.NoError(t, s.Touch(t.Context(), farm.Node{Name: "n1", Serial: text}))
				require.NoError(t, s.Offer(t.Context(), offered("r1", "n1", "2026-03-05"), store.Token{}))
				_, err := s.Append(t.Context(), "r1", store.Chunk{Data: []byte(text), Stage: text, At: now})
				require.NoError(t, err)
				nan := math.NaN()
				sum := &farm.Summary{
					Verdict: checks.Verdict(text), Reason: text, Driver: text, Kernel: text, Product: text, Worst: &nan,
					Settings: map[string]string{"k": text},
					Pairs:    []farm.Pair{{Initiator: text, Peer: text, Direction: text, Method: text, GBps: nan, Ceiling: math.Inf(1), Verdict: text}},
					Findings: []farm.Finding{{ID: checks.ID(text), Status: checks.Status(text), Title: text, Fix: text, Devices: []string{text}}},
				}
				change := farm.Change{Kind: farm.ChangeKind(text), Subject: text, Before: text, After: text, Fix: text}
				base := farm.Baseline{Node: "n1", Key: text, Unit: text, Median: nan}
				require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{At: now, Chunks: 1, Summary: sum, Changes: []farm.Change{change}, Baselines: []farm.Baseline{base}}))
				_, err = s.Lose(t.Context(), "r1", text, now)
				require.NoError(t, err)

				assert.Equal(t, text, reportOf(t, s, "r1"), "byte for byte")
				r, err := s.Run(t.Context(), "r1")
				require.NoError(t, err)
				zero := 0.
				assert.Equal(t, want, r.Why)
				assert.Equal(t, want, r.Stage)
				assert.Equal(t, &farm.Summary{
					Verdict: checks.Verdict(want), Reason: want, Driver: want, Kernel: want, Product: want, Worst: &zero,
					Settings: map[string]string{"k": r.Summary.Settings["k"]}, // through JSON
					Pairs:    []farm.Pair{{Initiator: want, Peer: want, Direction: want, Method: want, Verdict: want}},
					Findings: []farm.Finding{{ID: checks.ID(want), Status: checks.Status(want), Title: want, Fix: want, Devices: r.Summary.Findings[0].Devices}},
				}, r.Summary)
				assert.Equal(t, []farm.Change{{Kind: farm.ChangeKind(want), Subject: want, Before: want, After: want, Fix: want}}, r.Changes)
				node, err := s.Node(t.Context(), "n1")
				require.NoError(t, err)
				assert.Equal(t, want, node.Serial)
			})
		})
	}
}

// TestLongTexts has texts that are longer than an index of PostgreSQL takes.
func TestLongTexts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		complete(t, s, "r1", "2026-03-05", "a\n", now)
		var b strings.Builder
		for i := range 200_000 { // no repetition that a database packs away
			fmt.Fprintf(&b, "é%d", i)
		}
		long := b.String()
		require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{
			Chunks: 1, Summary: &farm.Summary{Verdict: checks.Verdict(long), Reason: long}, Baselines: []farm.Baseline{{Key: long}},
		}))
		r, err := s.Run(t.Context(), "r1")
		require.NoError(t, err)
		assert.Equal(t, long, r.Summary.Reason)
		assert.True(t, strings.HasPrefix(long, string(r.Summary.Verdict)) && r.Summary.Verdict != "")
	})
}

func TestUnjudged(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		complete(t, s, "complete", "2026-03-05", "a\n", now)
		for _, id := range []string{"running", "lost", "offered"} {
			require.NoError(t, s.Offer(t.Context(), offered(id, "n1", "2026-03-05"), store.Token{}))
		}
		_, err := s.Append(t.Context(), "running", store.Chunk{Data: []byte("a\n"), At: now.Add(-time.Hour)})
		require.NoError(t, err)
		lost, err := s.Lose(t.Context(), "lost", "why", now)
		require.NoError(t, err)
		assert.True(t, lost)
		lost, err = s.Lose(t.Context(), "complete", "why", now)
		require.NoError(t, err)
		assert.False(t, lost, "it is over")

		ids := func(n int, after time.Time) (ids []string) {
			runs, err := s.Unjudged(t.Context(), n, after)
			require.NoError(t, err)
			for _, r := range runs {
				ids = append(ids, r.ID)
			}
			return ids
		}
		assert.ElementsMatch(t, []string{"complete", "lost"}, ids(2, now), "first those that are over")
		assert.Equal(t, "running", ids(3, now)[2])
		for id, n := range map[string]int{"complete": 1, "lost": 0, "running": 1} {
			require.NoError(t, s.Judge(t.Context(), id, store.Judgement{At: now, Chunks: n}))
		}
		assert.Empty(t, ids(3, now))
		_, err = s.Append(t.Context(), "running", store.Chunk{Seq: 1, Data: []byte("a\n"), At: now})
		require.NoError(t, err)
		assert.Empty(t, ids(3, now.Add(-time.Second)), "it was judged just now")
		assert.Equal(t, []string{"running"}, ids(3, now))
	})
}

func TestBaselines(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		complete(t, s, "r1", "2026-03-05", "a\n", now)
		learned := []farm.Baseline{{Node: "n1", Key: "a", Unit: "GB/s", Median: 1, Runs: 3}, {Node: "n1", Key: "b", Unit: "ns", Median: 2, Runs: 3}}
		judge := func(b []farm.Baseline) {
			require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{Chunks: 1, Baselines: b}))
		}
		check := func(want ...farm.Baseline) {
			t.Helper()
			got, err := s.Baselines(t.Context(), "n1")
			require.NoError(t, err)
			assert.Equal(t, want, got)
		}
		judge(learned)
		check(learned...)
		pinned := farm.Baseline{Node: "n1", Key: "b", Unit: "ns", Median: 5}
		require.NoError(t, s.Pin(t.Context(), pinned))
		pinned.Median = 6
		require.NoError(t, s.Pin(t.Context(), pinned))
		pinned.Pinned = true
		check(learned[0], pinned)
		hand, err := s.Pinned(t.Context(), "n1")
		require.NoError(t, err)
		assert.Equal(t, []farm.Baseline{pinned}, hand)
		judge([]farm.Baseline{learned[0], pinned})
		check(learned[0], pinned)
		require.NoError(t, s.Unpin(t.Context(), "n1", "b"))
		check(learned[0])
		judge(learned)
		check(learned...)
		judge(nil)
		check(learned...)
		judge([]farm.Baseline{})
		check([]farm.Baseline(nil)...)
	})
}

func TestRetain(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		const day = 24 * time.Hour
		for i := range 10 { // one a day, the oldest first
			id := fmt.Sprint(i)
			complete(t, s, id, "2026-03-05", "report "+id+"\n", now.Add(time.Duration(i-9)*day))
			if i != 1 {
				require.NoError(t, s.Judge(t.Context(), id, store.Judgement{Chunks: 1, Summary: summary()}))
			}
		}
		require.NoError(t, s.Offer(t.Context(), farm.Run{ID: "forgotten", Node: "n1", Night: "2025-01-01", Offered: now.Add(-100 * day)}, store.Token{}))
		require.NoError(t, s.Arm(t.Context(), store.Armed{Node: "n1", Night: "2026-02-01", At: now.Add(-8 * day)}))
		require.NoError(t, s.Arm(t.Context(), store.Armed{Node: "n1", Night: "2026-03-05", At: now.Add(-6 * day)}))

		n, err := s.Retain(t.Context(), store.Policy{}, now)
		require.NoError(t, err)
		assert.Equal(t, store.Removed{}, n, "for ever")
		n, err = s.Retain(t.Context(), store.Policy{Reports: 5*day + time.Hour}, now)
		require.NoError(t, err)
		assert.Equal(t, store.Removed{Reports: 3}, n, "0, 2 and 3: 1 is not judged yet")
		assert.ErrorIs(t, second(s.Report(t.Context(), "3")), store.ErrRemoved)
		assert.Equal(t, "report 1\n", reportOf(t, s, "1"))
		assert.Equal(t, "report 4\n", reportOf(t, s, "4"))
		r, err := s.Run(t.Context(), "3")
		require.NoError(t, err)
		assert.Equal(t, summary(), r.Summary, "the summary stays")

		n, err = s.Retain(t.Context(), store.Policy{Reports: 5*day + time.Hour, Summaries: 7*day + time.Hour}, now)
		require.NoError(t, err)
		assert.Equal(t, store.Removed{Runs: 2}, n)
		assert.ErrorIs(t, second(s.Run(t.Context(), "1")), store.ErrNotFound)
		require.NoError(t, second(s.Run(t.Context(), "2")))
		require.NoError(t, second(s.Run(t.Context(), "forgotten")), "it is not over")
		assert.ErrorIs(t, second(s.Armed(t.Context(), "2026-02-01", "n1")), store.ErrNotFound)
		require.NoError(t, second(s.Armed(t.Context(), "2026-03-05", "n1")))
	})
}

// TestRetainLeavesNoKeyBehind removes the run with the largest key, which SQLite
// then gives to the next one.
func TestRetainLeavesNoKeyBehind(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		old := farm.Run{ID: "old", Node: "n1", Night: "2026-01-01", Source: farm.Stick, State: farm.Complete, Offered: now.Add(-90 * 24 * time.Hour)}
		old.Ended = old.Offered
		require.NoError(t, second(s.Import(t.Context(), old, []store.Chunk{{Data: []byte("a\n")}})))
		require.NoError(t, second(s.Retain(t.Context(), store.Policy{Summaries: time.Hour}, now)))
		require.NoError(t, s.Offer(t.Context(), offered("new", "n2", "2026-03-05"), store.Token{}))
		fleet, err := s.Fleet(t.Context())
		require.NoError(t, err)
		require.Len(t, fleet, 2)
		assert.Nil(t, fleet[0].Last, "n1 has no runs any more")
		assert.Equal(t, "new", fleet[1].Last.ID)
	})
}

// TestJudgedWhileGivenUp gives a run up while it is judged as one under way.
func TestJudgedWhileGivenUp(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		require.NoError(t, s.Offer(t.Context(), offered("r1", "n1", "2026-03-05"), store.Token{}))
		require.NoError(t, second(s.Append(t.Context(), "r1", store.Chunk{Data: []byte("a\n"), At: now})))
		require.NoError(t, second(s.Lose(t.Context(), "r1", "why", now)))
		require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{At: now, Chunks: 1, Live: true}))
		runs, err := s.Unjudged(t.Context(), 2, now)
		require.NoError(t, err)
		assert.Len(t, runs, 1, "it was not compared yet")
		require.NoError(t, s.Judge(t.Context(), "r1", store.Judgement{At: now, Chunks: 1}))
		runs, err = s.Unjudged(t.Context(), 2, now)
		require.NoError(t, err)
		assert.Empty(t, runs)
	})
}

// TestOneWriteDoesNotSpoilOthers has writes that fail wait together with writes
// that don't.
func TestOneWriteDoesNotSpoilOthers(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s := storetest.Open(t, name)
		require.NoError(t, s.Offer(t.Context(), offered("taken", "n1", "2026-03-05"), store.Token{}))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		var all sync.WaitGroup
		for i := range 60 {
			all.Go(func() {
				switch i % 3 {
				case 0:
					assert.Error(t, s.Offer(t.Context(), offered("taken", "n1", "2026-03-05"), store.Token{}), "the ID is taken")
				case 1:
					assert.NoError(t, s.Offer(t.Context(), offered(fmt.Sprint(i), "n1", "2026-03-05"), store.Token{}))
				case 2:
					assert.ErrorIs(t, s.Offer(gone, offered(fmt.Sprint(i), "n1", "2026-03-05"), store.Token{}), context.Canceled)
				}
			})
		}
		all.Wait()
		runs, err := s.Runs(t.Context(), store.Query{})
		require.NoError(t, err)
		assert.Len(t, runs, 21)
	})
}

func TestClosed(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		s, err := store.Open(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		assert.ErrorContains(t, s.Touch(t.Context(), farm.Node{Name: "n1"}), "the store is closed")
	})
}

func TestOpenErrors(t *testing.T) {
	file := func(t *testing.T) string { return filepath.Join(t.TempDir(), "farm.db") }
	filled := func(t *testing.T) string {
		name := file(t)
		s, err := store.Open(t.Context(), name)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		return name
	}
	tests := map[string]struct {
		name func(t *testing.T) string
		want string // with FILE for the name
	}{
		"not a database": {func(t *testing.T) string {
			name := file(t)
			require.NoError(t, os.WriteFile(name, bytes.Repeat([]byte("lab.yaml "), 1000), 0o600))
			return name
		}, "store FILE: open: file is not a database (26): the file is not a database of SQLite; move it away, or name another one"},
		"damaged": {func(t *testing.T) string {
			name := filled(t)
			f, err := os.OpenFile(name, os.O_WRONLY, 0)
			require.NoError(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 4000), 100)
			require.NoError(t, err)
			require.NoError(t, f.Close())
			return name
		}, "the file is damaged; stop the server, then restore a backup or save what can be read with: sqlite3"},
		"newer": {func(t *testing.T) string {
			name := filled(t)
			db, err := sql.Open("sqlite", name)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.ExecContext(t.Context(), "UPDATE schema_version SET version = 99")
			require.NoError(t, err)
			return name
		}, "store FILE: open: its schema has version 99, this program knows versions up to 1: use the mkp2pimg that wrote it, or a newer one"},
		"no directory":  {func(t *testing.T) string { return filepath.Join(t.TempDir(), "x", "farm.db") }, "the directory must exist, and the server's user must be allowed to make files in it"},
		"a directory":   {func(t *testing.T) string { return t.TempDir() }, "the directory must exist, and the server's user must be allowed to make files in it"},
		"bad URL":       {func(*testing.T) string { return "postgres://u:secret@host:port/x" }, "store: cannot parse"},
		"no server":     {func(*testing.T) string { return "postgres://u:secret@127.0.0.1:1/x" }, "is the database server running, and reachable from here?"},
		"no such lab":   {func(t *testing.T) string { return strings.Replace(storetest.Postgres(t), "/postgres?", "/nolab?", 1) }, "make the database: createdb --owner USER NAME"},
		"no connection": {func(*testing.T) string { return "postgres:///x?host=/nonexistent" }, "is the database server running, and reachable from here?"},
	}
	for what, tt := range tests {
		t.Run(what, func(t *testing.T) {
			name := tt.name(t)
			s, err := store.Open(t.Context(), name)
			require.Error(t, err)
			require.Nil(t, s)
			assert.Contains(t, err.Error(), strings.Replace(tt.want, "FILE", name, 1))
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}
