package nightly

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/export"
	"mkp2pimg/internal/farm/power"
)

func TestNode(t *testing.T) {
	worse := []farm.Change{{Subject: "bios.version", Before: "F1", After: "F2"}, {Subject: "a → b write, ce", Before: "26.1 GB/s", After: "13.2 GB/s", Worse: true}}
	busy := &power.Error{Target: "BMC a1", Answer: "503 Service Unavailable", Err: errors.New("busy")}
	tests := []struct {
		name     string
		does     []behaviour
		slow     time.Duration
		status   Status
		why      string
		attempts int
		failed   []string
		notes    []string
		took     time.Duration // about
	}{
		{name: "good", does: []behaviour{ready}, status: Good, attempts: 1, took: 7 * time.Minute},
		{name: "judged a little later", does: []behaviour{ready}, slow: time.Minute, status: Good, attempts: 1, took: 8 * time.Minute},
		{name: "never judged", does: []behaviour{ready}, slow: time.Hour, status: Unknown, why: "the server has not judged the report", attempts: 1, took: 9 * time.Minute},
		{name: "degraded", does: []behaviour{degraded}, status: NotReady, why: "P2P-DEGRADED: the reason", attempts: 1, took: 2 * time.Minute},
		{
			name: "worse than before", does: []behaviour{{boot: time.Minute, ends: time.Minute, verdict: checks.VerdictReady, changes: worse}},
			status: Regressed, why: "a → b write, ce: 13.2 GB/s, was 26.1 GB/s", attempts: 1, took: 2 * time.Minute,
		},
		{
			name: "no GPU", does: []behaviour{{boot: time.Minute, ends: time.Minute, verdict: checks.VerdictNoGPU}},
			status: Unknown, why: "P2P-NO-GPU: the reason", attempts: 1, took: 2 * time.Minute,
		},
		{name: "no verdict", does: []behaviour{{boot: time.Minute, ends: time.Minute}}, status: Unknown, why: "the report has no verdict", attempts: 1, took: 2 * time.Minute},
		{
			name: "hangs once", does: []behaviour{hangs, ready}, status: Good, attempts: 2, took: 41 * time.Minute,
			failed: []string{"its run was given up: nothing arrived for 30 minutes after stage driver"},
		},
		{
			name: "hangs", does: []behaviour{hangs}, status: Lost, why: "its run was given up: nothing arrived for 30 minutes after stage driver",
			attempts: 2, took: 68 * time.Minute,
			failed: []string{"its run was given up: nothing arrived for 30 minutes after stage driver", "its run was given up: nothing arrived for 30 minutes after stage driver"},
		},
		{
			name: "does not come back", does: []behaviour{silent}, status: Lost, attempts: 2, took: 40 * time.Minute,
			why: "20m0s after its start it has not asked for anything to boot: does it start from the network, and does it come as far as that?",
			failed: []string{
				"20m0s after its start it has not asked for anything to boot: does it start from the network, and does it come as far as that?",
				"20m0s after its start it has not asked for anything to boot: does it start from the network, and does it come as far as that?",
			},
		},
		{
			name: "resets itself and delivers", does: []behaviour{{boot: time.Minute, resets: 10 * time.Minute}, ready}, status: Good, attempts: 1, took: 18 * time.Minute,
		},
		{
			name: "BMC busy once", does: []behaviour{{refuses: busy}, ready}, status: Good, attempts: 2, took: 8 * time.Minute,
			failed: []string{"it could not be started: BMC a1: 503 Service Unavailable"},
		},
		{
			name: "BMC refuses", does: []behaviour{{refuses: finalError()}}, status: NotStarted, attempts: 1, took: 0,
			why:    "it could not be started: BMC a1: 401 Unauthorized",
			failed: []string{"it could not be started: BMC a1: 401 Unauthorized"},
		},
		{
			name: "a note", does: []behaviour{{boot: time.Minute, ends: time.Minute, verdict: checks.VerdictReady, note: "the BMC shows no boot source"}},
			status: Good, attempts: 1, took: 2 * time.Minute, notes: []string{"the BMC shows no boot source"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.slow = tt.slow
				out := w.run(t.Context(), t, Settings{}, w.node("a1", "", tt.does...))
				r := out.Results[0]
				assert.Equal(t, tt.status, r.Status)
				assert.Equal(t, tt.why, r.Why)
				assert.Equal(t, tt.attempts, r.Attempts)
				assert.Equal(t, tt.failed, r.Failed)
				assert.Equal(t, tt.notes, r.Notes)
				assert.InDelta(t, tt.took.Minutes(), out.Ended.Sub(out.Began).Minutes(), 1)
				assert.Empty(t, w.armed)
				assert.Len(t, out.Export().Nodes, 1)
			})
		})
	}
}

