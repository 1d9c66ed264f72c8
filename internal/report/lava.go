package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/measure"
)

// Lines before the first and after the last test case of [LAVA].
const (
	LAVAStart = "<LAVA_SIGNAL_STARTRUN mkp2pimg>"
	LAVAEnd   = "<LAVA_SIGNAL_ENDRUN mkp2pimg>"
)

// LAVA writes the results of a run as lines for a serial console, in the syntax in
// which LAVA's test shells signal theirs. A job's monitors find them by a regular
// expression; see examples/lava.
//
// There is a test case for the verdict, for each kind of finding, and, with a
// measurement, for each way of each pair of GPUs. A result is pass, fail, skip or
// unknown, where fail includes all that is worse than pass: LAVA knows nothing
// between them. An ID consists of what LAVA leaves as it is: lower-case letters,
// digits and underscores.
func LAVA(w io.Writer, run *Run) error {
	l := lava{}
	l.line(LAVAStart)
	verdict := checks.VerdictUnknown
	if run.Verdict != nil {
		verdict = run.Verdict.Verdict
	}
	l.test("verdict", map[checks.Verdict]string{
		checks.VerdictReady: "pass", checks.VerdictDegraded: "fail", checks.VerdictBlocked: "fail", checks.VerdictNoGPU: "skip",
	}[verdict])
	l.findings(run.Findings)
	if run.Result != nil {
		for _, p := range run.Result.Pairs {
			l.pair(p)
		}
	}
	l.line(LAVAEnd)
	_, err := w.Write(l.buf.Bytes())
	return err
}

type lava struct{ buf bytes.Buffer }

func (l *lava) line(s string) {
	l.buf.WriteString(s)
	l.buf.WriteByte('\n')
}

// test writes a test case. A result that is none of LAVA's is unknown.
func (l *lava) test(id, result string) { l.measured(id, result, 0, "") }

// measured writes a test case with its figure, unless that is zero.
func (l *lava) measured(id, result string, value float64, unit string) {
	if result == "" {
		result = "unknown"
	}
	figure := ""
	if value != 0 {
		figure = fmt.Sprintf(" MEASUREMENT=%s UNITS=%s", strconv.FormatFloat(value, 'f', 2, 64), unit)
	}
	l.line(fmt.Sprintf("<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=%s RESULT=%s%s>", lavaID(id), result, figure))
}

// findings writes a test case for each kind of finding, with the worst that was
// found.
func (l *lava) findings(all []checks.Finding) {
	order := []checks.Status{checks.Skip, checks.Pass, checks.Warn, checks.Unknown, checks.Fail}
	worst := map[checks.ID]checks.Status{}
	var ids []checks.ID
	for _, f := range all {
		before, seen := worst[f.ID]
		if !seen {
			ids = append(ids, f.ID)
		}
		if !seen || slices.Index(order, f.Status) > slices.Index(order, before) {
			worst[f.ID] = f.Status
		}
	}
	for _, id := range ids {
		l.test(string(id), map[checks.Status]string{
			checks.Skip: "skip", checks.Pass: "pass", checks.Warn: "fail", checks.Fail: "fail",
		}[worst[id]])
	}
}

// pair writes the ways of an ordered pair of GPUs: the bandwidth that each reached
// alone, and the latency of a load. A way whose data was not verified has no figure.
func (l *lava) pair(p measure.Pair) {
	pair := fmt.Sprintf("%s_to_%s", p.Initiator, p.Peer)
	for _, w := range p.Ways {
		result := map[measure.Verdict]string{
			measure.OK: "pass", measure.Slow: "fail", measure.Unusable: "fail", measure.Hang: "fail", measure.WrongData: "fail",
		}[w.Verdict]
		figure := func(q measure.Quantity) float64 {
			if w.Verdict != measure.OK && w.Verdict != measure.Slow {
				return 0
			}
			for _, m := range p.Measurements {
				if m.Quantity == q && m.Direction == w.Direction && m.Method == w.Method && m.Load == measure.Alone {
					return m.Median
				}
			}
			return 0
		}
		l.measured(fmt.Sprintf("%s_%s_%s", w.Direction, w.Method, pair), result, figure(measure.Bandwidth), "GB/s")
		if latency := figure(measure.LoadLatency); latency != 0 {
			l.measured("latency_"+pair, "pass", latency, "ns")
		}
	}
}

// lavaID makes an ID what LAVA would make of it.
func lavaID(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, s)
}
