package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mkp2pimg/internal/benchview"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/measure"
)

// A series is a figure of one pair over the runs of a node, the oldest first.
type series struct {
	Pair     farm.Pair // of the last run that has it
	Name     string    // "GPU 0 → GPU 1"
	Unit     string
	Points   []point
	Base     *farm.Baseline
	Low      float64 // limits of Base
	High     float64
	IsOut    bool // the last point is beyond the limits, or was not verified
	Key      judge.Key
	dayFirst time.Time // of the plot's axis
	dayLast  time.Time
}

// point is a figure of one run. It is NaN if the data was not verified.
type point struct {
	At      time.Time // the run's night
	Value   float64
	Run     string
	Verdict string
}

// Known tells whether the point is a figure.
func (p point) Known() bool { return !math.IsNaN(p.Value) }

// Last is the newest point.
func (s series) Last() point { return s.Points[len(s.Points)-1] }

// The drawing in units of its view box.
const (
	plotWidth, plotHeight   = 400, 190
	plotLeft, plotRight     = 40, 10
	plotTop, plotBottom     = 10, 24
	innerWidth, innerHeight = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

// SVG draws a series: figure over nights from zero up, with the range that is
// normal as a band and the ceiling dashed. Figures beyond the band are rings, runs
// whose data was not verified crosses, and both lead to the run. Colours come from
// the style of the page; all that is said in colour is said by shape too.
func (s series) SVG() template.HTML {
	top := s.Pair.Ceiling
	if s.Unit != measure.GBps {
		top = 0
	}
	for _, p := range s.Points {
		if !math.IsNaN(p.Value) {
			top = max(top, p.Value)
		}
	}
	if s.Base != nil {
		top = max(top, s.Base.Median)
	}
	step := benchview.Nice(top / 4)
	ticks := int(math.Ceil(top / step * 1.02)) // few, whatever top is
	top = step * float64(ticks)
	span := max(s.dayLast.Sub(s.dayFirst).Hours(), 24)
	x := func(at time.Time) float64 { return plotLeft + innerWidth*at.Sub(s.dayFirst).Hours()/span }
	y := func(v float64) float64 { return plotTop + innerHeight*(1-min(max(v/top, 0), 1)) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(s.Words()))
	if s.Base != nil {
		high, low := y(s.High), y(s.Low)
		fmt.Fprintf(&b, `<rect class="band" x="%d" y="%.1f" width="%d" height="%.1f"/>`, plotLeft, high, innerWidth, max(low-high, 1))
		fmt.Fprintf(&b, `<line class="median" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plotLeft, plotLeft+innerWidth, y(s.Base.Median), y(s.Base.Median))
	}
	for i := range ticks + 1 {
		v := step * float64(i)
		fmt.Fprintf(&b, `<line class="axis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text class="end" x="%d" y="%.1f">%g</text>`,
			plotLeft, plotLeft+innerWidth, y(v), y(v), plotLeft-6, y(v)+4, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text><text class="end" x="%d" y="%d">%s</text>`,
		plotLeft, plotHeight-6, s.dayFirst.Format(time.DateOnly), plotLeft+innerWidth, plotHeight-6, s.dayLast.Format(time.DateOnly))
	if c := s.Pair.Ceiling; c > 0 && s.Unit == measure.GBps {
		fmt.Fprintf(&b, `<line class="ceiling" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, plotLeft, plotLeft+innerWidth, y(c), y(c))
	}
	s.line(&b, x, y)
	s.marks(&b, x, y)
	b.WriteString("</svg>")
	return template.HTML(b.String()) //nolint:gosec // all text in it was escaped
}

// line draws the verified figures; where one is missing the line is broken.
func (s series) line(b *strings.Builder, x func(time.Time) float64, y func(float64) float64) {
	var points []byte
	n := 0
	end := func() {
		if n > 1 {
			fmt.Fprintf(b, `<polyline points="%s"/>`, points)
		}
		points, n = points[:0], 0
	}
	for _, p := range s.Points {
		if math.IsNaN(p.Value) {
			end()
			continue
		}
		if n++; n > 1 {
			points = append(points, ' ')
		}
		points = strconv.AppendFloat(points, x(p.At), 'f', 1, 64)
		points = append(points, ',')
		points = strconv.AppendFloat(points, y(p.Value), 'f', 1, 64)
	}
	end()
}

// marks draws the last point, and those that are remarkable as links.
func (s series) marks(b *strings.Builder, x func(time.Time) float64, y func(float64) float64) {
	for i, p := range s.Points {
		switch {
		case math.IsNaN(p.Value):
			fmt.Fprintf(b, `<a href="%s"><title>%s: %s</title><path class="cross" d="M%.1f %dm-4-4l8 8m0-8l-8 8"/></a>`,
				html.EscapeString(runPath(p.Run)), p.At.Format(time.DateOnly), html.EscapeString(p.Verdict), x(p.At), plotTop+innerHeight-5)
		case s.out(p.Value):
			fmt.Fprintf(b, `<a href="%s"><title>%s: %s %s</title><circle class="out" cx="%.1f" cy="%.1f" r="3.5"/></a>`,
				html.EscapeString(runPath(p.Run)), p.At.Format(time.DateOnly), figure(p.Value, s.Unit), s.Unit, x(p.At), y(p.Value))
		case i == len(s.Points)-1:
			fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%.1f" r="3"/>`, x(p.At), y(p.Value))
		}
	}
}

// out tells whether a figure is beyond what is normal.
func (s series) out(v float64) bool {
	return s.Base != nil && (v < s.Low || v > s.High)
}

// Words says what the plot shows.
func (s series) Words() string {
	last := s.Last()
	text := fmt.Sprintf("%s, %s %s, %d nights", s.Name, s.Pair.Direction, s.Pair.Method, len(s.Points))
	if s.Unit == measure.Nanoseconds {
		text = fmt.Sprintf("%s, latency, %d nights", s.Name, len(s.Points))
	}
	if math.IsNaN(last.Value) {
		text += ": last " + last.Verdict
	} else {
		text += fmt.Sprintf(": last %s %s", figure(last.Value, s.Unit), s.Unit)
	}
	if s.Base != nil {
		text += fmt.Sprintf(", normal %s to %s", figure(s.Low, s.Unit), figure(s.High, s.Unit))
	}
	return text
}

// absurd is more than a figure can be, in any of the units. A report may claim
// anything, and a drawing has to end.
const absurd = 1e12

// allSeries are the series of a way, or of the latencies if w is zero, in the
// order of the pairs; runs are the newest first.
func allSeries(runs []farm.Run, base []farm.Baseline, w way) []series {
	known := make(map[judge.Key]*farm.Baseline, len(base))
	for i := range base {
		known[judge.Key(base[i].Key)] = &base[i]
	}
	index := map[judge.Key]int{}
	var all []series
	var first, last time.Time
	for _, r := range slices.Backward(runs) {
		at, err := time.Parse(time.DateOnly, r.Night)
		if err != nil || r.Summary == nil {
			continue
		}
		if first.IsZero() {
			first = at
		}
		last = at
		for _, p := range r.Summary.Pairs {
			key, value, unit := judge.Bandwidth(p), p.GBps, measure.GBps
			switch {
			case w == way{}:
				if p.LatencyNS == 0 {
					continue
				}
				key, value, unit = judge.Latency(p), p.LatencyNS, measure.Nanoseconds
			case wayOf(p) != w:
				continue
			}
			if !verified(p) || value <= 0 || value > absurd {
				value = math.NaN()
			}
			if p.Ceiling > absurd {
				p.Ceiling = 0
			}
			i, ok := index[key]
			if !ok {
				i = len(all)
				index[key] = i
				all = append(all, series{Key: key, Unit: unit})
			}
			all[i].Pair = p
			all[i].Points = append(all[i].Points, point{at, value, r.ID, p.Verdict})
		}
	}
	for i := range all {
		s := &all[i]
		s.dayFirst, s.dayLast = first, last
		if b := known[s.Key]; b != nil {
			s.Base = b
			s.Low, s.High = judge.Limits(*b)
		}
		v := s.Last().Value
		s.IsOut = math.IsNaN(v) || s.out(v)
	}
	return all
}

// sparkline draws parts of the ceiling in percent over nights, the oldest first;
// NaN for nights without. The scale is from 0 to 100.
func sparkline(worst []float64) template.HTML {
	const width, height, pad = 120, 26, 3
	last, n := -1, 0
	for i, v := range worst {
		if !math.IsNaN(v) {
			last, n = i, n+1
		}
	}
	if n == 0 {
		return ""
	}
	step := float64(width-2*pad) / float64(max(len(worst)-1, 1))
	x := func(i int) float64 { return pad + step*float64(i) }
	y := func(percent float64) float64 { return height - pad - (height-2*pad)*min(max(percent, 0), 100)/100 }
	b := make([]byte, 0, 512)
	b = fmt.Appendf(b, `<svg class="spark" viewBox="0 0 %d %d" role="img" aria-label="%d nights, last %.0f %%"><path class="floor" d="M0 %d.5H%d"/>`,
		width, height, n, worst[last], height-1, width)
	open := false
	for i, v := range worst {
		switch missing := math.IsNaN(v); {
		case missing && open:
			b, open = append(b, `"/>`...), false
			continue
		case missing:
			continue
		case open:
			b = append(b, ' ')
		default:
			b, open = append(b, `<polyline points="`...), true
		}
		b = strconv.AppendFloat(b, x(i), 'f', 1, 64)
		b = append(b, ',')
		b = strconv.AppendFloat(b, y(v), 'f', 1, 64)
	}
	if open {
		b = append(b, `"/>`...)
	}
	b = fmt.Appendf(b, `<circle cx="%.1f" cy="%.1f" r="2.2"/></svg>`, x(last), y(worst[last]))
	return template.HTML(b) //nolint:gosec // numbers only
}
