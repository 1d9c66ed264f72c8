// Package remedy switches off, on a running machine, the access controls that
// take traffic between GPUs off its path, and switches them on again.
//
// A [Plan] says what to write, from [facts.Facts] alone. [Clear] makes its
// changes through sysfs and saves what was there, [Restore] puts that back.
// Both leave the machine as it was when one of several writes fails.
package remedy

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/topology"
)

// control is where the ACS Control register is in its capability (PCIe 6.0
// §7.7.11.3).
const control = 6

// Options adjust [NewPlan].
type Options struct {
	// Pairs are the addresses of the GPUs whose paths to clear; all pairs when
	// nil.
	Pairs [][2]string
	// Isolated changes ports above a device of a virtual machine too.
	Isolated bool
}

// Plan is what to do with the ports between GPUs.
type Plan struct {
	// Ports are all ports on the paths of the pairs, in address order.
	Ports []Port `json:"ports"`
}

// Port is a port on the path of a pair.
type Port struct {
	Address string     `json:"address"`
	Kind    string     `json:"kind,omitempty"` // "switch downstream port"
	Vendor  pcicfg.Hex `json:"vendor"`
	Device  pcicfg.Hex `json:"device"`
	// Register is the offset of the ACS Control register in configuration
	// space, 0 when the port has none or it could not be read.
	Register int `json:"register,omitempty"`
	// Before is the register as it is, After as it shall be.
	Before Word `json:"before"`
	After  Word `json:"after"`
	// Pairs are the GPUs whose paths lead through the port.
	Pairs [][2]string `json:"pairs,omitempty"`
	// Left says why nothing is changed, empty for a port to be changed.
	Left string `json:"left,omitempty"`
}

// String returns what is done with the port: "0000:02:00.0 switch downstream
// port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)".
func (p Port) String() string {
	name := strings.TrimSpace(p.Address + " " + p.Kind)
	switch {
	case p.Left == "":
		return fmt.Sprintf("%s: %s -> %s", name, p.Before, p.After)
	case p.Register == 0:
		return fmt.Sprintf("%s: left, %s", name, p.Left)
	}
	return fmt.Sprintf("%s: %s left, %s", name, p.Before, p.Left)
}

// Changes returns the ports to be changed.
func (p Plan) Changes() []Port {
	return slices.DeleteFunc(slices.Clone(p.Ports), func(p Port) bool { return p.Left != "" })
}

// Unread reports whether a port was left because it could not be read.
func (p Plan) Unread() bool {
	return slices.ContainsFunc(p.Ports, func(p Port) bool { return p.Left == unread })
}

// unread says why a port is left of which the facts do not have all.
const unread = "its configuration space could not be read"

// NewPlan plans for the pairs of GPUs of f. It fails when a pair is none of f.
func NewPlan(f *facts.Facts, opt Options) (Plan, error) {
	plan := Plan{Ports: []Port{}}
	paths, err := paths(f, opt.Pairs)
	if err != nil {
		return plan, err
	}
	for _, path := range paths {
		for _, address := range path.Ports {
			i := slices.IndexFunc(plan.Ports, func(p Port) bool { return p.Address == address })
			if i < 0 {
				i = len(plan.Ports)
				plan.Ports = append(plan.Ports, portAt(f, address, opt.Isolated))
			}
			plan.Ports[i].Pairs = append(plan.Ports[i].Pairs, [2]string{path.A.Address, path.B.Address})
		}
	}
	slices.SortFunc(plan.Ports, func(a, b Port) int { return strings.Compare(a.Address, b.Address) })
	return plan, nil
}

func paths(f *facts.Facts, pairs [][2]string) ([]topology.Path, error) {
	g := topology.New(f)
	if pairs == nil {
		return g.Pairs(), nil
	}
	var out []topology.Path
	for _, pair := range pairs {
		for _, address := range pair {
			if d := f.Device(address); d == nil || !d.GPU {
				return nil, fmt.Errorf("%s is no GPU of this machine: it has %s", address, addresses(f.GPUs()))
			}
		}
		if pair[0] == pair[1] {
			return nil, fmt.Errorf("a pair has two GPUs, and both are %s", pair[0])
		}
		out = append(out, g.Path(pair[0], pair[1]))
	}
	return out, nil
}

func addresses(devices []*facts.Device) string {
	var out []string
	for _, d := range devices {
		out = append(out, d.Address)
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}

// portAt plans for one port. Of a port that redirects it clears RR, CR and EC,
// as the kernel's pci=disable_acs_redir= does: with EC left on, what RR sent to
// the root complex before would be blocked. The rest stays. UF acts on requests
// that a port below has redirected, of which none are left; DT exempts
// translated requests from RR and EC, and matters again when those come back; SV
// is no matter of routing.
func portAt(f *facts.Facts, address string, isolated bool) Port {
	p := Port{Address: address}
	d := f.Device(address)
	if d == nil {
		p.Left = "it is gone from the bus"
		return p
	}
	p.Vendor, p.Device = d.Vendor, d.Device
	cfg := d.Config
	if cfg != nil && cfg.Express != nil {
		p.Kind = cfg.Express.Port.String()
	}
	switch {
	case cfg == nil || cfg.ACS == nil && !cfg.ExtendedRead:
		p.Left = unread
		return p
	case cfg.ACS == nil:
		p.Left = "it has no ACS"
		return p
	}
	p.Register = cfg.ACS.Offset + control
	if len(d.RawConfig) < p.Register+2 {
		p.Left = "the facts lack its raw configuration space"
		return p
	}
	p.Before = Word(binary.LittleEndian.Uint16(d.RawConfig[p.Register:]))
	p.After = p.Before &^ Word(pcicfg.Redirecting)
	guest := guestBelow(f, address)
	switch {
	case p.After == p.Before:
		p.Left = "it does not redirect"
	case guest != "" && !isolated:
		p.After = p.Before
		p.Left = fmt.Sprintf("%s below it is given to a virtual machine, which the redirect isolates", guest)
	}
	return p
}

// guestBelow returns the address of a function below a port that is bound to a
// driver that hands it to a virtual machine, or nothing.
func guestBelow(f *facts.Facts, port string) string {
	for _, d := range f.Devices {
		if strings.Contains(d.Driver, "vfio") && slices.Contains(d.Path, port) {
			return d.Address
		}
	}
	return ""
}
