// Package measuretest runs the measurements on simulated GPUs, for tests of what
// shows results.
package measuretest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/measure"
)

// Settings take little time on simulated GPUs whose links do a few MB/s. They
// measure everything but the size sweep.
func Settings() measure.Settings {
	set := measure.Preset(measure.Quick)
	set.Size, set.Window, set.Seed = 64<<10, 512<<10, 1
	return set
}

// Run measures all GPUs of a driver, all their pairs and what the fabric lets
// several do at the same time, as p2pbw does. The result is the same each time:
// times by the clock are left out.
func Run(t testing.TB, drv cuda.Driver, f measure.Fabric, set measure.Settings) measure.Result {
	t.Helper()
	inv, err := measure.Enumerate(drv)
	require.NoError(t, err)
	inv.Library, inv.DriverVersion = "libcuda.so.simulated", "580.159.04"
	r := measure.Result{
		Version: measure.Version, Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Settings: set, Inventory: &inv,
		Devices: []measure.Device{}, Pairs: []measure.Pair{},
	}
	var gpus []string
	for _, g := range inv.GPUs {
		gpus = append(gpus, g.BDF)
		d := measure.ProbeDevice(t.Context(), drv, g.BDF, set, func(measure.Device) {})
		untimed(d.Checks)
		r.Devices = append(r.Devices, d)
	}
	for _, a := range gpus {
		for _, b := range gpus {
			if a == b {
				continue
			}
			p := measure.ProbePair(t.Context(), drv, a, b, f.Place(b).BAR1, set, func(measure.Pair) {})
			p.Ceiling = f.Ceiling(a, b)
			p.Ways, p.Verdict, p.Reason = measure.JudgePair(p, set)
			p.Seconds, p.VerifySeconds = 0, 0
			untimed(p.Checks)
			r.Pairs = append(r.Pairs, p)
		}
	}
	for _, plan := range measure.Plan(gpus, f, set) {
		if r.Unfit(plan) != "" {
			continue
		}
		plan = measure.ProbeTraffic(t.Context(), drv, plan, set, func(measure.Traffic) {})
		plan.Verdict, plan.Reason = measure.JudgeTraffic(plan, r.Traffic)
		plan.Seconds = 0
		untimed(plan.Checks)
		r.Traffic = append(r.Traffic, plan)
	}
	r.Verdict, r.Reason = measure.Judge(r)
	return r
}

func untimed(checks []measure.Check) {
	for i := range checks {
		checks[i].Seconds = 0
	}
}
