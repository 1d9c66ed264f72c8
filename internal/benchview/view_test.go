package benchview

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/rm"
)

// figure is a measurement whose samples spread by 1 %.
func figure(q measure.Quantity, d measure.Direction, m measure.Method, l measure.Load, unit string, size int64, v float64) measure.Measurement {
	return measure.Measurement{
		Quantity: q, Direction: d, Method: m, Load: l, Unit: unit, Size: size, Copies: 4, Samples: []float64{v * 0.99, v, v * 1.01},
		Summary: measure.Summary{Min: v * 0.99, P5: v * 0.991, Median: v, P95: v * 1.009, Max: v * 1.01, Mean: v, CV: 0.01},
	}
}

// made is a result of n GPUs, made up for this test: two under each switch, with
// a ceiling of 26.5 GB/s, pairs further apart slower.
func made(n int) *measure.Result {
	const ceiling = 26.53
	bdf := func(i int) string { return fmt.Sprintf("0000:%02x:00.0", i+1) }
	r := &measure.Result{Version: measure.Version, Verdict: measure.OK, Reason: fmt.Sprintf("%d ordered pairs of %d GPUs", n*(n-1), n),
		Settings:  measure.Preset(measure.Complete),
		Inventory: &measure.Inventory{Library: "libcuda.so.1", CUDAVersion: "13.0", DriverVersion: "580.142"}}
	for i := range n {
		r.Inventory.GPUs = append(r.Inventory.GPUs, cuda.DeviceInfo{BDF: bdf(i), Name: "NVIDIA GeForce RTX 3090", Memory: 24 << 30})
		r.Devices = append(r.Devices, measure.Device{BDF: bdf(i), Verdict: measure.OK, Reason: "copies verified", Measurements: []measure.Measurement{
			figure(measure.Bandwidth, measure.H2D, measure.CE, measure.Alone, measure.GBps, 64<<20, 25.1),
			figure(measure.Bandwidth, measure.D2H, measure.CE, measure.Alone, measure.GBps, 64<<20, 26.2),
			figure(measure.Bandwidth, measure.Local, measure.CE, measure.Alone, measure.GBps, 64<<20, 412),
		}})
	}
	for i := range n {
		for j := range n {
			if i != j {
				r.Pairs = append(r.Pairs, madePair(bdf(i), bdf(j), ceiling, 1/(1+0.12*float64(distance(i, j)))))
			}
		}
	}
	if n > 2 {
		sum := figure(measure.Bandwidth, measure.Write, measure.CE, measure.Total, measure.GBps, 64<<20, 22*float64(n))
		r.Traffic = []measure.Traffic{
			{Shape: measure.Ring, Direction: measure.Write, Method: measure.CE, Sources: n, Flows: make([]measure.Flow, n), Sum: &sum, Verdict: measure.OK, Reason: "verified"},
			{Shape: measure.Collapse, Direction: measure.Write, Method: measure.CE, Sources: 2, Flows: make([]measure.Flow, 2), Verdict: measure.Hang, Reason: "hangs"},
		}
	}
	return r
}

// distance is 0 under one switch, 1 under one root, 2 between roots.
func distance(i, j int) int {
	switch {
	case i/2 == j/2:
		return 0
	case i/4 == j/4:
		return 1
	}
	return 2
}

func madePair(a, b string, ceiling, part float64) measure.Pair {
	p := measure.Pair{Initiator: a, Peer: b, CanAccess: true, Verdict: measure.OK, Reason: "data verified", Seconds: 2.5, VerifySeconds: 0.5,
		Ceiling: &measure.Ceiling{Initiator: a, Peer: b, WriteGBps: ceiling, ReadGBps: ceiling, Basis: "Gen4 x16, 128 bytes a packet"}}
	for _, w := range []struct {
		d     measure.Direction
		m     measure.Method
		share float64
	}{{measure.Write, measure.CE, 0.99}, {measure.Read, measure.CE, 0.97}, {measure.Write, measure.SM, 0.93}, {measure.Read, measure.SM, 0.9}} {
		v := ceiling * part * w.share
		p.Measurements = append(p.Measurements, figure(measure.Bandwidth, w.d, w.m, measure.Alone, measure.GBps, 512<<20, v))
		p.Ways = append(p.Ways, measure.Way{Direction: w.d, Method: w.m, GBps: v, OfCeiling: v / ceiling, Verdict: measure.OK, Reason: fmt.Sprintf("%.2f GB/s, data verified by its owner", v)})
		for size := int64(4 << 10); size <= 1<<30; size *= 4 {
			p.Sweep = append(p.Sweep, figure(measure.Bandwidth, w.d, w.m, measure.Alone, measure.GBps, size, v*float64(size)/(float64(size)+1e6)))
		}
	}
	p.Checks = append(p.Checks, measure.Check{Direction: measure.Write, Method: measure.Staged, Phase: measure.After, Bytes: 512 << 20})
	p.Measurements = append(p.Measurements,
		figure(measure.Bandwidth, measure.Write, measure.CE, measure.Total, measure.GBps, 512<<20, 2*ceiling*part*0.95),
		figure(measure.Bandwidth, measure.Write, measure.Staged, measure.Alone, measure.GBps, 512<<20, 11.3),
		figure(measure.LoadLatency, measure.Read, measure.SM, measure.Alone, measure.Nanoseconds, 2<<20, 1400/part),
		figure(measure.FlagLatency, measure.Write, measure.SM, measure.Alone, measure.Nanoseconds, 8, 2100/part),
		figure(measure.IssueRate, measure.Write, measure.CE, measure.Alone, measure.PerSecond, 16, 2.4e6))
	return p
}

