package facts

import "slices"

// Class is how far two functions are apart, in the terms of nvidia-smi topo -m.
type Class string

// The classes, nearest first.
const (
	PIX  Class = "PIX"  // at most one PCIe switch between them
	PXB  Class = "PXB"  // several PCIe switches, no host bridge
	PHB  Class = "PHB"  // the same host bridge
	NODE Class = "NODE" // host bridges of one NUMA node
	SYS  Class = "SYS"  // the interconnect between NUMA nodes

	// Unclear are host bridges that may belong to different sockets: the
	// machine has several, and the firmware does not say which.
	Unclear Class = "NODE or SYS"
)

// Pair is an unordered pair of functions and what lies between them.
type Pair struct {
	A, B  *Device
	Class Class
	// Ancestor is the bridge nearest to both, "" when their paths meet only in
	// a host bridge or beyond.
	Ancestor string
	// Ports are the bridges between them, without Ancestor: from A up, then
	// down to B.
	Ports []string
}

// pairOf finds the path between a and b on a machine with so many sockets.
func pairOf(a, b *Device, sockets int) Pair {
	p := Pair{A: a, B: b}
	common := 0
	if a.Root == b.Root {
		for common < min(len(a.Path), len(b.Path)) && a.Path[common] == b.Path[common] {
			common++
		}
	}
	below, down := a.Path[common:], b.Path[common:]
	for _, port := range slices.Backward(below) {
		p.Ports = append(p.Ports, port)
	}
	p.Ports = append(p.Ports, down...)

	switch {
	case common > 0:
		p.Ancestor = a.Path[common-1]
		// One switch is an upstream port, the ancestor, and a downstream port
		// for each side. Anything deeper goes through a further switch.
		p.Class = PIX
		if len(below) > 1 || len(down) > 1 {
			p.Class = PXB
		}
	case a.Root == b.Root:
		p.Class = PHB
	case a.NUMANode < 0 || b.NUMANode < 0:
		p.Class = NODE
		if sockets > 1 {
			p.Class = Unclear
		}
	case a.NUMANode == b.NUMANode:
		p.Class = NODE
	default:
		p.Class = SYS
	}
	return p
}

// Pairs returns every pair of the functions the checks judge, in address order.
func (f *Facts) Pairs() []Pair {
	gpus := f.GPUs()
	var pairs []Pair
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			pairs = append(pairs, pairOf(a, b, f.CPU.Sockets))
		}
	}
	return pairs
}
