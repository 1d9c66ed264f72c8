package predict

import (
	"fmt"
	"slices"
	"strconv"

	"mkp2pimg/internal/rm"
)

func number(n int) string { return strconv.Itoa(n) }

// asksBAR1 answers from registry keys alone.
func (p *pair) asksBAR1() reply {
	t := p.linkType()
	if p.major <= joint {
		if t == jointBAR1 {
			return yes("%s=%d", rm.KeyForceP2PType, t)
		}
		return no("%s is %d, BAR1 is %d", rm.KeyForceP2PType, t, jointBAR1)
	}
	if t != typeDefault && t != typePCIe {
		return no("%s=%d leaves PCIe out of BAR1", rm.KeyForceP2PType, t)
	}
	switch v := p.key(rm.KeyPCIeP2PType); v {
	case pcieBAR1, pcieAuto:
		return yes("%s=%d", rm.KeyPCIeP2PType, v)
	default:
		return no("%s is %d, the mailbox", rm.KeyPCIeP2PType, v)
	}
}

func (p *pair) forcedFirst() reply {
	if p.Edited {
		return no("the P2P edits look at the GPUs first") // P2P-E5-ORDER
	}
	return p.forced()
}

// forcedLast answers for the place behind STATIC, where ForceP2P is heeded from
// 575 on, and before with the edits P2P-E5-FORCE and P2P-E5-ORDER.
func (p *pair) forcedLast() reply {
	if p.major <= joint && !p.Edited {
		return no("this release does not heed it here")
	}
	return p.forced()
}

// hasBAR1 answers from the table of functions by chip.
func (p *pair) hasBAR1() reply {
	if p.Edited {
		return yes("the P2P edits give the functions of Hopper to all chips")
	}
	return p.each(func(g *gpu) reply {
		from := 0
		switch g.series() {
		case "":
			return unknown(No, "%s is not in the catalog", g.name())
		case hopper:
			from = first
		case blackwell:
			from = 560
		case geforce:
			from = 570
		}
		if from > 0 && p.major >= from {
			return yes("%s has the functions", g.name())
		}
		return no("%s, a chip of %s, has a stub", g.name(), g.series())
	})
}

func (p *pair) byName() reply {
	if v := p.key(rm.KeyPCIeP2PType); v == pcieBAR1 {
		return yes("%s=%d", rm.KeyPCIeP2PType, v)
	}
	// PDB_PROP_KBUS_SUPPORT_BAR1_P2P_BY_DEFAULT of the first GPU.
	switch p.a.series() {
	case "":
		return unknown(No, "%s is not in the catalog", p.a.name())
	case geforce:
		return yes("%s has BAR1 by default", p.a.name())
	}
	return no("%s=%d, and %s does not have BAR1 by default", rm.KeyPCIeP2PType, p.key(rm.KeyPCIeP2PType), p.a.name())
}

// Values of RMForceStaticBar1 (NV_REG_STR_RM_FORCE_STATIC_BAR1_*).
const (
	staticOff    = 0
	staticForce  = 1
	staticAuto   = 2
	staticIfAsks = 3 // 565 and 570: where BAR1 is chosen and memory fits
)

// staticMode returns how the release decides about static BAR1.
func (m *machine) staticMode() uint32 {
	if m.major < 565 {
		return staticIfAsks // there is no key
	}
	if v, set := m.Keys[KeyForceStaticBAR1]; set {
		return v
	}
	switch {
	case m.major <= joint:
		return staticIfAsks
	case m.major < 580:
		return staticOff
	}
	return staticAuto
}

// Room that static BAR1 takes beside the memory. By itself it needs a console,
// a mailbox, the 512 MiB to which they are rounded up, and little more
// (kbusIsStaticBar1Supported_TU102); where BAR1 was chosen 128 KiB.
const (
	roomAuto  = 1 << 30
	roomAsked = 2 << 20
)

func (p *pair) static() reply {
	mode := p.staticMode()
	if mode == staticOff {
		return no("%s is 0", KeyForceStaticBAR1)
	}
	room := uint64(0)
	switch mode {
	case staticAuto:
		room = roomAuto
	case staticIfAsks:
		room = roomAsked
	}
	return p.each(func(g *gpu) reply {
		if p.major >= 580 && g.nvml != nil && g.nvml.Protected != nil && *g.nvml.Protected > 0 {
			return no("confidential computing is on on %s", g.name())
		}
		r := g.fits(room, p.Resize)
		if r.verdict == No && mode == staticForce && p.major >= 570 {
			r.reason += fmt.Sprintf("; with %s=1 the driver does not start it", KeyForceStaticBAR1)
		}
		return r
	})
}