// spoil has a pair for each way in which one can be unwell.
func spoil(r *measure.Result) *measure.Result {
	r.Verdict, r.Reason = measure.WrongData, "0000:01:00.0 to 0000:02:00.0: wrong"
	for i, v := range []measure.Verdict{measure.WrongData, measure.Hang, measure.Unusable, measure.Inconclusive, measure.Slow} {
		p := &r.Pairs[i]
		p.Verdict, p.Reason = v, "because of <this> & that"
		for k := range p.Ways {
			p.Ways[k].Verdict, p.Ways[k].Reason = v, "because of <this> & that"
		}
	}
	r.Pairs[4].Ways[0].OfCeiling, r.Pairs[4].Measurements[0].Median = 0.3, 8
	r.Devices[1].Verdict = measure.WrongData
	return r
}

func comparison() arms.Comparison {
	survey := func(p rm.Path) *rm.Survey {
		return &rm.Survey{Driver: "580.142", Pairs: []rm.Pair{{A: "0000:01:00.0", B: "0000:02:00.0", Path: p}, {A: "0000:02:00.0", B: "0000:01:00.0", Path: p}}}
	}
	stock := made(2)
	stock.Verdict = measure.Unusable
	for i := range stock.Pairs {
		p := &stock.Pairs[i]
		p.Verdict, p.Reason, p.Ways, p.Sweep = measure.Unusable, "the driver grants no access", nil, nil
		p.Measurements = p.Measurements[5:6]
	}
	box := made(2)
	for i := range box.Pairs {
		for k := range box.Pairs[i].Measurements {
			m := &box.Pairs[i].Measurements[k]
			if m.Method != measure.Staged {
				s := 0.78
				m.Median, m.P5, m.P95 = s*m.Median, s*m.P5, s*m.P95
			}
		}
	}
	return arms.Compare([]arms.Outcome{
		{Arm: arms.Arm{Set: arms.Stock}, Options: "NVreg_EnableResizableBar=1", Survey: survey(rm.NoPath), Result: stock},
		{Arm: arms.Arm{Set: arms.P2P, Mailbox: true}, Options: `NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=0"`, Survey: survey(rm.Mailbox), Result: box},
		{Arm: arms.Arm{Set: arms.P2P}, Options: `NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=1"`, Survey: survey(rm.BAR1), Result: made(2)},
	}, []arms.Left{{Arm: "p2p-noacs", Why: "no port between GPUs redirects that can be changed"}})
}

func TestText(t *testing.T) {
	for name, r := range map[string]*measure.Result{
		"two": made(2), "eight": made(8), "spoilt": spoil(made(4)),
		"one":  {Inventory: made(1).Inventory, Devices: made(1).Devices},
		"none": {},
	} {
		t.Run(name, func(t *testing.T) {
			var plain, colour bytes.Buffer
			require.NoError(t, WriteResult(&plain, r, Options{}))
			golden.Equal(t, "testdata/"+name+".txt", plain.Bytes())
			require.NoError(t, WriteResult(&colour, r, Options{Color: true}))
			assert.NotContains(t, plain.String(), "\x1b")
			if name == "spoilt" {
				golden.Equal(t, "testdata/colour.txt", colour.Bytes())
			}
			for line := range bytes.Lines(plain.Bytes()) {
				assert.LessOrEqual(t, len(bytes.TrimSpace(line)), 80, string(line))
			}
		})
	}
}

func TestComparisonText(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteComparison(&b, comparison()))
	golden.Equal(t, "testdata/arms.txt", b.Bytes())
	b.Reset()
	require.NoError(t, WriteComparison(&b, arms.Compare([]arms.Outcome{{Arm: arms.Arm{Set: arms.P2P}, Skipped: "no GPU"}}, nil)))
	golden.Equal(t, "testdata/arms-none.txt", b.Bytes())
}
