package predict

import (
	"encoding/binary"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
)

// Capability by which a hypervisor approves of peers: vendor-specific, with a
// signature and a clique number (NV_PCI_VIRTUAL_P2P_APPROVAL_* in nvpcie.h;
// QEMU's property x-nv-gpudirect-clique writes it).
const (
	capVendorSpecific = 0x09
	cliqueSignature   = "P2P"
	cliqueOffset      = 3 // of the signature, in the capability
	cliqueVersion     = 6 // bits 2:0; bits 6:3 are the clique
)

// cliqueOf returns the clique that the hypervisor has put d into, ok false for
// none.
func cliqueOf(d *facts.Device) (clique int, ok bool) {
	if d.Config == nil {
		return 0, false
	}
	for _, c := range d.Config.Capabilities {
		if c.ID != capVendorSpecific || c.Offset+8 > len(d.RawConfig) {
			continue
		}
		raw := d.RawConfig[c.Offset : c.Offset+8]
		word := binary.LittleEndian.Uint16(raw[cliqueVersion:])
		if string(raw[cliqueOffset:cliqueOffset+3]) == cliqueSignature && word&7 == 0 {
			return int(word >> 3 & 0xf), true
		}
	}
	return 0, false
}

// general is the first branch that asks the GSP firmware for approval of GPUs
// passed through (_hypervisorCheckVirtualPcieP2PGeneralApproval).
const general = 575

func (p *pair) clique() reply {
	if !p.facts.CPU.Hypervisor {
		return no("not a virtual machine")
	}
	a, okA := cliqueOf(p.a.Device)
	b, okB := cliqueOf(p.b.Device)
	switch {
	case okA && okB && a == b:
		return yes("both GPUs are in clique %d", a)
	case okA && okB:
		return no("the GPUs are in cliques %d and %d", a, b)
	case p.a.Config == nil || p.b.Config == nil:
		return unknown(No, "configuration space of a GPU could not be read")
	case p.major >= general && p.allowed().verdict != No:
		return unknown(No, "no clique; the GSP firmware may approve of GPUs passed through")
	}
	return no("the hypervisor has put neither GPU, or only one, into a clique")
}

// iohRootPorts are the root ports of Intel's I/O hubs, and of CPUs that have
// one each, from X58 to Broadwell-EP (DEVICE_ID_INTEL_*_ROOT_PORT in
// _kp2pCapsGetStatusOverPcie).
var iohRootPorts = []struct{ first, last pcicfg.Hex }{
	{0x3408, 0x3411}, {0x3420, 0x3421}, {0x3c02, 0x3c0b}, {0x0e02, 0x0e0b}, {0x2f01, 0x2f0b}, {0x6f01, 0x6f0b},
}

// iohOf returns the domain and bus of the I/O hub above g, "" for none.
func (p *pair) iohOf(g *gpu) string {
	if len(g.Path) == 0 {
		return ""
	}
	port := p.facts.Device(g.Path[0])
	if port == nil || port.Vendor != vendorIntel {
		return ""
	}
	for _, r := range iohRootPorts {
		if port.Device >= r.first && port.Device <= r.last {
			return bus(port.Address)
		}
	}
	return ""
}

const vendorIntel = 0x8086

// bus returns the domain and bus of an address: 0000:80 of 0000:80:02.0.
func bus(address string) string { return address[:max(0, strings.LastIndexByte(address, ':'))] }

func (p *pair) oneIOH() reply {
	a, b := p.iohOf(p.a), p.iohOf(p.b)
	switch {
	case p.a.Root == "" || p.b.Root == "":
		return unknown(Yes, "the place of a GPU in the PCI tree could not be read")
	case a != "" && b != "" && a != b:
		return no("the GPUs are below the I/O hubs at buses %s and %s", a, b)
	case a != "" && b != "":
		return yes("both GPUs are below the I/O hub at bus %s", a)
	}
	return yes("not both GPUs are below an I/O hub of the list")
}

func (p *pair) sameChip() reply {
	switch a, b := p.a.chip(), p.b.chip(); {
	case p.a.Vendor == p.b.Vendor && p.a.Device.Device == p.b.Device.Device:
		return yes("both are %04x:%04x", uint64(p.a.Vendor), uint64(p.a.Device.Device))
	case a == "" || b == "":
		return unknown(No, "the chip of a GPU is not in the catalog: %s, %s", p.a.name(), p.b.name())
	case a == b:
		return yes("both are %s", a)
	default:
		return no("%s has %s, %s has %s", p.a.name(), a, p.b.name(), b)
	}
}

