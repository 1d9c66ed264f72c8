package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/internal/bench"
	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// machines are documents of facts by the name of the machine.
var machines sync.Map

// machine returns the facts of a machine of the library.
func machine(t testing.TB, name string) *facts.Facts {
	t.Helper()
	doc, known := machines.Load(name)
	if !known {
		i := slices.IndexFunc(fixture.Kinds(), func(k fixture.Kind) bool { return k.Name == name })
		require.GreaterOrEqual(t, i, 0, "no machine %q", name)
		k := fixture.Kinds()[i]
		root := t.TempDir()
		require.NoError(t, k.Write(root))
		f, err := facts.Gather(root, facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
		require.NoError(t, err)
		text, err := json.Marshal(f)
		require.NoError(t, err)
		doc, _ = machines.LoadOrStore(name, text)
	}
	f, err := facts.Load(bytes.NewReader(doc.([]byte)))
	require.NoError(t, err)
	return f
}

// h200 returns what a virtual machine with two H200 said of itself, and what was
// measured on such a machine.
func h200(t testing.TB) (*facts.Facts, *measure.Result) {
	t.Helper()
	f, err := facts.LoadFile("../../../firmware-checks/testdata/machines/h200-guest.json")
	require.NoError(t, err)
	raw, err := os.ReadFile("../../../docs/measurements/h200/two.json")
	require.NoError(t, err)
	r, err := measure.Decode(raw)
	require.NoError(t, err)
	return f, &r
}

// measured is a result of all pairs of a machine that reach 97 % of their ceilings.
func measured(f *facts.Facts) *measure.Result {
	const part = 0.97
	r := &measure.Result{
		Version: measure.Version, Settings: measure.Preset(measure.Quick),
		Inventory: &measure.Inventory{DriverVersion: "580.159.04"}, Verdict: measure.OK,
	}
	for i, d := range f.GPUs() {
		r.Inventory.GPUs = append(r.Inventory.GPUs, cuda.DeviceInfo{BDF: d.Address, UUID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i)})
	}
	for _, ceiling := range bench.Ceilings(f, nil) {
		p := measure.Pair{Initiator: ceiling.Initiator, Peer: ceiling.Peer, CanAccess: true, Ceiling: &ceiling}
		for _, w := range ways {
			v := part * ceiling.Of(w.Direction)
			if w.Method == measure.Staged {
				v /= 2
			} else {
				p.Ways = append(p.Ways, measure.Way{Direction: w.Direction, Method: w.Method})
			}
			p.Measurements = append(p.Measurements, measure.Measurement{
				Quantity: measure.Bandwidth, Direction: w.Direction, Method: w.Method, Unit: measure.GBps, Size: 64 << 20, Summary: measure.Summarise([]float64{v}),
			})
			for _, phase := range []measure.Phase{measure.Before, measure.After} {
				p.Checks = append(p.Checks, measure.Check{Direction: w.Direction, Method: w.Method, Phase: phase, Bytes: 64 << 20})
			}
		}
		p.Measurements = append(p.Measurements, measure.Measurement{
			Quantity: measure.LoadLatency, Direction: measure.Read, Method: measure.SM, Unit: measure.Nanoseconds, Summary: measure.Summarise([]float64{1200 / part}),
		})
		for _, phase := range []measure.Phase{measure.Reached, measure.Handshake} {
			p.Checks = append(p.Checks, measure.Check{Direction: measure.Write, Method: measure.SM, Phase: phase, Bytes: 1 << 20})
		}
		p.Ways, p.Verdict, p.Reason = measure.JudgePair(p, r.Settings)
		r.Pairs = append(r.Pairs, p)
	}
	r.Verdict, r.Reason = measure.Judge(*r)
	return r
}

// written returns the report that a node would deliver: nothing is measured with
// a nil result.
func written(t testing.TB, f *facts.Facts, r *measure.Result) []byte {
	t.Helper()
	at := time.Date(2026, 3, 5, 12, 0, 0, 0, time.UTC)
	w := report.New(report.Clock(func() time.Time { at = at.Add(time.Second); return at }))
	w.Start(report.RunStart{Name: "mkp2pimg", Version: "0.1", CommandLine: "p2pinit", Parameters: map[string]any{"p2p.acs": "keep"}, DUT: report.DUT{
		ID: "node7", Software: []report.SoftwareInfo{
			{ID: "kernel", Name: "linux", Version: "6.12.94"}, {ID: "driver", Name: "nvidia", Version: "580.159.04", Revision: "p2p"},
		},
	}})
	s := w.Step("facts", "gather facts")
	s.Extension(report.ExtFacts, f)
	s.End(report.StatusComplete)
	found := checks.Run(f)
	s = w.Step("bandwidth", "measure")
	if r != nil {
		s.Extension(report.ExtBandwidth, r)
		bench.Write(s, r, "", true)
		found = checks.Add(found, bench.Findings(r)...)
	}
	s.End(report.StatusComplete)
	s = w.Step("verdict", "sum up")
	for _, f := range found {
		s.Finding(f)
	}
	v, reason := checks.Judge(found)
	s.Verdict(report.Verdict{Verdict: v, Reason: reason})
	s.End(report.StatusComplete)
	require.NoError(t, w.End(report.Outcome(v, false)))
	return w.Bytes()
}

func parsed(t testing.TB, raw []byte) *report.Run {
	t.Helper()
	r, err := report.Parse(bytes.NewReader(raw))
	require.NoError(t, err)
	return r
}

// summary is that of the report of a machine.
func summary(t testing.TB, f *facts.Facts, r *measure.Result) *farm.Summary {
	t.Helper()
	return Summarise(parsed(t, written(t, f, r)))
}

// night is the n-th run of node7.
func night(n int, s *farm.Summary) farm.Run {
	at := time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC).AddDate(0, 0, n)
	return farm.Run{
		ID: fmt.Sprintf("run-%03d", n), Node: "node7", Night: at.Format(time.DateOnly), State: farm.Complete, Plan: "full",
		Offered: at, Started: at.Add(time.Minute), Ended: at.Add(5 * time.Minute), Chunks: 3, Summary: s,
	}
}

// nights are n runs that found out the same.
func nights(n int, s *farm.Summary) []farm.Run {
	var runs []farm.Run
	for i := range n {
		runs = append(runs, night(i, s))
	}
	return runs
}
