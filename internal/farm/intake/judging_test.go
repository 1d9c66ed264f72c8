package intake

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
	"mkp2pimg/internal/report"
)

func TestJudging(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		l := newLab(t, name)
		run := l.offer("gpu-1")
		c := chunks("gpu-1", 3)
		for i, part := range c[:2] {
			require.Equal(t, 200, l.post(run, fmt.Sprint(i), part).Code)
		}
		l.settle()
		r := l.run(run)
		require.NotNil(t, r.Summary)
		assert.Equal(t, "1.0", r.Summary.Product, "of a run under way")
		assert.Empty(t, r.Summary.Verdict)

		require.Equal(t, 200, l.post(run, "2", c[2]).Code)
		l.settle()
		r = l.run(run)
		assert.Equal(t, checks.VerdictBlocked, r.Summary.Verdict, "at once, since it is over")
		n, _, err := l.judgeSome(context.Background())
		require.NoError(t, err)
		assert.Zero(t, n, "a run is judged once")
	})
}

func TestRunsUnderWayAreJudgedNowAndThen(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	count := 0
	l.Judge.Summarise = func(*report.Run) *farm.Summary {
		count++
		return &farm.Summary{}
	}
	for i, part := range chunks("gpu-1", 5)[:4] {
		require.Equal(t, 200, l.post(run, fmt.Sprint(i), part).Code)
		l.settle()
		l.sleep(live / 2)
	}
	assert.Equal(t, 2, count)
}

// TestKilledBeforeJudgement is about what is done after a start of the server.
func TestKilledBeforeJudgement(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	require.Equal(t, 200, l.post(run, "0", chunks("gpu-1", 1)[0]).Code)
	again := New(l.Config)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { again.Run(ctx); close(ended) }()
	require.Eventually(t, func() bool { return l.run(run).Summary != nil }, time.Minute, time.Millisecond)
	cancel()
	<-ended
}

func TestReportThatBreaksJudgement(t *testing.T) {
	l := newLab(t, sqlite(t))
	broken, good := l.offer("gpu-1"), l.offer("gpu-2")
	require.Equal(t, 200, l.post(broken, "0", chunks("gpu-1", 1)[0]).Code)
	require.Equal(t, 200, l.call("POST", "/v1/runs/"+good+"/chunks/0", nodeToken+"gpu-2", chunks("gpu-2", 1)[0]).Code)
	compare := l.Judge.Compare
	l.Judge.Compare = func(n farm.Node, r farm.Run, h []farm.Run, p []farm.Baseline) []farm.Change {
		if n.Name == "gpu-1" {
			panic("index out of range")
		}
		return compare(n, r, h, p)
	}
	l.settle()
	assert.Equal(t, "the report could not be judged: see the server's log", l.run(broken).Summary.Reason)
	assert.Equal(t, checks.VerdictBlocked, l.run(good).Summary.Verdict)
	assert.Contains(t, l.log.String(), "index out of range")
	assert.Equal(t, string(chunks("gpu-1", 1)[0]), l.stored(broken))
}

// TestDamagedReport damages reports in the database as a failing disk does.
func TestDamagedReport(t *testing.T) {
	for name, damage := range map[string]string{
		"a bit": `UPDATE chunks SET data = X'00' WHERE run = (SELECT key FROM runs WHERE node = 'gpu-1')`,
		"a row": `DELETE FROM chunks WHERE run = (SELECT key FROM runs WHERE node = 'gpu-1')`,
	} {
		t.Run(name, func(t *testing.T) {
			path := sqlite(t)
			l := newLab(t, path)
			broken, good := l.offer("gpu-1"), l.offer("gpu-2")
			require.Equal(t, 200, l.post(broken, "0", chunks("gpu-1", 1)[0]).Code)
			require.Equal(t, 200, l.call("POST", "/v1/runs/"+good+"/chunks/0", nodeToken+"gpu-2", chunks("gpu-2", 1)[0]).Code)
			db, err := sql.Open("sqlite", path)
			require.NoError(t, err)
			defer db.Close()
			_, err = db.ExecContext(t.Context(), damage)
			require.NoError(t, err)
			l.settle()
			assert.Equal(t, unjudgeable, l.run(broken).Summary)
			assert.Equal(t, checks.VerdictBlocked, l.run(good).Summary.Verdict, "no run must keep others from being judged")
			assert.Contains(t, l.log.String(), "the report is damaged in the database")
		})
	}
}

func TestJudgementThatCannotBeKept(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	require.Equal(t, 200, l.post(run, "0", chunks("gpu-1", 1)[0]).Code)
	l.Judge.Learn = func([]farm.Run, []farm.Baseline) []farm.Baseline { return []farm.Baseline{{Key: "a"}, {Key: "a"}} } // two of a key
	l.settle()
	assert.Equal(t, unjudgeable, l.run(run).Summary)
	assert.Contains(t, l.log.String(), "a judgement could not be kept")
}

func TestPinnedByHandGoesBeforeLabYAML(t *testing.T) {
	l := newLab(t, sqlite(t), func(c *Config) {
		c.Pinned = func(node string) []farm.Baseline { return []farm.Baseline{{Node: node, Key: "b"}} }
	})
	ctx := context.Background()
	require.NoError(t, l.Store.Pin(ctx, farm.Baseline{Node: "gpu-1", Key: "a"}))
	run := l.offer("gpu-1")
	require.Equal(t, 200, l.post(run, "0", chunks("gpu-1", 1)[0]).Code)
	var keys []string
	l.Judge.Learn = func(_ []farm.Run, pinned []farm.Baseline) []farm.Baseline {
		for _, b := range pinned {
			keys = append(keys, b.Key)
		}
		return nil
	}
	l.settle()
	assert.Equal(t, []string{"a", "b"}, keys)
}

