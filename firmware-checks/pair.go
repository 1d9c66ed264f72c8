package checks

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
)

var gpuPairDoc = Doc{
	ID:       GPUPair,
	Question: "Are there two GPUs, and do they hang on one CPU?",
	Meaning:  "Peer traffic between CPU sockets shares their interconnect: expect less than the ceiling of the links, longer latency, and less again when several pairs cross at once; some platforms do not forward it at all. Within a socket it stays on one die fabric, even between its NUMA nodes.",
	Fix:      "Move both GPUs of a pair to slots of one CPU, or keep work that exchanges much data on GPUs of one node.",
	Outcomes: []Outcome{
		{Pass, "a pair lies within one NUMA node, or within one socket"},
		{Warn, "a pair spans two nodes that are not known to be of one socket"},
		{Skip, "there is one GPU, with nothing to pair it with"},
		{Unknown, "there are several sockets, and the firmware assigns no node to the GPUs"},
	},
}

func gpuPair(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	switch len(gpus) {
	case 0:
		return nil // gpuPresent has said so
	case 1:
		return []Finding{{
			ID: GPUPair, Status: Skip,
			Title:   fmt.Sprintf("one GPU (%s), no second one to pair it with", gpus[0].Address),
			Meaning: "Peer-to-peer needs two GPUs; what the other findings say about this one still holds.",
			Devices: addresses(gpus),
		}}
	}
	near := Finding{
		ID: GPUPair, Status: Pass,
		Meaning: "Peer traffic stays within one NUMA node.",
	}
	socket := Finding{
		ID: GPUPair, Status: Pass,
		Meaning: "The NUMA nodes of these GPUs are parts of one socket (nodes per socket, sub-NUMA clustering): peer traffic stays on its die fabric, somewhat farther than within a node.",
	}
	far := Finding{
		ID: GPUPair, Status: Warn,
		Meaning: "Peer traffic between sockets shares their interconnect: expect less than the ceiling of the links, longer latency, and less again when several pairs cross at once. Some platforms do not forward it at all, so only the measurement tells.",
		Fix:     "Move both GPUs of a pair to slots of one CPU, or keep work that exchanges much data on GPUs of one node.",
	}
	unclear := Finding{
		ID: GPUPair, Status: Unknown,
		Meaning: "The machine has several CPU sockets and the firmware names no NUMA node for these GPUs, so their traffic may cross the socket interconnect.",
		Fix:     "Enable NUMA (on some boards: disable node interleaving) in the firmware setup" + ofBoard(f) + ".",
	}
	for _, p := range topology.New(f).Pairs() {
		found := &near
		switch {
		case p.Class == topology.SYS && oneSocket(f, p):
			found = &socket
		case p.Class == topology.SYS:
			found = &far
		case p.Class == topology.Unclear, p.Class == topology.Unknown:
			found = &unclear
		}
		found.Pairs = append(found.Pairs, ends(p))
		found.Evidence = append(found.Evidence, Evidence{
			What:  fmt.Sprintf("%s to %s", p.A.Address, p.B.Address),
			Where: fmt.Sprintf("%s{%s,%s}: link target, numa_node", sysPCI, p.A.Address, p.B.Address),
			Raw:   fmt.Sprintf("%s through %s%s%s", p.Class, meeting(p), distance(f, p), expected(p)),
		})
	}
	far.Title = fmt.Sprintf("%s across the interconnect between CPU sockets", count(len(far.Pairs), "GPU pair"))
	unclear.Title = fmt.Sprintf("%s on host bridges of unknown sockets", count(len(unclear.Pairs), "GPU pair"))
	socket.Title = fmt.Sprintf("%s between NUMA nodes of one socket", count(len(socket.Pairs), "GPU pair"))
	near.Title = fmt.Sprintf("%s within one NUMA node", count(len(near.Pairs), "GPU pair"))
	return slices.DeleteFunc([]Finding{unclear, far, socket, near}, func(f Finding) bool { return f.Pairs == nil })
}

// node returns the NUMA node of d, nil when it is not known.
func node(f *facts.Facts, d *facts.Device) *facts.Node {
	i := slices.IndexFunc(f.Nodes, func(n facts.Node) bool { return n.ID == d.NUMANode })
	if i < 0 {
		return nil
	}
	return &f.Nodes[i]
}

// oneSocket reports whether both ends of a path are known to be of one socket.
func oneSocket(f *facts.Facts, p topology.Path) bool {
	a, b := node(f, p.A), node(f, p.B)
	return a != nil && b != nil && a.Package >= 0 && a.Package == b.Package
}

// distance words how far the NUMA nodes of a pair are apart, "" within one node
// or when that is not known.
func distance(f *facts.Facts, p topology.Path) string {
	a, b := node(f, p.A), node(f, p.B)
	if a == nil || b == nil || a == b {
		return ""
	}
	i := slices.IndexFunc(f.Nodes, func(n facts.Node) bool { return n.ID == b.ID })
	if i >= len(a.Distances) {
		return ""
	}
	return fmt.Sprintf(", distance %d from node %d to %d", a.Distances[i], a.ID, b.ID)
}

// expected words what the links of a path leave for writes, "" when that is not
// known.
func expected(p topology.Path) string {
	c := p.Ceiling
	if c.Hop < 0 {
		return ""
	}
	payload := ""
	if c.MaxPayload > 0 {
		payload = fmt.Sprintf(" and packets of %d bytes", c.MaxPayload)
	}
	detour := ""
	if p.Redirected() {
		detour = ", if ACS did not redirect it"
	}
	return fmt.Sprintf(", writes of at most %.1f GB/s with %s%s%s", c.Write, p.Hops[c.Hop].Link.Loaded, payload, detour)
}

// meeting names where the paths of a pair meet.
func meeting(p topology.Path) string {
	switch {
	case p.Ancestor != "":
		return p.Ancestor
	case p.A.Root == p.B.Root:
		return p.A.Root
	}
	return p.A.Root + " and " + p.B.Root
}
