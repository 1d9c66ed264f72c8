package benchview

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
)

// Options adjust the text.
type Options struct {
	Width int  // columns; 80 when zero
	Color bool // ANSI colours; without them marks say the same
}

// level is a step of the colour scale: figures from a part of the ceiling on.
type level struct {
	from  float64
	style string // ANSI attributes, of the eight colours that every console has
	name  string
}

var levels = []level{{0.85, "1;32", "85 %"}, {0.65, "32", "65 %"}, {0.4, "33", "40 %"}, {0, "31", "less"}}

func paint(on bool, style, text string) string {
	if !on || style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// style returns the colour of a cell.
func (c cell) style() string {
	switch {
	case c.Verdict == measure.Inconclusive:
		return "1;35"
	case words[c.Verdict] != "":
		return "1;31"
	case math.IsNaN(c.Heat):
		return ""
	}
	for _, l := range levels {
		if c.Heat >= l.from {
			return l.style
		}
	}
	return ""
}

// slowMark stands behind the figure of a pair that is slow.
const slowMark = "!"

// WriteResult writes the GPUs, a matrix for each quantity, and what several pairs
// reach at once. The text is plain ASCII.
func WriteResult(w io.Writer, r *measure.Result, opt Options) error {
	opt.Width = cmp.Or(opt.Width, 80)
	var b bytes.Buffer // which takes everything
	writeGPUs(&b, r)
	if all := matrices(r); all != nil {
		writeMatrices(&b, all, opt)
	}
	writeTraffic(&b, r)
	_, err := w.Write(b.Bytes())
	return err
}

func writeGPUs(b *bytes.Buffer, r *measure.Result) {
	if r.Inventory == nil {
		for i, g := range gpus(r) {
			fmt.Fprintf(b, "GPU %d  %s\n", i, g)
		}
		return
	}
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "GPU\taddress\tname\tH2D\tD2H\tlocal, GB/s")
	for i, g := range r.Inventory.GPUs {
		fmt.Fprintf(tw, "%d\t%s\t%s", i, g.BDF, g.Name)
		for _, d := range []measure.Direction{measure.H2D, measure.D2H, measure.Local} {
			fmt.Fprintf(tw, "\t%s", deviceFigure(r, g.BDF, d))
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush() // into a buffer
}

// deviceFigure returns the bandwidth of a GPU by itself, "-" if it was not
// measured, or what was found in place of right data.
func deviceFigure(r *measure.Result, bdf string, d measure.Direction) string {
	for _, dev := range r.Devices {
		if dev.BDF != bdf {
			continue
		}
		if word, ok := words[dev.Verdict]; ok {
			return word
		}
		q := quantity{Quantity: measure.Bandwidth, Direction: d, Method: measure.CE}
		if m, ok := q.in(dev.Measurements); ok {
			return number(m.Median, m.Unit)
		}
	}
	return "-"
}

// Widths of the columns of a matrix.
const (
	nameWidth = 4
	cellWidth = 7
	gap       = 3 // between matrices
)

// writeMatrices writes matrices, as many beside each other as there is room for,
// and what their rows, columns and marks are.
func writeMatrices(b *bytes.Buffer, all []matrix, opt Options) {
	width := nameWidth + cellWidth*len(all[0].GPUs)
	for _, m := range all {
		width = max(width, len(m.Title))
	}
	beside := max(1, (opt.Width+gap)/(width+gap))
	for len(all) > 0 {
		some := all[:min(beside, len(all))]
		all = all[len(some):]
		var blocks [][]string
		for _, m := range some {
			blocks = append(blocks, m.lines(opt))
		}
		b.WriteByte('\n')
		for i := range blocks[0] {
			var line strings.Builder
			for j, block := range blocks {
				line.WriteString(block[i])
				if j < len(blocks)-1 {
					line.WriteString(strings.Repeat(" ", width+gap-visible(block[i])))
				}
			}
			b.WriteString(strings.TrimRight(line.String(), " "))
			b.WriteByte('\n')
		}
	}
	b.WriteString("\nrow: the GPU that moves the data, column: the GPU that owns the memory.\n" +
		"CE: copy engine, SM: a kernel; staged: through host memory. Data verified by\nits owner; " +
		"WRONG, HANG, none (no access), ? (not known) stand where it was not.\n")
	if opt.Color {
		b.WriteString("Part of what the path can carry, or of the best if that is not known:")
		for _, l := range levels {
			b.WriteString(" " + paint(true, l.style, l.name))
		}
		b.WriteByte('\n')
	}
	b.WriteString(slowMark + " behind a figure: slower than it should be.\n")
}

// visible is the number of columns of a text without its colours.
func visible(s string) int {
	n := 0
	for s != "" {
		if s[0] == '\x1b' {
			_, s, _ = strings.Cut(s, "m")
			continue
		}
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
		n++
	}
	return n
}

// lines are the lines of a matrix, all matrices of a result have the same number.
func (m matrix) lines(opt Options) []string {
	out := []string{m.Title}
	var line strings.Builder
	fmt.Fprintf(&line, "%*s", nameWidth, "")
	for i := range m.GPUs {
		fmt.Fprintf(&line, "%*d ", cellWidth-1, i)
	}
	out = append(out, line.String())
	for i, row := range m.Cells {
		line.Reset()
		fmt.Fprintf(&line, "%*d", nameWidth, i)
		for _, c := range row {
			mark := " "
			if c.Verdict == measure.Slow {
				mark = slowMark
			}
			line.WriteString(paint(opt.Color, c.style(), fmt.Sprintf("%*s", cellWidth-1, c.Text)) + mark)
		}
		out = append(out, line.String())
	}
	return out
}

func writeTraffic(b *bytes.Buffer, r *measure.Result) {
	if len(r.Traffic) == 0 {
		return
	}
	b.WriteString("\nseveral pairs at once, GB/s in all\n")
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, t := range r.Traffic {
		fmt.Fprintf(tw, "  %s\t%d pairs\t%s\n", t.Name(), len(t.Flows), trafficFigure(t))
	}
	_ = tw.Flush() // into a buffer
}

// trafficFigure is the sum of traffic, or the word for what was found instead.
func trafficFigure(t measure.Traffic) string {
	if word, ok := words[t.Verdict]; ok {
		return word
	}
	if t.Sum == nil {
		return "-"
	}
	s := number(t.Sum.Median, t.Sum.Unit)
	if t.Verdict == measure.Slow {
		s += slowMark
	}
	return s
}

// WriteComparison writes what differs between arms, and their figures side by
// side: the median over all pairs, and how the last arm compares.
func WriteComparison(w io.Writer, c arms.Comparison) error {
	var b bytes.Buffer // which takes everything
	b.WriteString("A/B in one boot\n")
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, a := range c.Arms {
		came := a.Reason
		if a.Verdict != "" {
			came = string(a.Verdict)
		}
		fmt.Fprintf(tw, "  %s\t%s\t%s\n", a.Arm, a.Paths, came)
	}
	_ = tw.Flush() // into a buffer
	last := ""
	if n := len(c.Arms); n > 0 {
		last = c.Arms[n-1].Arm
	}
	for _, a := range c.Arms {
		for _, d := range a.Differs {
			fmt.Fprintf(&b, "  %s against %s: %s\n", a.Arm, last, d)
		}
	}
	for _, l := range c.Left {
		fmt.Fprintf(&b, "  %s left out: %s\n", l.Arm, l.Why)
	}
	if len(c.Rows) == 0 {
		_, err := w.Write(b.Bytes())
		return err
	}
	b.WriteByte('\n')
	tw = tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "median of the pairs\t")
	for _, a := range c.Arms {
		fmt.Fprintf(tw, "%s\t", a.Arm)
	}
	fmt.Fprintln(tw)
	totals := ordered(c.Totals())
	for _, t := range totals {
		fmt.Fprintf(tw, "%s\t", name(t))
		for _, cell := range t.Cells {
			if cell.Pairs == 0 {
				fmt.Fprint(tw, "-\t")
				continue
			}
			fmt.Fprintf(tw, "%s\t", number(cell.Median, t.Unit))
		}
		fmt.Fprintln(tw)
	}
	_ = tw.Flush() // into a buffer
	b.WriteByte('\n')
	for _, t := range totals {
		for i, cell := range t.Cells {
			if cell.Compared > 0 {
				fmt.Fprintf(&b, "%s: %s is %s\n", name(t), last, ratio(cell, c.Arms[i].Arm))
			}
		}
	}
	b.WriteString("Only figures whose data was verified in their own arm are compared.\n")
	_, err := w.Write(b.Bytes())
	return err
}

// ratio words a ratio: "1.25 times p2p-mailbox (1.21 to 1.30, 2 pairs)".
func ratio(c arms.TotalCell, than string) string {
	text := fmt.Sprintf("%.2f times %s (%.2f to %.2f, %d pairs", c.Ratio, than, c.Least, c.Most, c.Compared)
	if c.Clear < c.Compared {
		text += fmt.Sprintf("; %d within the spread", c.Compared-c.Clear)
	}
	return text + ")"
}

// name is what a total is of, with its unit.
func name(t arms.Total) string {
	return quantity{t.Quantity, t.Direction, t.Method, t.Load, ""}.short() + ", " + t.Unit
}

// ordered sorts totals as the matrices are.
func ordered(all []arms.Total) []arms.Total {
	rank := func(t arms.Total) int {
		return slices.IndexFunc(quantities, func(q quantity) bool {
			return t.Quantity == q.Quantity && t.Direction == q.Direction && t.Method == q.Method && t.Load == q.Load
		})
	}
	slices.SortStableFunc(all, func(a, b arms.Total) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}
