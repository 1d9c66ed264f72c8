// Package topology turns the PCI functions of [facts.Facts] into a graph: host
// bridges, ports and functions with the links between them. It finds the path
// between two functions hop by hop, classifies it as nvidia-smi topo -m does,
// and says how much data its narrowest link can carry.
//
// Only PCI Express is seen here. NVLink leaves no trace in the PCI tree.
package topology

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// Kind is what a node of the graph is.
type Kind string

// The kinds of nodes.
const (
	HostBridge     Kind = "host bridge"
	RootPort       Kind = "root port"
	UpstreamPort   Kind = "switch upstream port"
	DownstreamPort Kind = "switch downstream port"
	Bridge         Kind = "bridge" // to or from conventional PCI, or of a type that is not known
	GPU            Kind = "GPU"
	Function       Kind = "function"
)

// Node is a host bridge or a PCI function.
type Node struct {
	// Name is the address of a function, or what sysfs calls a host bridge:
	// pci0000:00. It is empty for the bridge above functions whose place in
	// the tree could not be read.
	Name string
	Kind Kind
	// Device is nil for a host bridge, and for a bridge that a path names and
	// that is gone from the bus.
	Device *facts.Device
	Parent *Node // nil for a host bridge
	// Children are in the order of [facts.Facts.Devices].
	Children []*Node
	// Link is the PCI Express link to Parent; nil when there is none, as
	// between the ports of a switch or on a root bus.
	Link *Link
}

// Graph is the PCI tree of a machine.
type Graph struct {
	// Roots are the host bridges, in the order in which functions name them.
	Roots []*Node

	facts *facts.Facts
	nodes map[string]*Node
}

// New builds the graph of f.
func New(f *facts.Facts) *Graph {
	g := &Graph{facts: f, nodes: map[string]*Node{}}
	for i := range f.Devices {
		d := &f.Devices[i]
		parent := g.root(d.Root)
		for depth, address := range d.Path {
			parent = g.bridge(address, depth, parent)
		}
		g.function(d, parent)
	}
	return g
}

// root returns the node of a host bridge, new if need be.
func (g *Graph) root(name string) *Node {
	i := slices.IndexFunc(g.Roots, func(n *Node) bool { return n.Name == name })
	if i >= 0 {
		return g.Roots[i]
	}
	n := &Node{Name: name, Kind: HostBridge}
	g.Roots = append(g.Roots, n)
	return n
}

// bridge returns the node of a bridge at a depth, with a root port at depth 0.
func (g *Graph) bridge(address string, depth int, parent *Node) *Node {
	n := g.nodes[address]
	if n == nil {
		n = g.add(address, parent)
		if n.Device = g.facts.Device(address); n.Device != nil {
			n.Kind = bridgeKind(n.Device, depth)
			n.Link = linkBetween(parent, n)
		}
	}
	// A function that others are below is a bridge, whatever its class says.
	if n.Kind == Function || n.Kind == "" {
		n.Kind = bridgeKind(n.Device, depth)
	}
	return n
}

func (g *Graph) function(d *facts.Device, parent *Node) {
	if g.nodes[d.Address] != nil {
		return // found on the path of a function before it
	}
	n := g.add(d.Address, parent)
	n.Device, n.Kind = d, Function
	switch {
	case d.GPU:
		n.Kind = GPU
	case portType(d) >= 0 || d.Class>>8 == classBridge:
		n.Kind = bridgeKind(d, len(d.Path))
	}
	n.Link = linkBetween(parent, n)
}

func (g *Graph) add(name string, parent *Node) *Node {
	n := &Node{Name: name, Parent: parent}
	parent.Children = append(parent.Children, n)
	g.nodes[name] = n
	return n
}

// Node returns the function at address, nil when there is none.
func (g *Graph) Node(address string) *Node { return g.nodes[address] }

// classBridge is the class code of a PCI-to-PCI bridge, without its programming
// interface (PCI Code and ID Assignment Specification, base class 06h).
const classBridge = 0x0604

// portType returns the type of a bridge's port, -1 when its configuration space
// does not tell.
func portType(d *facts.Device) pcicfg.PortType {
	if d == nil || d.Config == nil || d.Config.Express == nil {
		return -1
	}
	switch t := d.Config.Express.Port; t {
	case pcicfg.RootPort, pcicfg.UpstreamPort, pcicfg.DownstreamPort,
		pcicfg.ExpressToPCIBridge, pcicfg.PCIToExpressBridge:
		return t
	}
	return -1
}

// bridgeKind returns the kind of a bridge. Where configuration space could not
// be read, its depth tells: below a root port, upstream and downstream ports
// alternate. A bridge without a PCI Express capability is a conventional one.
func bridgeKind(d *facts.Device, depth int) Kind {
	switch portType(d) {
	case pcicfg.RootPort:
		return RootPort
	case pcicfg.UpstreamPort:
		return UpstreamPort
	case pcicfg.DownstreamPort:
		return DownstreamPort
	case pcicfg.ExpressToPCIBridge, pcicfg.PCIToExpressBridge:
		return Bridge
	}
	if d != nil && d.Config != nil && d.Config.Length >= pcicfg.ConventionalSize {
		return Bridge
	}
	switch {
	case depth == 0:
		return RootPort
	case depth%2 == 1:
		return UpstreamPort
	}
	return DownstreamPort
}

// NUMANode returns the NUMA node of n, -1 when the firmware assigns none. A host
// bridge has that of the first function below that has one.
func (n *Node) NUMANode() int {
	if n.Device != nil && n.Device.NUMANode >= 0 {
		return n.Device.NUMANode
	}
	if n.Kind == HostBridge {
		for _, c := range n.Children {
			if node := c.NUMANode(); node >= 0 {
				return node
			}
		}
	}
	return -1
}

// ACS returns the state of the port's access control, "" for what is no port.
func (n *Node) ACS() ACSState {
	switch n.Kind {
	case HostBridge, GPU, Function, UpstreamPort:
		return ""
	}
	switch {
	case n.Device == nil || n.Device.Config == nil:
		return ACSUnknown
	case n.Device.Config.ACS == nil && !n.Device.Config.ExtendedRead:
		return ACSUnknown
	case n.Device.Config.ACS == nil:
		return ACSAbsent
	case n.Device.Config.ACS.Control&pcicfg.Redirecting != 0:
		return ACSRedirecting
	}
	return ACSClear
}

// ACSState says what the access control of a port does to peer traffic.
type ACSState string

// The states.
const (
	ACSRedirecting ACSState = "redirect" // RR, CR or EC is on
	ACSClear       ACSState = "clear"
	ACSAbsent      ACSState = "none" // the port has no such capability
	ACSUnknown     ACSState = "unknown"
)

// label returns n as drawings call it: its name, its kind and, for a function,
// its IDs.
func (n *Node) label() string {
	if n.Name == "" {
		return "place in the PCI tree not known"
	}
	if n.Device == nil {
		return n.Name + " " + string(n.Kind)
	}
	return fmt.Sprintf("%s %s %04x:%04x", n.Name, n.Kind, uint64(n.Device.Vendor), uint64(n.Device.Device))
}