// published is the first branch whose source has the table of chipsets; before,
// it is in the GSP firmware.
const published = 610

func (p *pair) chipset() reply {
	if sw := p.commonSwitch(); sw != "" {
		return yes("both GPUs are below the switch at bus %s", sw)
	}
	name, forwards := p.chipsetName, p.chipsetForwards
	likely, text := No, "no chipset of the driver's table is on the bus"
	switch {
	case name != "" && forwards:
		likely, text = Yes, "the table lists "+name
	case name != "":
		text = "the table denies it to " + name
	}
	switch {
	case len(p.facts.Devices) == len(p.gpus):
		return unknown(No, "only GPUs are known, not the chipset")
	case p.major < published:
		return unknown(likely, "the table is in the GSP firmware; by that of %d, %s", published, text)
	case likely == No:
		return no("%s", text)
	}
	return yes("%s", text)
}

// commonSwitch returns the domain and bus of the ports of a switch above both
// GPUs that the driver knows, "" for none (clFindCommonDownstreamBR).
func (p *pair) commonSwitch() string {
	for _, up := range slices.Backward(p.a.Path) {
		for _, other := range p.b.Path {
			if bus(up) == bus(other) && knownSwitch(p.facts.Device(up)) && knownSwitch(p.facts.Device(other)) {
				return bus(up)
			}
		}
	}
	return ""
}

// knownSwitch reports whether d is a port of a switch that the driver knows
// (IS_SUPPORTED_PCIE_SWITCH in pcie_switch_ref.h). Broadcom's PEX 88000 and
// 89000, vendor 1000, are not among them.
func knownSwitch(d *facts.Device) bool {
	if d == nil {
		return false
	}
	switch d.Vendor {
	case 0x10b5: // PLX
		return d.Device>>8 == 0x87 || d.Device>>8 == 0x97
	case 0x11f8: // PMC-Sierra
		return d.Device>>8 == 0x85 || d.Device>>8 == 0x40
	case 0x15b3: // Mellanox, on the A16
		return d.Device == 0x1976
	case vendorNVIDIA: // BR03, BR04
		return d.Device == 0x01b3 || d.Device>>4 == 0x05b
	}
	return false
}

func (p *pair) allowed() reply {
	return p.each(func(g *gpu) reply {
		if len(g.models) == 0 {
			return unknown(No, "%s is not in the catalog", g.name())
		}
		switch g.models[0].Stock {
		case catalog.Refused:
			return no("it denies the %s", g.name())
		case "":
			return unknown(No, "what it says about the %s is not known", g.name())
		}
		return yes("it allows the %s", g.name())
	})
}

// ReadsFrom returns the first release branch that takes c for a processor that
// forwards peer reads, 0 if none does up to the newest known: AMD by the extended
// family, of which releases know ever more (cpuidInfoAMD in cpu.c; 08h there is
// family 17h), Sapphire Rapids by its model (cpuidInfoIntel).
func ReadsFrom(c facts.CPU) (branch int) {
	switch {
	case c.Vendor == "AuthenticAMD" && c.Family == 0x17: // Zen to Zen 2
		return first
	case c.Vendor == "AuthenticAMD" && c.Family == 0x19: // Zen 3, Zen 4
		return 545
	case c.Vendor == "AuthenticAMD" && c.Family > 0x19: // Zen 5, and what is not known yet
		return 570
	case c.Vendor == "GenuineIntel" && c.Family == 6 && c.Model == 143: // Sapphire Rapids
		return 545
	}
	return 0
}

func (p *pair) host() reply {
	if sw := p.commonSwitch(); sw != "" {
		return yes("both GPUs are below the switch at bus %s", sw)
	}
	c := p.facts.CPU
	if c.Vendor == "" {
		return unknown(No, "the CPU could not be read")
	}
	branch := ReadsFrom(c)
	cpu := func(r reply, what string) reply {
		r.reason = strings.TrimSpace(c.Name+" ") + ", family " + number(c.Family) + " model " + number(c.Model) + ": " + what
		return r
	}
	switch {
	case branch > 0 && p.major >= branch:
		return cpu(yes(""), "the driver knows it")
	case p.major < 545 && (c.Vendor == "AuthenticAMD" || c.Vendor == "GenuineIntel"):
		// One direction is enough for this release.
		r := cpu(yes(""), "the driver allows writes only")
		r.read = rm.P2PUnsupported
		return r
	}
	return cpu(no(""), "the driver does not know it to forward reads")
}
