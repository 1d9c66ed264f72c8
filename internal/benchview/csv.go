package benchview

import (
	"encoding/csv"
	"io"
	"strconv"

	"mkp2pimg/internal/measure"
)

// columns are those of the CSV form; figures are in the unit of their row.
var columns = []string{"kind", "initiator", "peer", "quantity", "direction", "method", "load", "size_bytes", "unit",
	"median", "min", "p5", "p95", "max", "cv", "samples", "ceiling_gbps", "verdict"}

// WriteCSV writes one row for each figure: of a GPU by itself (kind gpu), a pair,
// its size sweep, or several pairs at once (traffic, with its name as initiator).
// The verdict is that of the pair's direction and method: figures are there also
// where it is not ok.
func WriteCSV(w io.Writer, r *measure.Result) error {
	c := csv.NewWriter(w)
	_ = c.Write(columns) // its errors are those of Flush
	put := func(kind, a, b string, m measure.Measurement, ceiling float64, v measure.Verdict) {
		f := func(v float64) string { return strconv.FormatFloat(v, 'g', 8, 64) }
		of := ""
		if ceiling > 0 {
			of = f(ceiling)
		}
		_ = c.Write([]string{kind, a, b, string(m.Quantity), string(m.Direction), string(m.Method), string(m.Load),
			strconv.FormatInt(m.Size, 10), m.Unit, f(m.Median), f(m.Min), f(m.P5), f(m.P95), f(m.Max), f(m.CV),
			strconv.Itoa(len(m.Samples)), of, string(v)})
	}
	for _, d := range r.Devices {
		for _, m := range d.Measurements {
			put("gpu", d.BDF, "", m, 0, d.Verdict)
		}
	}
	for _, p := range r.Pairs {
		pair := func(kind string, ms []measure.Measurement) {
			for _, m := range ms {
				v, _ := p.VerdictOf(m.Direction, m.Method)
				limit := 0.0
				if m.Quantity == measure.Bandwidth && m.Method != measure.Staged && m.Load == measure.Alone {
					limit = p.Ceiling.Of(m.Direction)
				}
				put(kind, p.Initiator, p.Peer, m, limit, v)
			}
		}
		pair("pair", p.Measurements)
		pair("sweep", p.Sweep)
	}
	for _, t := range r.Traffic {
		if t.Sum != nil {
			put("traffic", t.Name(), "", *t.Sum, 0, t.Verdict)
		}
	}
	c.Flush()
	return c.Error()
}
