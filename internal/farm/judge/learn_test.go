package judge

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
)

const (
	keyCE      = Key("bandwidth/0000:03:00.0/0000:04:00.0/write/ce")
	keySM      = Key("bandwidth/0000:03:00.0/0000:04:00.0/read/sm")
	keyLatency = Key("latency/0000:03:00.0/0000:04:00.0")
)

func repeat(v float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func join(parts ...[]float64) []float64 {
	var out []float64
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

func TestLearnFigure(t *testing.T) {
	for name, test := range map[string]struct {
		key    Key
		values []float64
		median float64 // 0: nothing is learned
		runs   int
	}{
		"none":                         {keyCE, nil, 0, 0},
		"two are too few":              {keyCE, repeat(26, 2), 0, 0},
		"three":                        {keyCE, []float64{26, 26.2, 26.1}, 26.1, 3},
		"one of three disturbed":       {keyCE, []float64{13, 26.1, 26}, 26, 3},
		"the last 30":                  {keyCE, join(repeat(26, 50), repeat(26.5, 30)), 26.5, 30},
		"a regression is not learned":  {keyCE, join(repeat(26, 3), repeat(13, 100)), 26, 3},
		"nor after a good month":       {keyCE, join(repeat(26, 40), repeat(13, 80)), 26, 30},
		"good runs in between are":     {keyCE, join(repeat(26, 3), repeat(13, 9), repeat(26, 2), repeat(13, 9)), 26, 5},
		"a step for the better":        {keyCE, join(repeat(13, 30), repeat(26, 3)), 26, 3},
		"two are no step":              {keyCE, join(repeat(13, 30), repeat(26, 2)), 13, 30},
		"nor three with one between":   {keyCE, join(repeat(13, 30), repeat(26, 2), repeat(13, 1), repeat(26, 1)), 13, 30},
		"after a step, the old is bad": {keyCE, join(repeat(13, 30), repeat(26, 3), repeat(13, 5)), 26, 3},
		"a longer latency":             {keyLatency, join(repeat(1200, 10), repeat(1900, 10)), 1200, 10},
		"a shorter latency":            {keyLatency, join(repeat(1900, 10), repeat(1200, 3)), 1200, 3},
	} {
		t.Run(name, func(t *testing.T) {
			b, ok := learn(test.key, test.values)
			require.Equal(t, test.median != 0, ok)
			assert.Equal(t, test.median, b.Median)
			assert.Equal(t, test.runs, b.Runs)
		})
	}
}

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		base      farm.Baseline
		low, high float64
	}{
		"the floor of copies":   {farm.Baseline{Key: string(keyCE), Median: 100, MAD: 0.1, Runs: 30}, 96, 104},
		"the floor of kernels":  {farm.Baseline{Key: string(keySM), Median: 100, MAD: 0.1, Runs: 30}, 92, 108},
		"the floor of latency":  {farm.Baseline{Key: string(keyLatency), Median: 1000, Runs: 3}, 940, 1060},
		"five deviations":       {farm.Baseline{Key: string(keyCE), Median: 100, MAD: 2, Runs: 1e9}, 100 - 5*1.4826*2, 100 + 5*1.4826*2},
		"more for few":          {farm.Baseline{Key: string(keyCE), Median: 100, MAD: 1, Runs: 3}, 100 - 5*1.4826*1.495, 100 + 5*1.4826*1.495},
		"a half is never sound": {farm.Baseline{Key: string(keyCE), Median: 100, MAD: 20, Runs: 30}, 60, 140},
		"pinned":                {farm.Baseline{Key: string(keyCE), Median: 100, Pinned: true}, 96, 104},
		"pinned, wider":         {farm.Baseline{Key: string(keyCE), Median: 100, MAD: 2, Pinned: true}, 100 - 5*1.4826*2, 100 + 5*1.4826*2},
	} {
		t.Run(name, func(t *testing.T) {
			low, high := Limits(test.base)
			assert.InDelta(t, test.low, low, 1e-6)
			assert.InDelta(t, test.high, high, 1e-6)
		})
	}
}

// TestLearnGood learns from good runs alone.
func TestLearnGood(t *testing.T) {
	pair := func(gbps float64) farm.Pair {
		return farm.Pair{Initiator: "0000:03:00.0", Peer: "0000:04:00.0", Direction: "write", Method: "ce", GBps: gbps, Verdict: "ok"}
	}
	for name, spoil := range map[string]func(r *farm.Run){
		"lost":         func(r *farm.Run) { r.State = farm.Lost },
		"under way":    func(r *farm.Run) { r.State = farm.Running },
		"no summary":   func(r *farm.Run) { r.Summary = nil },
		"blocked":      func(r *farm.Run) { r.Summary.Verdict = checks.VerdictBlocked },
		"unknown":      func(r *farm.Run) { r.Summary.Verdict = checks.VerdictUnknown },
		"no verdict":   func(r *farm.Run) { r.Summary.Verdict = "" },
		"no GPU":       func(r *farm.Run) { r.Summary.Verdict = checks.VerdictNoGPU },
		"emulated":     func(r *farm.Run) { r.Summary.Settings = map[string]string{GPUNature: "emulated"} },
		"wrong data":   func(r *farm.Run) { r.Summary.Pairs = append(r.Summary.Pairs, farm.Pair{Verdict: "wrong-data"}) },
		"not verified": func(r *farm.Run) { r.Summary.Pairs[0].Verdict = "inconclusive" },
		"other machine": func(r *farm.Run) {
			r.Changes = []farm.Change{{Kind: farm.HardwareChanged, Subject: SystemUUID, Worse: true}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var runs []farm.Run
			for i := range 10 {
				r := night(i, &farm.Summary{Verdict: checks.VerdictDegraded, Pairs: []farm.Pair{pair(26)}})
				if i >= 3 {
					r.Summary.Pairs[0].GBps = 26.5 // within the limits, so that only the run tells
					spoil(&r)
				}
				runs = append(runs, r)
			}
			got := Learn(runs, nil)
			require.Len(t, got, 1)
			assert.Equal(t, farm.Baseline{Node: "node7", Key: string(keyCE), Unit: "GB/s", Median: 26, Runs: 3}, got[0])
		})
	}
}

