package arms

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/fake"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/rm"
)

// simulated measures two simulated GPUs with a link.
func simulated(t *testing.T, a Arm, path rm.Path, link fake.Link) Outcome {
	t.Helper()
	gpu := func(bdf string) fake.GPU {
		return fake.GPU{
			Info:     cuda.DeviceInfo{BDF: bdf, Name: "Simulated GPU", Memory: 1 << 30, SMs: 4, ComputeMajor: 8, ComputeMinor: 9},
			HostGBps: 0.005, Copy: 0.008, Latency: 300 * time.Nanosecond,
		}
	}
	link.StagedGBps, link.Latency = 0.002, time.Microsecond
	sys := &fake.System{CUDA: 13000, GPUs: []fake.GPU{gpu(gpu0), gpu(gpu1)}, Default: link}
	set := measure.Settings{Size: 64 << 10, Samples: 10, Staged: true, Seed: 1, Window: 512 << 10}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := measure.ProbePair(ctx, sys, gpu0, gpu1, 0, set, func(measure.Pair) {})
	r := &measure.Result{Settings: set, Pairs: []measure.Pair{p}, Inventory: &measure.Inventory{GPUs: []cuda.DeviceInfo{sys.GPUs[0].Info, sys.GPUs[1].Info}}}
	r.Verdict, r.Reason = measure.Judge(*r)
	return Outcome{Arm: a, Survey: &rm.Survey{Pairs: []rm.Pair{{A: gpu0, B: gpu1, Path: path}}}, Result: r}
}

// TestSimulatedArms compares a driver without peer access, one whose mailbox leads
// astray, a slow mailbox, and BAR1.
func TestSimulatedArms(t *testing.T) {
	access := cuda.P2PAttributes{PerformanceRank: 1, Access: true}
	c := Compare([]Outcome{
		simulated(t, Arm{Set: Stock}, rm.NoPath, fake.Link{GBps: 0.004, NoAccess: true}),
		simulated(t, Arm{Set: Stock, Mailbox: true}, rm.Mailbox, fake.Link{GBps: 0.006, Attributes: access, Mirror: true}),
		simulated(t, Arm{Set: P2P, Mailbox: true}, rm.Mailbox, fake.Link{GBps: 0.0032, Attributes: access}),
		simulated(t, Arm{Set: P2P}, rm.BAR1, fake.Link{GBps: 0.004, Attributes: access}),
	}, nil)
	assert.Equal(t, measure.Unusable, c.Arms[0].Verdict)
	assert.Equal(t, measure.WrongData, c.Arms[1].Verdict)
	assert.Equal(t, measure.OK, c.Arms[2].Verdict)
	assert.Equal(t, measure.OK, c.Arms[3].Verdict)
	for _, total := range c.Totals() {
		if total.Direction != measure.Write || total.Method != measure.CE || total.Load != measure.Alone || total.Quantity != measure.Bandwidth {
			continue
		}
		require.Len(t, total.Cells, 4)
		assert.Zero(t, total.Cells[0].Pairs, "no access")
		assert.Zero(t, total.Cells[1].Pairs, "the mirror is fast, and wrong")
		assert.InEpsilon(t, 1.25, total.Cells[2].Ratio, 0.01)
		assert.Equal(t, 1, total.Cells[2].Clear)
		return
	}
	t.Error("nothing was compared")
}
