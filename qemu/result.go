package qemu

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Result is a judged run.
type Result struct {
	Version     int      `json:"version"` // of this format: 1
	Machine     string   `json:"machine"`
	Image       Image    `json:"image"`
	Emulator    Version  `json:"emulator"`
	Accel       Accel    `json:"accel"`
	AccelReason string   `json:"accel_reason"`
	Argv        []string `json:"argv"`
	Exit        Exit     `json:"exit"`
	Times       Times    `json:"times"`
	Checks      []Check  `json:"checks"`
	Logs        string   `json:"logs,omitempty"` // directory that holds the run's logs
}

// Check is one judged expectation.
type Check struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	Detail string `json:"detail"` // what was seen, or why it was skipped
}

// Status is the outcome of a check.
type Status string

// The outcomes. Skip means that the expectation can't be met or missed here,
// and is never counted as a pass.
const (
	Pass Status = "pass"
	Fail Status = "fail"
	Skip Status = "skip"
)

// OK reports whether no check failed. Skipped checks don't count: see Count.
func (r *Result) OK() bool { return r.Count(Fail) == 0 }

// Count counts the checks with a status.
func (r *Result) Count(s Status) int {
	n := 0
	for _, c := range r.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// WriteJSON writes the result as indented JSON.
func (r *Result) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the result as a table for a person.
func (r *Result) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "machine %s: QEMU %s, %s (%s)\n", r.Machine, r.Emulator, r.Accel, r.AccelReason)
	for _, c := range r.Checks {
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", strings.ToUpper(string(c.Status)), c.ID, c.Detail)
	}
	fmt.Fprintf(tw, "%d passed, %d failed, %d skipped", r.Count(Pass), r.Count(Fail), r.Count(Skip))
	if t := r.Times; t.Kernel > 0 {
		for _, p := range []struct {
			name string
			at   float64
		}{{"init", t.Init}, {"first finding", t.FirstFinding}, {"end", t.End}} {
			if p.at > 0 {
				fmt.Fprintf(tw, "; kernel start to %s %.1f s", p.name, p.at-t.Kernel)
			}
		}
	}
	fmt.Fprintln(tw)
	return tw.Flush()
}
