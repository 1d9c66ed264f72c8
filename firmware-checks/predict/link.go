package predict

import (
	"fmt"
	"slices"

	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/catalog"
)

// migChips can be divided (MIG User Guide, "Supported GPUs"); of GB202 the RTX
// PRO models can.
var migChips = []string{"GA100", "GH100", "GB100", "GB102", "GB202"}

func (p *pair) known() reply {
	return p.each(func(g *gpu) reply {
		if len(g.models) == 0 {
			return unknown(Yes, "%s is not in the catalog", g.name())
		}
		f := catalog.Load().Family(g.models[0].Family)
		if f == nil {
			return unknown(Yes, "the catalog has no family %q", g.models[0].Family)
		}
		if p.major < f.First {
			return no("%d is the first release for %s", f.First, g.name())
		}
		return yes("%s is driven from %d on", g.name(), f.First)
	})
}

func (p *pair) migOff() reply {
	return p.each(func(g *gpu) reply {
		switch {
		case g.nvml != nil && g.nvml.MIG == "Enabled":
			return no("MIG is on on %s", g.name())
		case g.nvml != nil && g.nvml.MIG != "":
			return yes("MIG is %s on %s", g.nvml.MIG, g.name())
		case g.chip() == "":
			return unknown(Yes, "%s is not in the catalog", g.name())
		case !slices.Contains(migChips, g.chip()), g.models[0].Stock == catalog.Refused:
			return yes("%s has no MIG", g.name())
		}
		return unknown(Yes, "without a driver it can't be told whether MIG is on on %s", g.name())
	})
}

func (p *pair) c2c() reply {
	if t := p.linkType(); t != typeDefault && t != typeC2C {
		return no("%s=%d leaves C2C out", rm.KeyForceP2PType, t)
	}
	return p.each(func(g *gpu) reply {
		if g.chip() == "" {
			return unknown(No, "%s is not in the catalog", g.name())
		}
		// What the catalog has are cards and modules. Superchips with C2C
		// have device IDs of their own.
		return no("%s has no C2C", g.name())
	})
}

// nvlinkChips have NVLink on some of their boards.
var nvlinkChips = []string{"TU102", "TU104", "GA100", "GA102", "GH100", "GB100", "GB102"}

func (p *pair) nvlink() reply {
	t := p.linkType()
	allowed := []uint32{typeDefault, typeNVLink}
	if p.major <= joint {
		allowed[1] = jointNVLink
		if p.Edited {
			allowed = append(allowed, jointBAR1) // P2P-E5-NVLINK
		}
	}
	if !slices.Contains(allowed, t) {
		return no("%s=%d leaves NVLink out", rm.KeyForceP2PType, t)
	}
	return p.each(func(g *gpu) reply {
		switch {
		case g.chip() == "":
			return unknown(No, "%s is not in the catalog", g.name())
		case !slices.Contains(nvlinkChips, g.chip()):
			return no("%s has no NVLink", g.name())
		case g.onNVSwitch():
			return unknown(Yes, "%s is on a board with NVSwitch; NVLink does not show on PCI", g.name())
		}
		return unknown(No, "an NVLink bridge on %s would not show on PCI", g.name())
	})
}

// onNVSwitch reports whether g is of a model that sits on a board with NVSwitch.
func (g *gpu) onNVSwitch() bool {
	return len(g.models) > 0 && slices.Contains(g.models[0].Traps, "nvswitch")
}

// classBridgeOther is the class of an NVSwitch, "other bridge device".
const classBridgeOther = 0x0680

func (p *pair) noNVSwitch() reply {
	for i := range p.facts.Devices {
		if d := &p.facts.Devices[i]; d.Vendor == vendorNVIDIA && d.Class>>8 == classBridgeOther {
			if r := p.each(noLinks); r.verdict == Yes {
				return r
			}
			return no("there is an NVSwitch at %s", d.Address)
		}
	}
	return p.each(func(g *gpu) reply {
		if r := noLinks(g); r.verdict == Yes {
			return r
		}
		if g.onNVSwitch() {
			return unknown(No, "%s is on a board with NVSwitch, which a virtual machine does not show", g.name())
		}
		return yes("there is no NVSwitch")
	})
}

// noLinks says yes for a GPU that has no NVLink.
func noLinks(g *gpu) reply {
	if g.chip() != "" && !slices.Contains(nvlinkChips, g.chip()) {
		return yes("%s has no NVLink", g.name())
	}
	return no("%s may have NVLink", g.name())
}

// Fields of ForceP2P (NV_REG_STR_CL_FORCE_P2P_* in nvrm_registry.h): reads in
// bits 1:0, writes in bits 5:4; 0 is off, 1 on, 2 as if not set, which leaves
// the status at "not supported".
func force(value uint32) (read, write rm.P2PStatus) {
	status := func(v uint32) rm.P2PStatus {
		switch v & 3 {
		case 0:
			return rm.Disabled
		case 1:
			return rm.P2POK
		}
		return rm.P2PUnsupported
	}
	return status(value), status(value >> 4)
}

// forceSet returns the statuses that ForceP2P sets, and whether it is set.
func (m *machine) forceSet() (read, write rm.P2PStatus, set bool) {
	v, set := m.Keys[rm.KeyForceP2P]
	if !set {
		return rm.P2POK, rm.P2POK, false
	}
	read, write = force(v)
	return read, write, true
}

func (m *machine) forceText() string {
	return fmt.Sprintf("%s=0x%x", rm.KeyForceP2P, m.Keys[rm.KeyForceP2P])
}

func (p *pair) notForcedOff() reply {
	read, write, set := p.forceSet()
	switch {
	case !set:
		return yes("%s is not set", rm.KeyForceP2P)
	case read == rm.P2POK || write == rm.P2POK:
		return yes("%s", p.forceText())
	}
	r := no("%s allows neither reads nor writes", p.forceText())
	r.read, r.write = read, write
	return r
}

func (p *pair) forced() reply {
	read, write, set := p.forceSet()
	if !set {
		return no("%s is not set", rm.KeyForceP2P)
	}
	r := yes("%s", p.forceText())
	r.read, r.write = read, write
	return r
}
