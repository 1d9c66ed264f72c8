package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// maxGPUs bounds the matrices. A report may claim any number of GPUs; machines
// with more than 16 are not built.
const maxGPUs = 32

// A way is a direction and a method, as [farm.Pair] has them.
type way struct{ Direction, Method string }

// ways are in the order in which they are shown.
var ways = []way{
	{string(measure.Write), string(measure.CE)}, {string(measure.Read), string(measure.CE)},
	{string(measure.Write), string(measure.SM)}, {string(measure.Read), string(measure.SM)},
	{string(measure.Write), string(measure.Staged)},
}

var wayWords = map[way]string{
	ways[0]: "written by the copy engine", ways[1]: "read by the copy engine",
	ways[2]: "written by stores of a kernel", ways[3]: "read by loads of a kernel",
	ways[4]: "through host memory, peer access off",
}

// String returns the name of a way in addresses and captions: "write-ce".
func (w way) String() string { return w.Direction + "-" + w.Method }

// Words says what happens, or names a way that is not known.
func (w way) Words() string {
	if words, ok := wayWords[w]; ok {
		return words
	}
	return w.String()
}

func wayOf(p farm.Pair) way { return way{p.Direction, p.Method} }

// waysOf are the ways that pairs have, the known ones first.
func waysOf(pairs []farm.Pair) []way {
	var have []way
	for _, p := range pairs {
		if w := wayOf(p); !slices.Contains(have, w) {
			have = append(have, w)
		}
	}
	rank := func(w way) int {
		if i := slices.Index(ways, w); i >= 0 {
			return i
		}
		return len(ways)
	}
	slices.SortStableFunc(have, func(a, b way) int { return rank(a) - rank(b) })
	return have
}

// gpusOf are the addresses of the GPUs of pairs, in order.
func gpusOf(pairs []farm.Pair) []string {
	seen := map[string]bool{}
	var all []string
	for _, p := range pairs {
		for _, g := range []string{p.Initiator, p.Peer} {
			if !seen[g] {
				seen[g] = true
				all = append(all, g)
			}
		}
	}
	slices.Sort(all)
	return all
}

// heat is one quantity of all ordered pairs of a node: a row for each GPU whose
// engines move the data, a column for each GPU that owns the memory.
type heat struct {
	Name string // "write, ce"
	Long string // "written by the copy engine"
	Unit string
	GPUs []string
	Rows [][]heatCell
}

// heatCell is an ordered pair in a matrix.
type heatCell struct {
	Text  string // the figure, or a word where a figure would mislead
	Mark  string // "▼" for slower than it should be
	Class string
	Hint  string
}

// spoilt are the words in place of figures whose data was not verified.
var spoilt = map[measure.Verdict]heatCell{
	measure.WrongData: {Text: "WRONG", Class: "bad"}, measure.Hang: {Text: "HANG", Class: "bad"},
	measure.Unusable: {Text: "none", Class: "bad"}, measure.Inconclusive: {Text: "?", Class: "open"},
}

// heats are the matrices of a run: bandwidths by way, then the latency.
func heats(pairs []farm.Pair) []heat {
	gpus := gpusOf(pairs)
	if len(gpus) == 0 || len(gpus) > maxGPUs {
		return nil
	}
	var all []heat
	for _, w := range waysOf(pairs) {
		m := heat{Name: w.Direction + ", " + w.Method, Long: w.Words(), Unit: measure.GBps, GPUs: gpus}
		m.fill(pairs, func(p farm.Pair) (float64, float64, bool) { return p.GBps, p.Percent() / 100, wayOf(p) == w })
		all = append(all, m)
	}
	latency := heat{Name: "latency", Long: "dependent load, there and back", Unit: measure.Nanoseconds, GPUs: gpus}
	if latency.fill(pairs, func(p farm.Pair) (float64, float64, bool) { return p.LatencyNS, 0, p.LatencyNS > 0 }) {
		best := math.Inf(1)
		for _, p := range pairs {
			if p.LatencyNS > 0 {
				best = min(best, p.LatencyNS)
			}
		}
		latency.shade(pairs, func(p farm.Pair) float64 { return best / p.LatencyNS }, func(p farm.Pair) bool { return p.LatencyNS > 0 })
		all = append(all, latency)
	}
	return all
}

// fill makes the cells of the pairs that have the quantity, and reports whether
// there is one. Shades are parts of the ceiling or, without one, of the largest.
func (m *heat) fill(pairs []farm.Pair, of func(farm.Pair) (figure, part float64, ok bool)) bool {
	m.Rows = make([][]heatCell, len(m.GPUs))
	for i := range m.Rows {
		m.Rows[i] = make([]heatCell, len(m.GPUs))
		for j := range m.Rows[i] {
			m.Rows[i][j] = heatCell{Text: "–", Hint: "not measured"}
		}
		m.Rows[i][i] = heatCell{Text: "·", Class: "self", Hint: "the same GPU"}
	}
	most, found := 0.0, false
	for _, p := range pairs {
		if v, _, ok := of(p); ok {
			found, most = true, max(most, v)
		}
	}
	for _, p := range pairs {
		v, part, ok := of(p)
		if !ok {
			continue
		}
		c := m.cell(p)
		*c = heatCell{Hint: fmt.Sprintf("%s → %s: %s", p.Initiator, p.Peer, p.Verdict)}
		if word, ok := spoilt[measure.Verdict(p.Verdict)]; ok {
			c.Text, c.Class = word.Text, word.Class
			continue
		}
		if p.Verdict == string(measure.Slow) {
			c.Mark = "▼"
		}
		c.Text = figure(v, m.Unit)
		if part == 0 && most > 0 {
			part = v / most
		} else {
			c.Hint += fmt.Sprintf(", %.0f %% of the ceiling of %s %s", p.Percent(), figure(p.Ceiling, m.Unit), m.Unit)
		}
		c.Class = shade(part)
	}
	return found
}

// shade colours the cells that hold a figure anew.
func (m *heat) shade(pairs []farm.Pair, part func(farm.Pair) float64, has func(farm.Pair) bool) {
	for _, p := range pairs {
		if c := m.cell(p); has(p) && strings.HasPrefix(c.Class, "h") {
			c.Class = shade(part(p))
		}
	}
}

func (m *heat) cell(p farm.Pair) *heatCell {
	i, _ := slices.BinarySearch(m.GPUs, p.Initiator)
	j, _ := slices.BinarySearch(m.GPUs, p.Peer)
	return &m.Rows[i][j]
}

// shade is the class of a part from 0 to 1, in tenths.
func shade(part float64) string {
	return fmt.Sprintf("h%d", int(10*min(max(part, 0), 1)))
}

// figure writes a figure as short as its unit allows.
func figure(v float64, unit string) string {
	switch {
	case unit == measure.GBps && v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case unit == measure.GBps:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
