package topology

import (
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

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
	// Unknown is between functions whose place in the tree could not be read.
	Unknown Class = "unknown"
)

// HopKind is what lies between two nodes of a path.
type HopKind string

// The kinds of hops.
const (
	LinkHop         HopKind = "link"                       // a PCI Express link
	SwitchHop       HopKind = "switch"                     // between two ports of a switch
	DeviceHop       HopKind = "device"                     // between two functions of one device
	ConventionalHop HopKind = "PCI bus"                    // a bus that is not PCI Express, or a bridge to one
	RootComplexHop  HopKind = "root complex"               // between a host bridge and its root bus
	NodeHop         HopKind = "interconnect within a node" // between host bridges of one NUMA node
	SocketHop       HopKind = "interconnect between nodes" // between NUMA nodes
	UnclearHop      HopKind = "interconnect of unknown kind"
)

// Hop is one step of a path.
type Hop struct {
	From string  `json:"from"`
	To   string  `json:"to"`
	Kind HopKind `json:"kind"`
	Link *Link   `json:"link,omitempty"` // of a LinkHop
}

// Ceiling is what a path can carry at most: the narrowest of its links, less
// the overhead of packets. Other traffic, the root complex and the interconnect
// between sockets may leave less.
type Ceiling struct {
	// Write is for posted writes from A to B, Read for the completions of reads
	// of A from B; 0 when no link's rate is known.
	Write GBps `json:"write_gbps"`
	Read  GBps `json:"read_gbps"`
	// Hop is the index of the narrowest link among the hops, -1 for none.
	Hop int `json:"hop"`
	// MaxPayload is the smallest Max Payload Size on the path in bytes; 0 when
	// it is not known, and then nothing is taken off for packets.
	MaxPayload int `json:"max_payload,omitempty"`
	// Notes say what was not known or not as it is now.
	Notes []string `json:"notes,omitempty"`
}

// Path is the way from one function to another.
type Path struct {
	A     *facts.Device `json:"-"`
	B     *facts.Device `json:"-"`
	Class Class         `json:"class"`
	Hops  []Hop         `json:"hops,omitempty"`
	// Ancestor is the bridge nearest to both, "" when the path meets only in a
	// host bridge or beyond.
	Ancestor string `json:"ancestor,omitempty"`
	// Ports are the bridges on the path without Ancestor: from A up, then down
	// to B.
	Ports []string `json:"ports,omitempty"`
	// Redirecting are those of Ports whose access control takes peer traffic up
	// to the root complex, so that the path below Ancestor is not taken.
	Redirecting []string `json:"redirecting,omitempty"`
	// Ceiling is under load, Now with the links as they were read: those of
	// idle GPUs are slower than under load.
	Ceiling Ceiling `json:"ceiling"`
	Now     Ceiling `json:"now"`
}

// Paths returns the path of every ordered pair of the functions that the checks
// judge, in address order.
func (g *Graph) Paths() []Path {
	var paths []Path
	gpus := g.facts.GPUs()
	for _, a := range gpus {
		for _, b := range gpus {
			if a != b {
				paths = append(paths, g.path(a, b))
			}
		}
	}
	return paths
}

// Pairs returns the path of every pair of these functions once, from the one
// with the lesser address.
func (g *Graph) Pairs() []Path {
	var paths []Path
	gpus := g.facts.GPUs()
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			paths = append(paths, g.path(a, b))
		}
	}
	return paths
}

// Path returns the way from the function at address a to that at b. Its class
// is [Unknown] if either is not there.
func (g *Graph) Path(a, b string) Path {
	from, to := g.facts.Device(a), g.facts.Device(b)
	if from == nil || to == nil {
		return Path{A: from, B: to, Class: Unknown, Ceiling: Ceiling{Hop: -1}, Now: Ceiling{Hop: -1}}
	}
	return g.path(from, to)
}

func (g *Graph) path(a, b *facts.Device) Path {
	p := Path{A: a, B: b}
	up, down := g.chain(a.Address), g.chain(b.Address)
	// Drop what both have in common, from the host bridge down.
	for len(up) > 1 && len(down) > 1 && up[len(up)-2] == down[len(down)-2] {
		up, down = up[:len(up)-1], down[:len(down)-1]
	}
	top := up[len(up)-1]
	p.Class = g.class(a, b, up, down)
	if top == down[len(down)-1] && top.Kind != HostBridge {
		p.Ancestor = top.Name
	}
	p.ports(up[:len(up)-1], down[:len(down)-1])
	if p.Class == Unknown {
		p.Ceiling.Hop, p.Now.Hop = -1, -1
		return p
	}
	p.hops(up, down)
	p.Ceiling = p.ceiling(func(l *Link) (Rate, string) { return l.Loaded, l.Basis })
	p.Now = p.ceiling(func(l *Link) (Rate, string) { return l.Current, "as trained" })
	return p
}

// chain returns the nodes from a function up to its host bridge.
func (g *Graph) chain(address string) []*Node {
	var up []*Node
	for n := g.nodes[address]; n != nil; n = n.Parent {
		up = append(up, n)
	}
	return up
}

