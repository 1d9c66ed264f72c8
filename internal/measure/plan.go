package measure

import "slices"

// Plan returns the traffic worth measuring between gpus, given by their
// addresses in the order of the driver, all of it unmeasured: each shape that
// differs from a single pair, and, where the fabric's places show a switch that
// several GPUs share, the probe for posted-write collapse with one source after
// the other. Two GPUs have no shape but the pair itself.
func Plan(gpus []string, f Fabric, set Settings) []Traffic {
	var all []Traffic
	add := func(s Shape, d Direction, sources int, flows []Flow) {
		all = append(all, Traffic{Shape: s, Direction: d, Method: CE, Sources: sources, Flows: flows, Checks: []Check{}})
	}
	if n := len(gpus); n > 2 {
		directions := []Direction{Write}
		if set.Profile == Complete {
			directions = append(directions, Read)
		}
		for _, d := range directions {
			for _, shape := range []Shape{Ring, AllToOne, OneToAll, AllToAll} {
				flows := shape.flows(gpus)
				add(shape, d, sources(flows), flows)
			}
		}
	}
	for _, flows := range collapseFlows(gpus, f) {
		add(Collapse, Write, sources(flows), flows)
	}
	return all
}

// flows returns the flows of a shape between at least two GPUs.
func (s Shape) flows(gpus []string) []Flow {
	var flows []Flow
	for i, a := range gpus {
		for j, b := range gpus {
			var in bool
			switch s {
			case Ring:
				in = j == (i+1)%len(gpus)
			case AllToOne:
				in = j == 0
			case OneToAll:
				in = i == 0
			case AllToAll:
				in = true
			}
			if in && i != j {
				flows = append(flows, Flow{Initiator: a, Peer: b})
			}
		}
	}
	return flows
}

// collapseFlows returns the flows of the probe with 1, 2, … sources: the GPUs
// under one switch write, in turn, to one GPU under each of two other roots. There
// are none unless a switch with two GPUs and two other roots with GPUs are known.
func collapseFlows(gpus []string, f Fabric) [][]Flow {
	var best [][]Flow
	for _, first := range gpus {
		home := f.Place(first)
		if home.Switch == "" || home.Root == "" {
			continue
		}
		var from, to []string
		roots := map[string]bool{home.Root: true}
		for _, g := range gpus {
			p := f.Place(g)
			switch {
			case p.Switch == home.Switch:
				from = append(from, g)
			case p.Root != "" && !roots[p.Root]:
				roots[p.Root] = true
				to = append(to, g)
			}
		}
		if len(from) < 2 || len(to) < 2 || len(from) <= len(best) {
			continue
		}
		best = nil
		for k := range from {
			var flows []Flow
			for i, g := range from[:k+1] {
				flows = append(flows, Flow{Initiator: g, Peer: to[i%len(to)]})
			}
			best = append(best, flows)
		}
	}
	return best
}

// sources returns the number of GPUs whose engines copy.
func sources(flows []Flow) int {
	var seen []string
	for _, f := range flows {
		if !slices.Contains(seen, f.Initiator) {
			seen = append(seen, f.Initiator)
		}
	}
	return len(seen)
}

// Ends returns the GPUs at the ends of the flows, in order.
func (t Traffic) Ends() []string {
	var ends []string
	for _, f := range t.Flows {
		ends = append(ends, f.Initiator, f.Peer)
	}
	slices.Sort(ends)
	return slices.Compact(ends)
}

// Ceiling returns what the path of an ordered pair can carry, nil if that is not
// known.
func (f Fabric) Ceiling(initiator, peer string) *Ceiling {
	for _, c := range f.Ceilings {
		if c.Initiator == initiator && c.Peer == peer {
			return &c
		}
	}
	return nil
}

// Place returns where a GPU is; of one that the fabric does not name, only the
// address is known.
func (f Fabric) Place(bdf string) Place {
	i := slices.IndexFunc(f.Places, func(p Place) bool { return p.BDF == bdf })
	if i < 0 {
		return Place{BDF: bdf}
	}
	return f.Places[i]
}

// Unfit returns why traffic is not to be tried: what is wrong with the first of
// its pairs that does not do well by itself; or nothing.
func (r Result) Unfit(t Traffic) string {
	for _, f := range t.Flows {
		i := slices.IndexFunc(r.Pairs, func(p Pair) bool { return p.Initiator == f.Initiator && p.Peer == f.Peer })
		if i < 0 {
			return f.Initiator + " to " + f.Peer + " was not measured"
		}
		if p := r.Pairs[i]; p.Verdict != OK && p.Verdict != Slow {
			return p.Initiator + " to " + p.Peer + ": " + string(p.Verdict)
		}
	}
	return ""
}