func TestLearnPinned(t *testing.T) {
	pair := farm.Pair{Initiator: "a", Peer: "b", Direction: "write", Method: "ce", GBps: 26, Verdict: "ok"}
	back := pair
	back.Initiator, back.Peer = "b", "a"
	runs := nights(5, &farm.Summary{Verdict: checks.VerdictReady, Pairs: []farm.Pair{pair, back}})
	all := farm.Baseline{Node: "node7", Key: "bandwidth/*/*/write/ce", Unit: "GB/s", Median: 20, Pinned: true}
	one := farm.Baseline{Node: "node7", Key: string(Bandwidth(back)), Unit: "GB/s", Median: 13, Pinned: true}
	other := farm.Baseline{Node: "node7", Key: "latency/a/b", Unit: "ns", Median: 900, Pinned: true}
	got := Learn(runs, []farm.Baseline{all, one, other})
	expanded := all
	expanded.Key = string(Bandwidth(pair))
	assert.Equal(t, []farm.Baseline{expanded, one, all, other}, got, "its very key goes before one with a *; what no run has stays")
	learned := Learn(runs, nil)
	require.Len(t, learned, 2)
	assert.False(t, learned[0].Pinned)
}

// nightsPerFigure is a year.
const nightsPerFigure = 365

// TestFalseAlarms counts the figures of sound nodes that are called regressions, in
// a year of nights that starts with no history, for kinds of noise from night to
// night. Of 280 figures, those of a node with 8 GPUs, it allows a few alarms.
func TestFalseAlarms(t *testing.T) {
	const figures = 280
	for name, test := range map[string]struct {
		// draw returns a factor around 1. It may keep a state of the node in slow.
		draw func(r *rand.Rand, slow *float64) float64
		most int
	}{
		"as copies measured": {func(r *rand.Rand, _ *float64) float64 { return 1 + 0.005*r.NormFloat64() }, 0},
		"twice as noisy":     {func(r *rand.Rand, _ *float64) float64 { return 1 + 0.01*r.NormFloat64() }, 5},
		"disturbed by up to 3 % in one night of 50": {func(r *rand.Rand, _ *float64) float64 {
			v := 1 + 0.005*r.NormFloat64()
			if r.IntN(50) == 0 {
				v -= 0.03 * r.Float64()
			}
			return v
		}, 10},
		"a room that is warmer for weeks": {func(r *rand.Rand, slow *float64) float64 {
			*slow = 0.95**slow + 0.001*r.NormFloat64()
			return 1 + *slow + 0.005*r.NormFloat64()
		}, 0},
		"memory that lies 2 % better in every other boot": {func(r *rand.Rand, _ *float64) float64 {
			return 1 - 0.02*float64(r.IntN(2)) + 0.003*r.NormFloat64()
		}, 0},
		"heavy tails": {func(r *rand.Rand, _ *float64) float64 { // Student's distribution with 3 degrees of freedom
			squares := 0.
			for range 3 {
				x := r.NormFloat64()
				squares += x * x
			}
			return 1 + 0.002*r.NormFloat64()/math.Sqrt(squares/3)
		}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			alarms := 0
			for range figures {
				slow := 0.
				l := learner{key: keyCE}
				for range nightsPerFigure {
					if l.add(26*test.draw(r, &slow)) < 0 {
						alarms++
					}
				}
			}
			t.Logf("%d alarms in %d figures", alarms, figures*nightsPerFigure)
			assert.LessOrEqual(t, alarms, test.most)
		})
	}
}

// TestDetected loses something on the hundredth night of a figure that is as noisy
// as those measured, and counts in how many of 100 figures that is seen at once.
func TestDetected(t *testing.T) {
	for name, test := range map[string]struct {
		key   Key
		noise float64
		left  float64 // of the figure
		least int
	}{
		"half of the lanes":                      {keyCE, 0.005, 0.5, 100},
		"half of the lanes, noisy":               {keySM, 0.05, 0.5, 100},
		"Max Payload Size from 256 to 128 bytes": {keyCE, 0.005, (128. / 152) / (256. / 280), 100},
		"Max Payload Size from 512 to 256 bytes": {keyCE, 0.002, (256. / 280) / (512. / 536), 90},
		"a tenth of a kernel":                    {keySM, 0.01, 0.9, 95},
		"100 ns more of 1200":                    {keyLatency, 0.004, 1300. / 1200, 100},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(3, 4))
			seen := 0
			for range 100 {
				l := learner{key: test.key}
				for range 99 {
					l.add(1200 * (1 + test.noise*r.NormFloat64()))
				}
				b, ok := l.normal()
				require.True(t, ok)
				if judged(b, 1200*test.left*(1+test.noise*r.NormFloat64())) < 0 {
					seen++
				}
			}
			t.Logf("%d of 100", seen)
			assert.GreaterOrEqual(t, seen, test.least)
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	f := machine(b, "ten-gpus")
	s := summary(b, f, measured(f))
	runs := nights(Depth, s)
	run := night(Depth, s)
	b.Logf("%d figures", len(s.Pairs))
	for b.Loop() {
		Judge(farm.Node{Name: "node7"}, run, runs, nil)
	}
}
