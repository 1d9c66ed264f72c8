package arms

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/rm"
)

// Outcome is what came of an arm.
type Outcome struct {
	Arm
	// Skipped says why nothing was measured, empty if something was.
	Skipped string
	Options string   // that nvidia.ko was loaded with
	ACS     []string // registers written for the arm, "0000:02:00.0: 0x001d (…) -> 0x0000"
	// Survey is what the driver's resource manager answered, nil if it did not.
	Survey *rm.Survey
	Result *measure.Result // nil if nothing was measured
}

// Comparison holds arms side by side.
type Comparison struct {
	Arms []Column `json:"arms"` // in the order of the run
	Rows []Row    `json:"rows"`
	Left []Left   `json:"left_out,omitempty"` // arms that were not run
}

// Column is one arm of a comparison.
type Column struct {
	Arm     string   `json:"arm"` // its name
	Options string   `json:"options"`
	ACS     []string `json:"acs_written,omitempty"`
	// Paths counts the ordered pairs by the path that the driver grants, "2 bar1".
	Paths   string          `json:"paths"`
	Verdict measure.Verdict `json:"verdict,omitempty"`
	Reason  string          `json:"reason"`
	// Differs says in words what is not as in the last arm; empty for the last.
	Differs []string `json:"differs,omitempty"`
}

// Row is one quantity of an ordered pair of GPUs in each arm.
type Row struct {
	Key
	Cells []Cell `json:"cells"` // one per arm
}

// Key says what a row is about.
type Key struct {
	Initiator string            `json:"initiator"` // BDF
	Peer      string            `json:"peer"`      // BDF
	Quantity  measure.Quantity  `json:"quantity"`
	Direction measure.Direction `json:"direction"`
	Method    measure.Method    `json:"method"`
	Load      measure.Load      `json:"load,omitempty"`
	Unit      string            `json:"unit"`
	Size      int64             `json:"size"` // bytes per copy
}

func keyOf(p measure.Pair, m measure.Measurement) Key {
	return Key{p.Initiator, p.Peer, m.Quantity, m.Direction, m.Method, m.Load, m.Unit, m.Size}
}

// Cell is one quantity in one arm.
type Cell struct {
	// Median is zero without a figure that counts; Why says why there is none.
	Median float64 `json:"median,omitempty"`
	P5     float64 `json:"p5,omitempty"`
	P95    float64 `json:"p95,omitempty"`
	Why    string  `json:"why,omitempty"`
	Path   rm.Path `json:"path,omitempty"` // that the driver grants
	// Ratio is the median of the last arm over this one, zero if either has no
	// figure. Clear says that the ranges from p5 to p95 do not touch, so that the
	// difference is more than the spread within an arm.
	Ratio float64 `json:"ratio,omitempty"`
	Clear bool    `json:"clear,omitempty"`
}

// Compare sets the outcomes of arms side by side. A figure counts only if its
// data was verified in its own arm: what went astray quickly is no speed.
func Compare(all []Outcome, left []Left) Comparison {
	c := Comparison{Arms: []Column{}, Rows: []Row{}, Left: left}
	if len(all) == 0 {
		return c
	}
	last := all[len(all)-1]
	for i, o := range all {
		col := o.column()
		if i < len(all)-1 {
			col.Differs = differences(o, last)
		}
		c.Arms = append(c.Arms, col)
	}
	for _, o := range all {
		c.collect(o.Result)
	}
	for i := range c.Rows {
		row := &c.Rows[i]
		for _, o := range all {
			row.Cells = append(row.Cells, o.cell(row.Key))
		}
		row.relate()
	}
	return c
}

// Paths counts the ordered pairs of GPUs by the path that the driver grants: "12
// bar1, 2 nvlink".
func Paths(s *rm.Survey) string {
	count := map[string]int{}
	for _, p := range s.Pairs {
		if p.Error != "" {
			count["not told"]++
		} else {
			count[string(p.Path)]++
		}
	}
	var words []string
	for path, n := range count {
		words = append(words, fmt.Sprintf("%d %s", n, path))
	}
	slices.Sort(words)
	if words == nil {
		return "no pair"
	}
	return strings.Join(words, ", ")
}

// path returns the path that the driver grants to a pair, "" if it does not tell.
func path(s *rm.Survey, a, b string) rm.Path {
	for _, p := range s.Pairs {
		if p.A == a && p.B == b && p.Error == "" {
			return p.Path
		}
	}
	return ""
}

// column describes the arm.
func (o Outcome) column() Column {
	col := Column{Arm: o.String(), Options: o.Options, ACS: o.ACS, Paths: "not told", Reason: o.Skipped}
	if o.Survey != nil {
		col.Paths = Paths(o.Survey)
	}
	if o.Result != nil {
		col.Verdict, col.Reason = o.Result.Verdict, o.Result.Reason
	}
	return col
}