func TestLimits(t *testing.T) {
	tests := []struct {
		name  string
		s     Settings
		peaks map[string]int
		took  time.Duration
	}{
		{"none", Settings{}, map[string]int{"": 8, "rack1": 4, "rack2": 4}, 7 * time.Minute},
		{"two at once", Settings{Concurrency: 2}, map[string]int{"": 2, "rack1": 2, "rack2": 2}, 4 * 7 * time.Minute},
		{"one of a rack", Settings{PerGroup: 1}, map[string]int{"": 2, "rack1": 1, "rack2": 1}, 4 * 7 * time.Minute},
		{"both", Settings{Concurrency: 3, PerGroup: 2}, map[string]int{"": 3, "rack1": 2, "rack2": 2}, 3 * 7 * time.Minute},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				var nodes []Node
				for i := range 8 {
					nodes = append(nodes, w.node(fmt.Sprintf("n%d", i), fmt.Sprintf("rack%d", i/4+1), ready))
				}
				out := w.run(t.Context(), t, tt.s, nodes...)
				assert.Equal(t, 8, out.Count(Good))
				assert.Equal(t, tt.peaks, w.peak)
				assert.InDelta(t, tt.took.Minutes(), out.Ended.Sub(out.Began).Minutes(), 2)
			})
		})
	}
}

// Machines that nobody can start from here are waited for until the night ends, and
// take no place from others.
func TestStartedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		byHand, forgotten := w.node("hand", "rack1", ready), w.node("forgotten", "rack1", ready)
		byHand.Start, forgotten.Start = nil, nil
		time.AfterFunc(3*time.Hour, func() { w.machines["hand"].run(ready) })
		out := w.run(t.Context(), t, Settings{Concurrency: 1, Deadline: 5 * time.Hour}, byHand, forgotten, w.node("a1", "rack1", ready))
		assert.Equal(t, Good, out.Results[0].Status)
		assert.Equal(t, 1, out.Results[0].Attempts)
		assert.Equal(t, NotStarted, out.Results[1].Status)
		assert.Equal(t, "nobody started it, or it did not start from the network", out.Results[1].Why)
		assert.Equal(t, Good, out.Results[2].Status)
		assert.WithinDuration(t, out.Began.Add(7*time.Minute), out.Results[2].Ended, time.Minute)
		assert.InDelta(t, 5*60, out.Ended.Sub(out.Began).Minutes(), 1)
		assert.Empty(t, w.armed)
		nodes := out.Export().Nodes
		require.Len(t, nodes, 3)
		assert.Equal(t, export.Error, nodes[1].Status)
		assert.Equal(t, "not started: "+out.Results[1].Why, nodes[1].Cases[0].Message)
	})
}

// A night that was interrupted goes on where it was.
func TestResume(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("again=%v", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				nodes := []Node{w.node("done", "", ready), w.node("hung", "", ready), w.node("underway", "", ready), w.node("stick", "", ready)}
				hour := time.Now().Add(-time.Hour)
				done := &farm.Summary{Verdict: checks.VerdictReady}
				w.runs = []farm.Run{
					{ID: "1", Node: "done", Source: farm.Network, State: farm.Complete, Summary: done, Judged: true, Offered: hour},
					{ID: "2", Node: "hung", Source: farm.Network, State: farm.Lost, Why: "cut off", Offered: hour},
					{ID: "3", Node: "underway", Source: farm.Network, State: farm.Running, Offered: time.Now()},
					{ID: "4", Node: "stick", Source: farm.Stick, State: farm.Complete, Summary: done, Judged: true, Offered: hour},
					{ID: "5", Node: "done", Source: farm.Network, State: farm.Lost, Why: "started by mistake", Offered: time.Now()},
				}
				time.AfterFunc(2*time.Minute, func() {
					w.change("3", func(r *farm.Run) { r.State, r.Summary, r.Judged = farm.Complete, done, true })
				})
				out := w.run(t.Context(), t, Settings{Again: again}, nodes...)
				assert.Equal(t, 4, out.Count(Good))
				starts := map[string]int{"done": 0, "hung": 1, "underway": 0, "stick": 1}
				if again {
					starts["done"] = 1
				}
				for name, want := range starts {
					assert.Equal(t, want, w.machines[name].starts, name)
				}
				assert.Equal(t, !again, out.Results[0].Earlier)
				assert.Equal(t, "3", out.Results[2].Run.ID)
				assert.Empty(t, w.armed)
			})
		})
	}
}

