package benchview

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"mkp2pimg/internal/measure"
)

// plot is the size sweep of one direction and method, a line for each pair.
type plot struct {
	Long  string // "write by the copy engine"
	lines []line
	// ceiling is the highest of the pairs', 0 if none is known.
	ceiling float64
}

type line struct {
	name   string // "0 to 1"
	points []point
}

type point struct {
	size int64 // bytes
	gbps float64
}

// last is the bandwidth of the largest size.
func (l line) last() float64 { return l.points[len(l.points)-1].gbps }

// plots are the size sweeps of a result, of ways whose data was verified.
func plots(r *measure.Result) []plot {
	all := gpus(r)
	var out []plot
	for _, q := range quantities {
		if q.Quantity != measure.Bandwidth || q.Load != measure.Alone {
			continue
		}
		p := plot{Long: q.long}
		for _, pair := range r.Pairs {
			if w, ok := way(pair, q.Direction, q.Method); ok && words[w.Verdict] != "" || words[pair.Verdict] != "" {
				continue
			}
			l := line{name: fmt.Sprintf("%d to %d", slices.Index(all, pair.Initiator), slices.Index(all, pair.Peer))}
			for _, m := range pair.Sweep {
				if m.Direction == q.Direction && m.Method == q.Method && m.Load == q.Load && m.Size > 0 && m.Median > 0 {
					l.points = append(l.points, point{m.Size, m.Median})
				}
			}
			if len(l.points) < 2 {
				continue
			}
			slices.SortFunc(l.points, func(a, b point) int { return int(math.Copysign(1, float64(a.size-b.size))) })
			p.lines = append(p.lines, l)
			p.ceiling = max(p.ceiling, pair.Ceiling.Of(q.Direction))
		}
		if p.lines != nil {
			out = append(out, p)
		}
	}
	return out
}

// The drawing in pixels.
const (
	plotWidth, plotHeight    = 520, 300
	plotLeft, plotRight      = 52, 78
	plotTop, plotBottom      = 14, 40
	hues                     = 6 // lines that get a colour each; of more, the extremes do
	innerWidth, innerHeight  = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	labelHeight              = 13
	sizeTicks, bandwidthTick = 6, 5 // at most
)

// SVG draws the plot: bandwidth over size, sizes in powers of two. Colours come
// from the style of the page.
func (p plot) SVG() template.HTML {
	least, most, top := int64(math.MaxInt64), int64(0), p.ceiling
	for _, l := range p.lines {
		for _, pt := range l.points {
			least, most, top = min(least, pt.size), max(most, pt.size), max(top, pt.gbps)
		}
	}
	step := Nice(top / bandwidthTick)
	ticks := int(math.Ceil(top / step * 1.02)) // few, whatever a report claims
	top = step * float64(ticks)
	span := math.Log2(float64(most)) - math.Log2(float64(least))
	x := func(size int64) float64 {
		if span == 0 {
			return plotLeft
		}
		return plotLeft + innerWidth*(math.Log2(float64(size))-math.Log2(float64(least)))/span
	}
	y := func(gbps float64) float64 { return plotTop + innerHeight*(1-gbps/top) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="bandwidth over size, %s">`+"\n",
		plotWidth, plotHeight, plotWidth, plotHeight, html.EscapeString(p.Long))
	for i := range ticks + 1 {
		v := step * float64(i)
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="end" x="%d" y="%.1f">%g</text>`+"\n",
			plotLeft, plotLeft+innerWidth, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	every := max(1, int(math.Ceil(span/sizeTicks)))
	for e := 0; float64(e) <= span+0.01; e += every {
		size := least << e
		fmt.Fprintf(&b, `<text class="middle" x="%.1f" y="%d">%s</text>`+"\n", x(size), plotTop+innerHeight+16, bytesOf(size))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">GB/s, over bytes per copy</text>`+"\n", plotLeft, plotHeight-6)
	if p.ceiling > 0 {
		fmt.Fprintf(&b, `<line class="ceiling" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f">path %.1f</text>`+"\n",
			plotLeft, plotLeft+innerWidth, y(p.ceiling), y(p.ceiling), plotLeft+4, y(p.ceiling)-4, p.ceiling)
	}
	labels := p.labels()
	for i, l := range p.lines {
		var points []string
		for _, pt := range l.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(pt.size), y(pt.gbps)))
		}
		class := "many"
		if hue, ok := labels[i]; ok {
			class = fmt.Sprintf("hue%d", hue)
		}
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"><title>%s: %.2f GB/s at %s</title></polyline>`+"\n",
			class, strings.Join(points, " "), html.EscapeString(l.name), l.last(), bytesOf(l.points[len(l.points)-1].size))
	}
	p.writeLabels(&b, labels, y)
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // all text in it was escaped
}

// labels gives the lines that are named, and the number of their colour: all of
// few, the fastest and the slowest of many.
func (p plot) labels() map[int]int {
	named := map[int]int{}
	if len(p.lines) <= hues {
		for i := range p.lines {
			named[i] = i
		}
		return named
	}
	fast, slow := 0, 0
	for i, l := range p.lines {
		if l.last() > p.lines[fast].last() {
			fast = i
		}
		if l.last() < p.lines[slow].last() {
			slow = i
		}
	}
	named[fast] = 0
	if slow != fast {
		named[slow] = 1
	}
	return named
}

// writeLabels names lines at their right end, one below the other where they
// would overlap.
func (p plot) writeLabels(b *strings.Builder, labels map[int]int, y func(float64) float64) {
	var order []int
	for i := range labels {
		order = append(order, i)
	}
	slices.SortFunc(order, func(i, j int) int {
		if p.lines[i].last() != p.lines[j].last() {
			return int(math.Copysign(1, p.lines[j].last()-p.lines[i].last()))
		}
		return i - j
	})
	lowest := 0.0
	for _, i := range order {
		at := max(y(p.lines[i].last())+4, lowest)
		lowest = at + labelHeight
		fmt.Fprintf(b, `<text class="hue%d" x="%d" y="%.1f">%s</text>`+"\n", labels[i], plotLeft+innerWidth+6, at, html.EscapeString(p.lines[i].name))
	}
}

// Nice returns 1, 2 or 5 times a power of ten, the first that is not less than v.
func Nice(v float64) float64 {
	if !(v > 0) || math.IsInf(v, 0) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= v*(1-1e-9) {
			return f * power
		}
	}
	return 10 * power
}

// bytesOf writes a size with the largest unit of which it is a whole number.
func bytesOf(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
