package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/topology"
)

// fabric is the part of the PCI tree that GPUs reach each other through, for
// the findings about it.
type fabric struct {
	*facts.Facts
	pairs []topology.Path // once each
	links []hop
}

// hop is a link that the traffic of GPUs takes.
type hop struct {
	*topology.Link
	port, end *facts.Device // either may be gone from the bus: nil
	pairs     [][2]string
}

// newFabric returns the fabric of f. Its links are those on the paths of pairs
// or, with a single GPU, all links above it.
func newFabric(f *facts.Facts) *fabric {
	g := topology.New(f)
	fab := &fabric{Facts: f, pairs: g.Pairs()}
	for _, p := range fab.pairs {
		for _, h := range p.Hops {
			if h.Link != nil {
				fab.add(h.Link, ends(p))
			}
		}
	}
	if gpus := f.GPUs(); len(gpus) == 1 {
		for n := g.Node(gpus[0].Address); n != nil; n = n.Parent {
			if n.Link != nil {
				fab.add(n.Link)
			}
		}
	}
	slices.SortStableFunc(fab.links, func(a, b hop) int { return strings.Compare(a.Function, b.Function) })
	return fab
}

func (fab *fabric) add(l *topology.Link, pairs ...[2]string) {
	i := slices.IndexFunc(fab.links, func(h hop) bool { return h.Function == l.Function })
	if i < 0 {
		h := hop{Link: l, port: fab.Device(l.Port), end: fab.Device(l.Function)}
		// A conventional function has no link, whatever it is plugged into.
		if h.end != nil && conventional(h.end) {
			return
		}
		fab.links = append(fab.links, h)
		i = len(fab.links) - 1
	}
	fab.links[i].pairs = append(fab.links[i].pairs, pairs...)
}

// ends are the addresses of a path's two functions.
func ends(p topology.Path) [2]string { return [2]string{p.A.Address, p.B.Address} }

// through lists the functions that the traffic of a path passes, with its ends:
// the bridge where both sides meet is left out, since within a switch nothing
// goes through its upstream port.
func (fab *fabric) through(p topology.Path) []*facts.Device {
	out := []*facts.Device{p.A}
	for _, address := range p.Ports {
		d := fab.Device(address)
		if d == nil {
			d = &facts.Device{Address: address} // named in a path, gone from the bus
		}
		out = append(out, d)
	}
	return append(out, p.B)
}

// express returns the PCI Express capability of d, nil when it is not known.
func express(d *facts.Device) *pcicfg.Express {
	if d == nil || d.Config == nil {
		return nil
	}
	return d.Config.Express
}

// expressLink returns the link registers of d, nil when they are not known.
func expressLink(d *facts.Device) *pcicfg.Link {
	if e := express(d); e != nil {
		return e.Link
	}
	return nil
}

// conventional reports whether d is known to have no PCI Express capability.
func conventional(d *facts.Device) bool {
	return d.Config != nil && d.Config.Express == nil && d.Config.Length >= pcicfg.ConventionalSize
}

// evidence returns the state of a link.
func (h hop) evidence() Evidence {
	where := sysPCI + h.Function + "/{current,max}_link_{speed,width}"
	if expressLink(h.end) != nil {
		where = fmt.Sprintf("%s%s/config %#x (LnkCap, LnkSta)", sysPCI, h.Function, h.end.Config.Express.Offset+0x0c)
	}
	return Evidence{
		What: fmt.Sprintf("link %s to %s", h.Port, h.Function), Where: where,
		Raw: fmt.Sprintf("%s, capable of %s", h.Current, h.Capable),
	}
}

// addLink adds a link and the pairs across it to a finding.
func (f *Finding) addLink(h hop) {
	f.Devices = append(f.Devices, h.Function)
	f.Evidence = append(f.Evidence, h.evidence())
	f.affect(h.pairs...)
}

// affect adds pairs to a finding, each once, in order.
func (f *Finding) affect(pairs ...[2]string) {
	for _, p := range pairs {
		i, found := slices.BinarySearchFunc(f.Pairs, p, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
		if !found {
			f.Pairs = slices.Insert(f.Pairs, i, p)
		}
	}
}

// pairsWith returns the pairs that one of the devices belongs to.
func (fab *fabric) pairsWith(devices []string) [][2]string {
	var out [][2]string
	for _, p := range fab.pairs {
		if slices.Contains(devices, p.A.Address) || slices.Contains(devices, p.B.Address) {
			out = append(out, ends(p))
		}
	}
	return out
}

// noLinks is the finding when GPUs have no link to judge.
func noLinks(id ID, f *facts.Facts) []Finding {
	return []Finding{{
		ID: id, Status: Skip, Title: "no PCI Express link between the GPUs", Devices: addresses(f.GPUs()),
		Meaning: "The functions are conventional PCI or part of the root complex.",
	}}
}
