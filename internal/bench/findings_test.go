package bench

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/measure"
)

const gpu0, gpu1 = "0000:01:00.0", "0000:02:00.0"

// result is one of two GPUs that are well.
func result() *measure.Result {
	pair := func(a, b string) measure.Pair {
		return measure.Pair{Initiator: a, Peer: b, Verdict: measure.OK}
	}
	return &measure.Result{
		Version: measure.Version, Verdict: measure.OK, Reason: "2 ordered pairs of 2 GPUs",
		Settings: measure.Settings{MinGBps: 20, SlowFraction: 0.65},
		Devices:  []measure.Device{{BDF: gpu0, Verdict: measure.OK}, {BDF: gpu1, Verdict: measure.OK}},
		Pairs:    []measure.Pair{pair(gpu0, gpu1), pair(gpu1, gpu0)},
	}
}

// Whatever a measurement found, the person reading it learns what to do.
func TestFindings(t *testing.T) {
	tests := map[measure.Verdict]checks.Status{
		measure.Slow: checks.Warn, measure.Inconclusive: checks.Unknown, measure.Unusable: checks.Fail,
		measure.Hang: checks.Fail, measure.WrongData: checks.Fail,
	}
	replays := int64(7)
	for verdict, status := range tests {
		t.Run(string(verdict), func(t *testing.T) {
			r := result()
			r.Pairs[0].Verdict, r.Pairs[0].Reason = verdict, "why"
			r.Pairs[0].Watch = &measure.Watch{
				Links:   []measure.Link{{BDF: gpu0, Seen: []measure.LinkState{{Speed: "8.0 GT/s PCIe", Width: 8}}, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16, Errors: map[string]int64{"correctable": 3}}},
				Sensors: []measure.Sensor{{BDF: gpu0, Replays: &replays}},
				Kernel:  []string{"NVRM: Xid 31"},
			}
			r.Devices = []measure.Device{{BDF: gpu0, Verdict: verdict, Reason: "why"}}
			r.Traffic = []measure.Traffic{{Shape: measure.Collapse, Direction: measure.Write, Method: measure.CE, Sources: 3,
				Flows: []measure.Flow{{Initiator: gpu0, Peer: gpu1}}, Verdict: verdict, Reason: "why"}}
			found := Findings(r)
			require.Len(t, found, 3)
			for _, f := range found {
				assert.Equal(t, status, f.Status)
				assert.NotEmpty(t, f.Meaning)
				assert.NotEmpty(t, f.Fix)
			}
			assert.Equal(t, []string{gpu0}, found[0].Devices)
			assert.Equal(t, [][2]string{{gpu0, gpu1}}, found[1].Pairs)
			var raws []string
			for _, e := range found[1].Evidence[1:] {
				raws = append(raws, e.What+": "+e.Raw)
			}
			assert.Equal(t, []string{"link under load: 8.0 GT/s PCIe x8 of 16.0 GT/s PCIe x16", "correctable errors meanwhile: 3",
				"PCIe replays meanwhile: 7", "kernel log meanwhile: NVRM: Xid 31"}, raws)
			assert.Equal(t, "collapse write by ce with 3 sources: why", found[2].Title)
			assert.Equal(t, verdict == measure.Slow, found[2].Fix == collapseFix)
		})
	}
	found := Findings(result())
	require.Len(t, found, 1)
	assert.Equal(t, checks.Pass, found[0].Status)
	assert.Empty(t, found[0].Fix)
}

// A problem that the user can solve has the fix for it, not for a bad pair.
func TestFindingsOfProblems(t *testing.T) {
	for kind, fix := range problemFixes {
		r := &measure.Result{Verdict: measure.Inconclusive, Reason: "x", Problem: &measure.Problem{Kind: kind, Call: "cuInit", Code: 100, Name: "CUDA_ERROR_NO_DEVICE"}}
		found := Findings(r)
		require.Len(t, found, 1)
		assert.Equal(t, fix, found[0].Fix)
		assert.Equal(t, "100, CUDA_ERROR_NO_DEVICE", found[0].Evidence[1].Raw)
	}
}

// TestLimits has the validators of each kind of figure: those that the verdict on
// the pair was reached by.
func TestLimits(t *testing.T) {
	r := result()
	r.Pairs[0].Ceiling = &measure.Ceiling{WriteGBps: 26, ReadGBps: 24, Basis: "Gen4 x16"}
	w := writer{result: r}
	for _, tc := range []struct {
		m    measure.Measurement
		want []any
	}{
		{measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE}, []any{20.0, r.Settings.SlowFraction * 26}},
		{measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Read, Method: measure.SM}, []any{20.0}},
		{measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE, Load: measure.Total}, nil},
		{measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.Staged}, nil},
		{measure.Measurement{Quantity: measure.LoadLatency, Direction: measure.Read, Method: measure.SM}, nil},
	} {
		var values []any
		for _, v := range w.limits(r.Pairs[0], tc.m) {
			values = append(values, v.Value)
		}
		assert.Equal(t, tc.want, values, "%s %s %s", tc.m.Quantity, tc.m.Direction, tc.m.Method)
	}
}
