package qemu

import (
	"strconv"
	"strings"
	"time"
)

// Judge compares a run with what the machine's description expects.
func Judge(m *Machine, run *Run) []Check {
	return []Check{judgeExit(run)}
}

func judgeExit(run *Run) Check {
	c := Check{ID: "power-off", Status: Pass, Detail: "the guest switched itself off"}
	if run.Exit.Kind != PowerOff {
		c.Status, c.Detail = Fail, string(run.Exit.Kind)+": "+run.Exit.Detail
	}
	return c
}

// Times reads the points of a run from its streams. Kernel is the zero of the
// kernel's clock: the smallest difference between the arrival of a console line
// and the time the kernel printed before it, which is late by no more than the
// fastest line took to arrive.
func (r *Run) Times() Times {
	t := Times{End: r.Took.Seconds()}
	for _, l := range r.Console {
		g := kernelLine.FindStringSubmatch(l.Text)
		if g == nil {
			continue
		}
		clock, err := strconv.ParseFloat(g[1], 64)
		if err != nil {
			continue
		}
		if zero := l.At.Seconds() - clock; zero > 0 && (t.Kernel == 0 || zero < t.Kernel) {
			t.Kernel = zero
		}
	}
	first := func(at *float64, when time.Duration, is bool) {
		if *at == 0 && is {
			*at = when.Seconds()
		}
	}
	for _, l := range r.Report {
		first(&t.Init, l.At, true)
		first(&t.FirstFinding, l.At, strings.Contains(l.Text, `"diagnosis":`))
		first(&t.ReportEnd, l.At, strings.Contains(l.Text, `"testRunEnd":`))
	}
	return t
}
