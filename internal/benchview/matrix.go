// Package benchview shows what p2pbw measured: matrices on a terminal, a page of
// HTML that needs nothing else, and CSV. It shows a bandwidth only where the data
// was verified; elsewhere the word for what was found.
package benchview

import (
	"fmt"
	"math"
	"slices"

	"mkp2pimg/internal/measure"
)

// matrix is one quantity of all ordered pairs: a row for each GPU whose engines
// move the data, a column for each GPU that owns the memory.
type matrix struct {
	Title string // "write, CE, GB/s"
	Long  string // the same in words
	GPUs  []string
	Cells [][]cell
}

// cell is one ordered pair in a matrix.
type cell struct {
	Text string
	// Heat is how good the figure is, from 0 to 1: its part of the path's ceiling,
	// or of the best in the matrix where no ceiling is known; NaN without a figure.
	Heat    float64
	Verdict measure.Verdict // "" for no pair
	Hint    string          // in words
}

// quantity is what a matrix shows.
type quantity struct {
	measure.Quantity
	measure.Direction
	measure.Method
	measure.Load
	long string
}

// quantities are the matrices, in their order, of which a result may have some.
var quantities = []quantity{
	{measure.Bandwidth, measure.Write, measure.CE, measure.Alone, "write by the copy engine"},
	{measure.Bandwidth, measure.Read, measure.CE, measure.Alone, "read by the copy engine"},
	{measure.Bandwidth, measure.Write, measure.SM, measure.Alone, "write by stores of a kernel"},
	{measure.Bandwidth, measure.Read, measure.SM, measure.Alone, "read by loads of a kernel"},
	{measure.Bandwidth, measure.Write, measure.CE, measure.Total, "both write at once, sum of both"},
	{measure.Bandwidth, measure.Read, measure.CE, measure.Total, "both read at once, sum of both"},
	{measure.Bandwidth, measure.Write, measure.SM, measure.Total, "both store at once, sum of both"},
	{measure.Bandwidth, measure.Read, measure.SM, measure.Total, "both load at once, sum of both"},
	{measure.Bandwidth, measure.Write, measure.Staged, measure.Alone, "write through host memory, peer access off"},
	{measure.LoadLatency, measure.Read, measure.SM, measure.Alone, "dependent load, there and back"},
	{measure.FlagLatency, measure.Write, measure.SM, measure.Alone, "flag to the peer and its answer"},
	{measure.IssueRate, measure.Write, measure.CE, measure.Alone, "copies of 16 bytes issued, no latency"},
}

// short names the quantity in a few words: "write, CE".
func (q quantity) short() string {
	var what string
	switch q.Quantity {
	case measure.LoadLatency:
		what = "load latency"
	case measure.FlagLatency:
		what = "flag latency"
	case measure.IssueRate:
		what = "issue rate"
	default:
		what = string(q.Direction)
	}
	switch q.Method {
	case measure.CE:
		what += ", CE"
	case measure.SM:
		what += ", SM"
	default:
		what += ", " + string(q.Method)
	}
	if q.Load != measure.Alone {
		what += ", " + string(q.Load)
	}
	return what
}

// in returns the figure of a pair.
func (q quantity) in(ms []measure.Measurement) (measure.Measurement, bool) {
	i := slices.IndexFunc(ms, func(m measure.Measurement) bool {
		return m.Quantity == q.Quantity && m.Direction == q.Direction && m.Method == q.Method && m.Load == q.Load
	})
	if i < 0 {
		return measure.Measurement{}, false
	}
	return ms[i], true
}

// gpus are the addresses of the GPUs of a result, in the driver's order.
func gpus(r *measure.Result) []string {
	var all []string
	if r.Inventory != nil {
		for _, g := range r.Inventory.GPUs {
			all = append(all, g.BDF)
		}
		return all
	}
	for _, p := range r.Pairs {
		for _, g := range []string{p.Initiator, p.Peer} {
			if !slices.Contains(all, g) {
				all = append(all, g)
			}
		}
	}
	slices.Sort(all)
	return all
}