func TestOverdue(t *testing.T) {
	ctx := context.Background()
	c := chunks("gpu-1", 3)
	tests := map[string]struct {
		do   func(l *lab, run string)
		want farm.Run // State, Why
	}{
		"nothing came": {func(l *lab, _ string) { l.sleep(31 * time.Minute) },
			farm.Run{State: farm.Lost, Why: "nothing arrived within 30m0s of the offer: the image did not come up, or has no way to the server"}},
		"in time":         {func(l *lab, _ string) { l.sleep(30 * time.Minute) }, farm.Run{State: farm.Offered}},
		"it still hopes":  {func(l *lab, run string) { l.post(run, "0", c[0]); l.sleep(30 * time.Minute) }, farm.Run{State: farm.Running}},
		"it still speaks": {func(l *lab, run string) { l.sleep(31 * time.Minute); l.post(run, "0", c[0]); l.sleep(quiet) }, farm.Run{State: farm.Running}},
		"it hangs": {func(l *lab, run string) { l.sleep(time.Minute); l.post(run, "0", c[0]); l.sleep(31 * time.Minute) },
			farm.Run{State: farm.Lost, Why: "the report has no end after 30m0s; nothing arrived since 22:01:00 UTC, in stage facts"}},
		"it is complete": {func(l *lab, run string) {
			for i, part := range c {
				l.post(run, fmt.Sprint(i), part)
			}
			l.sleep(24 * time.Hour)
		}, farm.Run{State: farm.Complete}},
		"another start while it runs": {func(l *lab, run string) {
			l.post(run, "0", c[0])
			l.sleep(time.Minute)
			l.offer("gpu-1")
			l.sleep(time.Minute)
		}, farm.Run{State: farm.Running}},
		"another start after it hung": {func(l *lab, run string) {
			l.post(run, "0", c[0])
			l.sleep(20 * time.Minute)
			l.offer("gpu-1")
			l.sleep(11 * time.Minute)
		}, farm.Run{State: farm.Lost, Why: "the report has no end after 30m0s; nothing arrived since 22:00:00 UTC, in stage facts; the node started from the network again at 22:20:00 UTC"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, sqlite(t))
			run := l.offer("gpu-1")
			tt.do(l, run)
			require.NoError(t, l.giveUp(ctx))
			l.settle()
			got := l.run(run)
			assert.Equal(t, tt.want, farm.Run{State: got.State, Why: got.Why})
			next := l.post(run, fmt.Sprint(got.Chunks), c[min(got.Chunks, 2)]).Code
			if got.State == farm.Complete {
				assert.Equal(t, 403, next)
				assert.Equal(t, got.Chunks, l.run(run).Chunks, "nothing is added, nothing is lost")
			} else {
				assert.Equal(t, 200, next)
			}
		})
	}
}

// TestLostRunComesBack: a node that could not reach the server for long delivers
// what it has when it can again.
func TestLostRunComesBack(t *testing.T) {
	l := newLab(t, sqlite(t))
	c := chunks("gpu-1", 3)
	late := func(after time.Duration) (run string, code int) {
		run = l.offer("gpu-1")
		require.Equal(t, 200, l.post(run, "0", c[0]).Code)
		l.sleep(time.Hour)
		require.NoError(t, l.giveUp(context.Background()))
		l.settle()
		require.Equal(t, farm.Lost, l.run(run).State)
		l.sleep(after)
		l.post(run, "1", c[1])
		return run, l.post(run, "2", c[2]).Code
	}
	run, code := late(20 * time.Hour)
	assert.Equal(t, 200, code)
	l.settle()
	got := l.run(run)
	assert.Equal(t, farm.Complete, got.State)
	assert.Empty(t, got.Why)
	assert.True(t, got.Judged)
	for _, change := range got.Changes {
		assert.NotEqual(t, farm.NotDelivered, change.Kind)
	}

	run, code = late(8 * 24 * time.Hour)
	assert.Equal(t, 403, code)
	assert.Equal(t, farm.Lost, l.run(run).State)
}

func TestNodeThatUsedToDeliver(t *testing.T) {
	l := newLab(t, sqlite(t))
	for range 4 {
		run := l.offer("gpu-1")
		require.Equal(t, 200, l.post(run, "0", chunks("gpu-1", 1)[0]).Code)
		l.sleep(24 * time.Hour)
	}
	l.settle()
	run := l.offer("gpu-1")
	l.sleep(time.Hour)
	require.NoError(t, l.giveUp(context.Background()))
	l.settle()
	changes := l.run(run).Changes
	require.NotEmpty(t, changes)
	assert.Equal(t, farm.NotDelivered, changes[0].Kind)
	assert.True(t, changes[0].Worse)
	fleet, err := l.Store.Fleet(context.Background())
	require.NoError(t, err)
	assert.Equal(t, changes, fleet[0].Last.Changes)
}

func TestRetentionIsApplied(t *testing.T) {
	l := newLab(t, sqlite(t), func(c *Config) { c.Retain = store.Policy{Reports: time.Hour} })
	run := l.offer("gpu-1")
	require.Equal(t, 200, l.post(run, "0", chunks("gpu-1", 1)[0]).Code)
	l.sleep(2 * time.Hour)
	l.settle()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { l.sweep(ctx); close(ended) }()
	require.Eventually(t, func() bool {
		_, err := l.Store.Report(ctx, run)
		return err != nil
	}, time.Minute, time.Millisecond)
	cancel()
	<-ended
	assert.True(t, bytes.Contains(l.log.Bytes(), []byte("msg=retention reports=1 runs=0")))
}
