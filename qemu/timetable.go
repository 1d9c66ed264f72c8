package qemu

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteTimes writes the medians of several runs as a table in Markdown: how
// long the image took, counted from the start of the kernel's clock, which
// leaves out the emulated firmware.
func WriteTimes(w io.Writer, runs []*Result) error {
	if len(runs) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "| machine | boots | kernel start to init | to first finding | to report complete | to power off |\n|---|---|---|---|---|---|"); err != nil {
		return err
	}
	var names []string
	byMachine := map[string][]*Result{}
	for _, r := range runs {
		if byMachine[r.Machine] == nil {
			names = append(names, r.Machine)
		}
		byMachine[r.Machine] = append(byMachine[r.Machine], r)
	}
	for _, name := range names {
		list := byMachine[name]
		row := []string{fmt.Sprintf("| %s (%s) | %d", name, list[0].Accel, len(list))}
		for _, at := range []func(Times) float64{
			func(t Times) float64 { return t.Init },
			func(t Times) float64 { return t.FirstFinding },
			func(t Times) float64 { return t.ReportEnd },
			func(t Times) float64 { return t.End },
		} {
			row = append(row, medianSince(list, at))
		}
		if _, err := fmt.Fprintln(w, strings.Join(row, " | ")+" |"); err != nil {
			return err
		}
	}
	return nil
}

// medianSince is the median time from the kernel's start to a point, of the
// runs that reached both.
func medianSince(runs []*Result, at func(Times) float64) string {
	var s []float64
	for _, r := range runs {
		if t := at(r.Times); t > 0 && r.Times.Kernel > 0 {
			s = append(s, t-r.Times.Kernel)
		}
	}
	if len(s) == 0 {
		return "not reached"
	}
	slices.Sort(s)
	mid := s[len(s)/2]
	if len(s)%2 == 0 {
		mid = (s[len(s)/2-1] + mid) / 2
	}
	return fmt.Sprintf("%.1f s", mid)
}