// matrices are those that a result has figures or verdicts for.
func matrices(r *measure.Result) []matrix {
	all := gpus(r)
	if len(r.Pairs) == 0 {
		return nil
	}
	var out []matrix
	for i, q := range quantities {
		unit := ""
		for _, p := range r.Pairs {
			if m, ok := q.in(p.Measurements); ok {
				unit = m.Unit
			}
		}
		// The first two say what came of each pair, whatever was measured.
		if unit == "" {
			if i > 1 {
				continue
			}
			unit = measure.GBps
		}
		m := matrix{Title: q.short() + ", " + unit, Long: q.long + ", " + unit, GPUs: all}
		for _, a := range all {
			var row []cell
			for _, b := range all {
				row = append(row, q.cell(r.Pairs, a, b))
			}
			m.Cells = append(m.Cells, row)
		}
		m.heat(q.Quantity == measure.LoadLatency || q.Quantity == measure.FlagLatency)
		out = append(out, m)
	}
	return out
}

// words stand in the place of a figure that would mislead.
var words = map[measure.Verdict]string{
	measure.WrongData: "WRONG", measure.Hang: "HANG", measure.Unusable: "none", measure.Inconclusive: "?",
}

// cell returns what is to be shown of a pair.
func (q quantity) cell(pairs []measure.Pair, a, b string) cell {
	i := slices.IndexFunc(pairs, func(p measure.Pair) bool { return p.Initiator == a && p.Peer == b })
	if i < 0 {
		return cell{Text: "-", Heat: math.NaN()}
	}
	p := pairs[i]
	verdict, reason := p.VerdictOf(q.Direction, q.Method)
	c := cell{Verdict: verdict, Heat: math.NaN(), Hint: fmt.Sprintf("%s to %s: %s", a, b, reason)}
	part := 0.0
	if w, ok := way(p, q.Direction, q.Method); ok && q.Quantity == measure.Bandwidth && q.Load == measure.Alone {
		part = w.OfCeiling
	}
	if q.Method == measure.Staged {
		c.Hint = fmt.Sprintf("%s to %s through host memory: %s", a, b, reason)
	}
	if word, ok := words[c.Verdict]; ok {
		c.Text = word
		return c
	}
	m, ok := q.in(p.Measurements)
	if !ok {
		c.Text, c.Verdict = "-", ""
		return c
	}
	c.Text = number(m.Median, m.Unit)
	c.Heat = -m.Median // until all are known, see heat
	if part > 0 {
		c.Heat = min(part, 1)
	}
	return c
}

// way returns the verdict on a way of a pair.
func way(p measure.Pair, d measure.Direction, m measure.Method) (measure.Way, bool) {
	i := slices.IndexFunc(p.Ways, func(w measure.Way) bool { return w.Direction == d && w.Method == m })
	if i < 0 {
		return measure.Way{}, false
	}
	return p.Ways[i], true
}

// heat turns the figures of pairs without a ceiling, negative so far, into parts
// of the best: of the largest, or of the least if less is better.
func (m *matrix) heat(less bool) {
	best := 0.0
	for _, row := range m.Cells {
		for _, c := range row {
			if v := -c.Heat; v > 0 && (best == 0 || v > best != less) {
				best = v
			}
		}
	}
	for _, row := range m.Cells {
		for i := range row {
			if v := -row[i].Heat; v > 0 {
				row[i].Heat = v / best
				if less {
					row[i].Heat = best / v
				}
			}
		}
	}
}

// number writes a figure as short as its unit allows.
func number(v float64, unit string) string {
	switch unit {
	case measure.GBps:
		return fmt.Sprintf("%.1f", v)
	case measure.Nanoseconds:
		return fmt.Sprintf("%.0f", v)
	}
	for _, s := range []struct {
		size   float64
		letter string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= s.size {
			return fmt.Sprintf("%.1f%s", v/s.size, s.letter)
		}
	}
	return fmt.Sprintf("%.0f", v)
}
