package benchview

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"words":  func(v checks.Verdict) string { return strings.ToUpper(strings.ReplaceAll(string(v), "-", " ")) },
	"lines":  func(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") },
	"pair":   func(p [2]string) string { return p[0] + " to " + p[1] },
	"class":  cell.class,
	"number": number,
	"name":   name,
	"bytes":  bytesOf,
	"figure": trafficFigure,
}).Parse(pageText))

// Report is everything that a page shows.
type Report struct {
	Verdict checks.Verdict
	Reason  string
	// Machine are lines that describe it: a word and what it stands for.
	Machine [][2]string
	// Findings are those to show; passes are left out by the caller.
	Findings   []checks.Finding
	Result     *measure.Result  // nil if nothing was measured
	Comparison *arms.Comparison // nil if nothing was compared
}

// gpuRow is a GPU by itself.
type gpuRow struct {
	Index               int
	BDF, Name           string
	H2D, D2H, Local     string
	Verdict             measure.Verdict
	Reason              string
	Clock, Temp, Memory string
}

// pairRow is what else is known of an ordered pair.
type pairRow struct {
	From, To   int
	Verdict    measure.Verdict
	Reason     string
	Ceiling    string
	OnOff      string // of the copy engine's write
	Reach      string
	Atomics    string
	Link       string // of the initiator under load
	Verify     string
	Remarkable []string
}

// WriteHTML writes a page that needs nothing else: no script, no file, no network.
// It follows the reader's choice of dark or light. Equal reports give equal bytes.
func (r Report) WriteHTML(w io.Writer) error {
	data := struct {
		Report
		GPUs     []gpuRow
		Matrices []matrix
		Plots    []plot
		Pairs    []pairRow
		Totals   []arms.Total
		Last     string
	}{Report: r}
	if r.Result != nil {
		data.GPUs, data.Matrices, data.Plots, data.Pairs = gpuRows(r.Result), matrices(r.Result), plots(r.Result), pairRows(r.Result)
	}
	if r.Comparison != nil && len(r.Comparison.Arms) > 0 {
		data.Totals = ordered(r.Comparison.Totals())
		data.Last = r.Comparison.Arms[len(r.Comparison.Arms)-1].Arm
	}
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// class is the style of a cell: its verdict, and how warm its figure is in tenths.
func (c cell) class() string {
	var classes []string
	if c.Verdict != "" && c.Verdict != measure.OK {
		classes = append(classes, string(c.Verdict))
	}
	if !math.IsNaN(c.Heat) {
		classes = append(classes, fmt.Sprintf("h%d", int(10*min(max(c.Heat, 0), 1))))
	}
	return strings.Join(classes, " ")
}

func gpuRows(r *measure.Result) []gpuRow {
	if r.Inventory == nil {
		return nil
	}
	var rows []gpuRow
	for i, g := range r.Inventory.GPUs {
		row := gpuRow{Index: i, BDF: g.BDF, Name: g.Name, Verdict: measure.Inconclusive, Reason: "not measured",
			H2D: deviceFigure(r, g.BDF, measure.H2D), D2H: deviceFigure(r, g.BDF, measure.D2H), Local: deviceFigure(r, g.BDF, measure.Local)}
		if g.Memory > 0 {
			row.Memory = fmt.Sprintf("%.1f", float64(g.Memory)/(1<<30))
		}
		for _, d := range r.Devices {
			if d.BDF != g.BDF {
				continue
			}
			row.Verdict, row.Reason = d.Verdict, d.Reason
			if d.Watch == nil {
				continue
			}
			for _, s := range d.Watch.Sensors {
				if s.BDF == g.BDF && s.SMClock != nil {
					row.Clock = fmt.Sprint(*s.SMClock)
				}
				if s.BDF == g.BDF && s.Temperature != nil {
					row.Temp = fmt.Sprint(*s.Temperature)
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func pairRows(r *measure.Result) []pairRow {
	index := map[string]int{}
	for i, g := range gpus(r) {
		index[g] = i
	}
	var rows []pairRow
	for _, p := range r.Pairs {
		row := pairRow{From: index[p.Initiator], To: index[p.Peer], Verdict: p.Verdict, Reason: p.Reason}
		if c := p.Ceiling; c != nil {
			row.Ceiling = fmt.Sprintf("%.1f / %.1f, %s", c.WriteGBps, c.ReadGBps, c.Basis)
		}
		if w, ok := way(p, measure.Write, measure.CE); ok && w.OnOff > 0 {
			row.OnOff = fmt.Sprintf("%.2f", w.OnOff)
		}
		if h := p.Reach; h != nil && h.Memory > 0 {
			row.Reach = fmt.Sprintf("%.1f of %.1f GiB", float64(h.Size)/(1<<30), float64(h.Memory)/(1<<30))
		}
		if a := p.Atomics; a != nil {
			switch {
			case a.Work():
				row.Atomics = "work"
			case a.Error != "":
				row.Atomics = a.Error
			default:
				row.Atomics = fmt.Sprintf("lost: %d of %d", a.Got, a.Want)
			}
		}
		if p.Seconds > 0 {
			row.Verify = fmt.Sprintf("%.1f of %.1f s", p.VerifySeconds, p.Seconds)
		}
		if p.Watch != nil {
			for _, l := range p.Watch.Links {
				if l.BDF == p.Initiator && len(l.Seen) > 0 {
					row.Link = fmt.Sprintf("%s x%d", l.Seen[0].Speed, l.Seen[0].Width)
				}
			}
			row.Remarkable = p.Watch.Kernel
		}
		rows = append(rows, row)
	}
	return rows
}