// differences are what is not as in the arm that is compared with.
func differences(o, with Outcome) []string {
	var out []string
	differ := func(what, a, b string) {
		if a != b {
			out = append(out, fmt.Sprintf("%s: %s, not %s", what, a, b))
		}
	}
	differ("modules", o.Set, with.Set)
	words := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ';' || r == '"' })
	}
	only := func(what string, these, those []string) {
		var rest []string
		for _, w := range these {
			if !slices.Contains(those, w) && w != "NVreg_RegistryDwords=" {
				rest = append(rest, strings.TrimPrefix(w, "NVreg_RegistryDwords="))
			}
		}
		if rest != nil {
			out = append(out, what+" "+strings.Join(rest, " "))
		}
	}
	if o.Options != "" && with.Options != "" {
		only("with", words(o.Options), words(with.Options))
		only("without", words(with.Options), words(o.Options))
	}
	switch {
	case o.NoACS && !with.NoACS:
		out = append(out, fmt.Sprintf("ACS redirect cleared on %d ports", len(o.ACS)))
	case !o.NoACS && with.NoACS:
		out = append(out, "ACS redirect as the machine has it")
	}
	if o.Survey != nil && with.Survey != nil {
		differ("paths", Paths(o.Survey), Paths(with.Survey))
	}
	return out
}

// collect adds the rows of a result that are not there yet.
func (c *Comparison) collect(r *measure.Result) {
	if r == nil {
		return
	}
	for _, p := range r.Pairs {
		for _, m := range p.Measurements {
			key := keyOf(p, m)
			if !slices.ContainsFunc(c.Rows, func(r Row) bool { return r.Key == key }) {
				c.Rows = append(c.Rows, Row{Key: key})
			}
		}
	}
}

// cell returns the figure of an arm.
func (o Outcome) cell(key Key) Cell {
	var c Cell
	if o.Survey != nil {
		c.Path = path(o.Survey, key.Initiator, key.Peer)
	}
	switch {
	case o.Skipped != "":
		c.Why = o.Skipped
		return c
	case o.Result == nil:
		c.Why = "not measured"
		return c
	}
	i := slices.IndexFunc(o.Result.Pairs, func(p measure.Pair) bool { return p.Initiator == key.Initiator && p.Peer == key.Peer })
	if i < 0 {
		c.Why = "pair not measured"
		return c
	}
	p := o.Result.Pairs[i]
	for _, m := range p.Measurements {
		if keyOf(p, m) != key {
			continue
		}
		if why := unverified(p, m); why != "" {
			c.Why = why
			return c
		}
		c.Median, c.P5, c.P95 = m.Median, m.P5, m.P95
		return c
	}
	c.Why = "not measured"
	if p.Verdict != measure.OK && p.Verdict != measure.Slow {
		c.Why = fmt.Sprintf("%s: %s", p.Verdict, p.Reason)
	}
	return c
}

// unverified says why a figure of a pair does not count, empty if it does.
func unverified(p measure.Pair, m measure.Measurement) string {
	v, reason := p.VerdictOf(m.Direction, m.Method)
	if v == measure.OK || v == measure.Slow {
		return ""
	}
	return fmt.Sprintf("%s: %s", v, reason)
}

// relate fills in the ratios to the last cell.
func (r *Row) relate() {
	last := r.Cells[len(r.Cells)-1]
	for i := range r.Cells[:len(r.Cells)-1] {
		c := &r.Cells[i]
		if c.Median > 0 && last.Median > 0 {
			c.Ratio = last.Median / c.Median
			c.Clear = c.P95 < last.P5 || last.P95 < c.P5
		}
	}
}

// Total is one quantity over all pairs of GPUs.
type Total struct {
	Quantity  measure.Quantity
	Direction measure.Direction
	Method    measure.Method
	Load      measure.Load
	Unit      string
	Size      int64 // bytes per copy
	Cells     []TotalCell
}

// TotalCell is one quantity over all pairs in one arm. Figures are zero without a
// pair.
type TotalCell struct {
	Pairs  int     // with a figure that counts
	Median float64 // of their medians
	// Ratio is the median of the pairs' ratios, from Least to Most, over Compared
	// pairs; Clear of them differ by more than the spread.
	Ratio, Least, Most float64
	Compared, Clear    int
}

// Totals sums the rows up over the pairs of GPUs, in the order of the rows.
func (c Comparison) Totals() []Total {
	var totals []Total
	type key struct {
		measure.Quantity
		measure.Direction
		measure.Method
		measure.Load
		Size int64
	}
	rows := map[key][]Row{}
	for _, r := range c.Rows {
		k := key{r.Quantity, r.Direction, r.Method, r.Load, r.Size}
		if rows[k] == nil {
			totals = append(totals, Total{r.Quantity, r.Direction, r.Method, r.Load, r.Unit, r.Size, nil})
		}
		rows[k] = append(rows[k], r)
	}
	for i := range totals {
		t := &totals[i]
		for arm := range c.Arms {
			t.Cells = append(t.Cells, total(rows[key{t.Quantity, t.Direction, t.Method, t.Load, t.Size}], arm))
		}
	}
	return totals
}

// total sums the cells of an arm up.
func total(rows []Row, arm int) TotalCell {
	var t TotalCell
	var medians, ratios []float64
	for _, r := range rows {
		if arm >= len(r.Cells) {
			continue // of a comparison that this package did not make
		}
		c := r.Cells[arm]
		if c.Median > 0 {
			medians = append(medians, c.Median)
		}
		if c.Ratio > 0 {
			ratios = append(ratios, c.Ratio)
		}
		if c.Clear {
			t.Clear++
		}
	}
	t.Pairs, t.Median = len(medians), measure.Summarise(medians).Median
	s := measure.Summarise(ratios)
	t.Compared, t.Ratio, t.Least, t.Most = len(ratios), s.Median, s.Min, s.Max
	return t
}