// fits says whether BAR1 of g holds all its memory and some room, now or, if the
// driver may resize it, at its largest.
func (g *gpu) fits(room uint64, resize bool) reply {
	fb, _ := g.Framebuffer()
	size, largest, assigned := fb.Size, fb.Largest(), fb.Assigned
	if g.nvml != nil && g.nvml.BAR1 > 0 {
		size, assigned = g.nvml.BAR1, true
	}
	if !assigned {
		return no("BAR1 of %s at %s has no address", g.name(), g.Address)
	}
	now := g.holds(size, room)
	if !resize || largest <= size || now.verdict == Yes {
		return now
	}
	grown := g.holds(largest, room)
	if grown.verdict == No {
		return now
	}
	return unknown(grown.likely, "%s; the driver may enlarge BAR1 to %s if the bridges above have room", now.reason, mib(largest))
}

// holds says whether a BAR1 of some size holds all memory of g and some room.
func (g *gpu) holds(size, room uint64) reply {
	least, likely, most := g.memory()
	text := fmt.Sprintf("BAR1 of %s at %s is %s, its memory %s", g.name(), g.Address, mib(size), mib(likely))
	switch {
	case likely == 0:
		return unknown(No, "the memory of %s is not known", g.name())
	case size >= most+room:
		return yes("%s", text)
	case size >= likely+room:
		return unknown(Yes, "%s as first sold, %s at most", text, mib(most))
	case size >= likely:
		return unknown(Yes, "%s, and only the driver knows whether a console and the like still fit", text)
	// The driver maps the memory that it uses, which is a little less.
	case size >= least-least/8:
		return unknown(No, "%s", text)
	}
	return no("%s", text)
}

// memory returns the least, the likely and the most memory of g in bytes; 0 if
// that is not known.
func (g *gpu) memory() (least, likely, most uint64) {
	if g.nvml != nil && g.nvml.Memory > 0 {
		return g.nvml.Memory, g.nvml.Memory, g.nvml.Memory
	}
	for _, m := range g.models {
		if len(m.Memory) == 0 {
			return 0, 0, 0
		}
		if likely == 0 {
			likely, least = m.Memory[0]<<30, m.Memory[0]<<30
		}
		least = min(least, slices.Min(m.Memory)<<30)
		most = max(most, m.MostMemory()<<20)
	}
	return least, likely, most
}

// mib writes a size in MiB.
func mib(n uint64) string { return fmt.Sprintf("%d MiB", n>>20) }

// mayFallBack answers what follows when BAR1 is not granted.
func (p *pair) mayFallBack() reply {
	if !p.Edited {
		return yes("the driver grants the mailbox to whom it does not grant BAR1")
	}
	asked := p.linkType() == jointBAR1
	if p.major > joint {
		asked = p.key(rm.KeyPCIeP2PType) == pcieBAR1
	}
	if asked {
		return no("BAR1 was chosen, and the P2P edits don't let a mailbox stand in that was not set up")
	}
	return yes("BAR1 was not chosen")
}

// entries answers for the page table entries of peers, which know BAR1 from 580
// on, and before with the edits P2P-E3.
func (p *pair) entries() reply {
	switch {
	case p.major >= 580:
		return yes("this release does so")
	case p.Edited:
		return yes("the P2P edits do so")
	}
	return no("this release knows peers by a peer ID only, and a BAR1 peer has none")
}

// mailboxSetUp answers for a mailbox that is granted. Once BAR1 is chosen the
// driver sets none up, from 565 on anyway, before where it could map all memory.
func (p *pair) mailboxSetUp() reply {
	chosen := p.linkType() == jointBAR1
	if p.major > joint {
		chosen = p.key(rm.KeyPCIeP2PType) == pcieBAR1
	}
	switch {
	case !chosen:
		return yes("BAR1 was not chosen")
	case p.major >= 565:
		return no("BAR1 was chosen, so the driver sets no mailbox up")
	case p.hasBAR1().verdict == No:
		return yes("this release sets it up where it has no static BAR1")
	}
	return unknown(No, "this release sets it up on GPUs without static BAR1 only")
}