func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+5*time.Second)
		defer cancel()
		byHand := w.node("hand", "", ready)
		byHand.Start = nil
		quick := behaviour{boot: time.Minute, ends: time.Minute, verdict: checks.VerdictReady}
		late := behaviour{refuses: errors.New("busy")}
		out := w.run(ctx, t, Settings{Concurrency: 3, Attempts: 9}, byHand, w.node("quick", "", quick), w.node("runs", "", ready), w.node("silent", "", silent),
			w.node("bmc", "", late))
		assert.True(t, out.Interrupted)
		assert.Equal(t, []Status{NotStarted, Good, Lost, Lost, NotStarted},
			[]Status{out.Results[0].Status, out.Results[1].Status, out.Results[2].Status, out.Results[3].Status, out.Results[4].Status})
		assert.Equal(t, "interrupted", out.Results[2].Why)
		assert.Empty(t, w.armed)
		assert.Empty(t, out.Armed)
	})
}

func TestEndOfNight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		out := w.run(t.Context(), t, Settings{Concurrency: 2, Deadline: 5 * time.Minute}, w.node("runs", "", ready), w.node("silent", "", silent), w.node("waits", "", ready))
		assert.Equal(t, []Result{
			{Node: "runs", Status: Lost, Why: `the night ended while it ran, the last stage begun is ""`, Run: out.Results[0].Run, Attempts: 1, Began: out.Results[0].Began, Ended: out.Results[0].Ended},
			{Node: "silent", Status: Lost, Why: "the night ended before it asked for anything to boot", Attempts: 1, Began: out.Results[1].Began, Ended: out.Results[1].Ended},
			{Node: "waits", Status: NotStarted, Why: "the night ended before its turn", Ended: out.Results[2].Ended},
		}, out.Results)
		assert.InDelta(t, 5, out.Ended.Sub(out.Began).Minutes(), 0.5)
	})
}

// The server may be away for a while: nodes deliver when it is back.
func TestServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		set := func(err error) func() {
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.down = err
			}
		}
		time.AfterFunc(time.Minute, set(errors.New("connection refused")))
		time.AfterFunc(20*time.Minute, set(nil))
		out := w.run(t.Context(), t, Settings{Concurrency: 1}, w.node("a1", "", ready), w.node("a2", "", ready))
		assert.Equal(t, 2, out.Count(Good))
		assert.Contains(t, w.log, " connection refused")
		assert.Empty(t, w.armed)
	})
}

func TestNotArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		a1 := w.node("a1", "", ready)
		refused := &refusing{w, &ServerError{Request: "POST /v1", Status: 404, Answer: `there is no node "a1"`}}
		out, err := Run(t.Context(), refused, Settings{Night: tonight, Deadline: time.Hour, Attempts: 2}, []Node{a1}, w.say)
		require.NoError(t, err)
		assert.Equal(t, NotStarted, out.Results[0].Status)
		assert.Equal(t, `it could not be armed: POST /v1: 404 Not Found: there is no node "a1"; does the server read the same description of the lab?`, out.Results[0].Why)
		assert.Zero(t, w.machines["a1"].starts)

		refused.err = errors.New("no space left on device")
		out, err = Run(t.Context(), refused, Settings{Night: tonight, Deadline: time.Hour, Attempts: 2}, []Node{a1}, w.say)
		require.NoError(t, err)
		assert.Equal(t, NotStarted, out.Results[0].Status)
		assert.Equal(t, "the night ended before its turn; it could not be armed: no space left on device", out.Results[0].Why)
	})
}

// refusing is a server that arms nothing.
type refusing struct {
	*world
	err error
}

func (r *refusing) Arm(context.Context, string, string, Arming) error { return r.err }

func TestLeftArmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.refuse = errors.New("read-only database")
		out := w.run(t.Context(), t, Settings{}, w.node("a1", "", ready))
		assert.Equal(t, 1, out.Count(Good))
		require.Contains(t, out.Armed, "a1")
		assert.ErrorIs(t, out.Armed["a1"], w.refuse)
	})
}

func TestNoServer(t *testing.T) {
	w := newWorld()
	w.down = errors.New("connection refused")
	_, err := Run(t.Context(), w, Settings{Night: tonight}, nil, w.say)
	require.ErrorIs(t, err, w.down)
}