// class classifies a path whose two sides end in what they have in common, or
// in two host bridges.
func (g *Graph) class(a, b *facts.Device, up, down []*Node) Class {
	top := up[len(up)-1]
	switch {
	case a.Root == "" || b.Root == "":
		return Unknown
	case top == down[len(down)-1] && top.Kind != HostBridge:
		// One switch is an upstream port, the ancestor, and a downstream port
		// for each side. Anything deeper goes through a further switch.
		if len(up) > 3 || len(down) > 3 {
			return PXB
		}
		return PIX
	case a.Root == b.Root:
		return PHB
	case a.NUMANode < 0 || b.NUMANode < 0:
		if g.facts.CPU.Sockets == 1 {
			return NODE
		}
		return Unclear
	case a.NUMANode == b.NUMANode:
		return NODE
	}
	return SYS
}

// ports fills in the bridges on both sides. A side is empty only in a document
// that has one function above the other.
func (p *Path) ports(up, down []*Node) {
	side := slices.Clone(up[min(1, len(up)):])
	for _, n := range slices.Backward(down[min(1, len(down)):]) {
		side = append(side, n)
	}
	for _, n := range side {
		p.Ports = append(p.Ports, n.Name)
		if n.ACS() == ACSRedirecting {
			p.Redirecting = append(p.Redirecting, n.Name)
		}
	}
}

// hops fills in the steps from A to B.
func (p *Path) hops(up, down []*Node) {
	top, other := len(up)-1, len(down)-1
	if k := up[top].Kind; up[top] == down[other] && (k == RootPort || k == DownstreamPort) && top > 0 && other > 0 && sameDevice(up[top-1], down[other-1]) {
		// The sides meet within a device of several functions, below a port:
		// the link between the two is not used.
		p.climb(up[:top])
		p.Hops = append(p.Hops, Hop{From: up[top-1].Name, To: down[other-1].Name, Kind: DeviceHop})
		p.descend(down[:other])
		return
	}
	p.climb(up)
	if a, b := up[top], down[other]; a != b {
		kind := UnclearHop
		switch p.Class {
		case NODE:
			kind = NodeHop
		case SYS:
			kind = SocketHop
		}
		p.Hops = append(p.Hops, Hop{From: a.Name, To: b.Name, Kind: kind})
	}
	p.descend(down)
}

func (p *Path) climb(side []*Node) {
	for i := range len(side) - 1 {
		p.Hops = append(p.Hops, Hop{From: side[i].Name, To: side[i+1].Name, Kind: hopKind(side[i]), Link: side[i].Link})
	}
}

func (p *Path) descend(side []*Node) {
	for i := len(side) - 1; i > 0; i-- {
		p.Hops = append(p.Hops, Hop{From: side[i].Name, To: side[i-1].Name, Kind: hopKind(side[i-1]), Link: side[i-1].Link})
	}
}

// hopKind returns the kind of the hop between a node and its parent.
func hopKind(n *Node) HopKind {
	switch {
	case n.Link != nil:
		return LinkHop
	case n.Parent.Kind == HostBridge:
		return RootComplexHop
	case n.Parent.Kind == UpstreamPort:
		return SwitchHop
	}
	return ConventionalHop
}

// sameDevice reports whether two nodes are functions of one device: addresses
// that differ in the function only.
func sameDevice(a, b *Node) bool {
	device := func(n *Node) string { before, _, _ := strings.Cut(n.Name, "."); return before }
	return a != b && device(a) == device(b)
}

// ceiling finds the narrowest link by the rate of each.
func (p *Path) ceiling(rate func(l *Link) (Rate, string)) Ceiling {
	c := Ceiling{Hop: -1, MaxPayload: p.maxPayload()}
	note := func(s string) { c.Notes = append(c.Notes, s) }
	for i, h := range p.Hops {
		if h.Link == nil {
			if h.Kind == ConventionalHop {
				note(h.From + " to " + h.To + " is not PCI Express, its rate is not known")
			}
			continue
		}
		r, basis := rate(h.Link)
		if !r.Known() {
			note("the rate of the link " + h.From + " to " + h.To + " is not known")
			continue
		}
		if basis != "as trained" {
			note("link " + h.From + " to " + h.To + ": " + basis)
		}
		write := r.GBps() * GBps(efficiency(r.Generation, c.MaxPayload, addressBytes(p.B)))
		if c.Hop < 0 || write < c.Write {
			c.Hop, c.Write = i, write
			c.Read = r.GBps() * GBps(efficiency(r.Generation, c.MaxPayload, header3))
		}
	}
	if c.Hop >= 0 && c.MaxPayload == 0 {
		note("Max Payload Size is not known, nothing is taken off for packets")
	}
	return c
}

// maxPayload returns the smallest Max Payload Size on the path, 0 when that of
// any link is not known.
func (p *Path) maxPayload() int {
	least := 0
	for _, h := range p.Hops {
		if h.Link == nil {
			continue
		}
		if h.Link.MaxPayload == 0 {
			return 0
		}
		least = lesser(least, h.Link.MaxPayload)
	}
	return least
}

// Redirected reports whether access control takes the traffic of the path off
// the switch that it would otherwise stay in.
func (p Path) Redirected() bool { return p.Ancestor != "" && p.Redirecting != nil }
