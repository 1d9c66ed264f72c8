package qemu

import (
	"strconv"
	"strings"
)

// Times are points of a run in seconds since the emulator was started, 0 where
// the point was not reached.
type Times struct {
	Kernel       float64 `json:"kernel"`        // zero of the kernel's clock
	Init         float64 `json:"init"`          // first line of the report
	FirstFinding float64 `json:"first_finding"` // first finding in the report
	ReportEnd    float64 `json:"report_end"`    // testRunEnd
	End          float64 `json:"end"`           // the emulator ended
}

// Times reads the points of a run from the arrival of its lines. Kernel is the
// zero of the kernel's clock: the smallest difference between the arrival of a
// console line and the time the kernel printed before it, which is late by no
// more than the fastest line took to arrive.
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
	for _, l := range r.Report {
		for _, p := range []struct {
			at   *float64
			mark string
		}{
			{&t.Init, reportStart},
			{&t.FirstFinding, `"name":"finding"`},
			{&t.ReportEnd, `"testRunEnd":`},
		} {
			if *p.at == 0 && strings.Contains(l.Text, p.mark) {
				*p.at = l.At.Seconds()
			}
		}
	}
	return t
}
