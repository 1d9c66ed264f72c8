package judge

import (
	"encoding/json"
	"slices"

	"mkp2pimg/internal/bench"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// ways are those that are measured of a pair, in their order; copies through host
// memory not by every run.
var ways = []measure.Way{
	{Direction: measure.Write, Method: measure.CE},
	{Direction: measure.Read, Method: measure.CE},
	{Direction: measure.Write, Method: measure.SM},
	{Direction: measure.Read, Method: measure.SM},
	{Direction: measure.Write, Method: measure.Staged},
	{Direction: measure.Read, Method: measure.Staged},
}

// pairs returns what each way of each pair reached. A way whose data was not
// verified has no figures, whatever was measured.
func pairs(r *report.Run) []farm.Pair {
	if r.Result == nil {
		return fromLines(r)
	}
	if len(r.Result.Pairs) > maxGPUs*(maxGPUs-1) {
		return nil
	}
	var out []farm.Pair
	seen := map[Key]bool{}
	for _, p := range r.Result.Pairs {
		for _, w := range ways {
			f := farm.Pair{
				Initiator: clean(p.Initiator), Peer: clean(p.Peer), Direction: string(w.Direction), Method: string(w.Method),
			}
			m, measured := alone(p.Measurements, measure.Bandwidth, w.Direction, w.Method)
			v, _ := p.VerdictOf(w.Direction, w.Method)
			f.Verdict = clean(string(v))
			if seen[Bandwidth(f)] {
				continue // the first of two counts
			}
			seen[Bandwidth(f)] = true
			if !measured && (w.Method == measure.Staged || verified(f)) {
				continue // the run was not asked to measure it
			}
			if w.Method != measure.Staged {
				f.Ceiling = plausible(p.Ceiling.Of(w.Direction))
			}
			if verified(f) {
				f.GBps = plausible(m.Median)
				if w.Direction == measure.Read && w.Method == measure.SM {
					latency, _ := alone(p.Measurements, measure.LoadLatency, w.Direction, w.Method)
					f.LatencyNS = plausible(latency.Median)
				}
			}
			out = append(out, f)
		}
	}
	return out
}

// verified tells whether the data of a way arrived as it was sent.
func verified(p farm.Pair) bool {
	return p.Verdict == string(measure.OK) || p.Verdict == string(measure.Slow)
}

// plausible returns a figure if something real can have it, else zero: a lane of
// the first generation carries 0.25 GB/s, and a load takes less than a
// millisecond.
func plausible(v float64) float64 {
	if v < 0.001 || v > 1e6 {
		return 0
	}
	return v
}

// alone returns what was measured with nothing else going on.
func alone(ms []measure.Measurement, q measure.Quantity, d measure.Direction, m measure.Method) (measure.Measurement, bool) {
	i := slices.IndexFunc(ms, func(x measure.Measurement) bool {
		return x.Quantity == q && x.Direction == d && x.Method == m && x.Load == measure.Alone
	})
	if i < 0 {
		return measure.Measurement{}, false
	}
	return ms[i], true
}

// worst returns the lowest part of its ceiling, in percent, that a pair reached by
// the copy engine, which is what ceilings judge. A pair that does not work reaches
// nothing; one of which that is not known does not count. Nil if none is left.
func worst(pairs []farm.Pair) *float64 {
	var lowest *float64
	for _, p := range pairs {
		if p.Method != string(measure.CE) || p.Ceiling == 0 || p.Verdict == string(measure.Inconclusive) {
			continue
		}
		if v := p.Percent(); lowest == nil || v < *lowest {
			lowest = &v
		}
	}
	return lowest
}

// fromLines puts pairs together from the lines that a report has for each figure
// and each check. They say less than the whole result, but that is one long line,
// which a serial console is the first to damage.
func fromLines(r *report.Run) []farm.Pair {
	type lines struct {
		gbps, latency float64
		right         map[string]bool // phases that were checked
		wrong         bool
	}
	var order []farm.Pair
	of := map[farm.Pair]*lines{}
	for _, m := range r.Measurements {
		text := func(key string) string { s, _ := m.Metadata[key].(string); return clean(s) }
		way := farm.Pair{
			Initiator: text(report.MetaInitiator), Peer: text(report.MetaPeer), Direction: text(report.MetaDirection), Method: text(report.MetaMethod),
		}
		if m.Step != report.ExtBandwidth || way.Initiator == "" || way.Peer == "" || text(bench.MetaLoad) != "" {
			continue
		}
		if of[way] == nil {
			if len(order) == maxGPUs*(maxGPUs-1)*len(ways) {
				return nil
			}
			order, of[way] = append(order, way), &lines{right: map[string]bool{}}
		}
		l, value := of[way], number(m.Value)
		switch m.Name {
		case "p2p-" + string(measure.Bandwidth):
			l.gbps = plausible(value)
		case "p2p-" + string(measure.LoadLatency):
			l.latency = plausible(value)
		case bench.WrongWords:
			l.right[text("phase")] = true
			l.wrong = l.wrong || value > 0
		}
	}
	var out []farm.Pair
	for _, p := range order {
		l := of[p]
		staged := p.Method == string(measure.Staged)
		switch {
		case l.wrong:
			p.Verdict = string(measure.WrongData)
		case l.gbps == 0:
			continue
		case l.right[string(measure.After)] && (staged || l.right[string(measure.Before)]):
			p.Verdict, p.GBps, p.LatencyNS = string(measure.OK), l.gbps, l.latency
		default:
			p.Verdict = string(measure.Inconclusive)
		}
		out = append(out, p)
	}
	return out
}

// number returns a value of a report, zero if it is none.
func number(v any) float64 {
	switch v := v.(type) {
	case float64:
		return v
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return 0
		}
		return f
	}
	return 0
}
