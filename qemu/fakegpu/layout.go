package fakegpu

import "math/bits"

// Capability ids, PCI Code and ID Assignment Specification 1.15, sections 2
// and 3.
const (
	capPM      = 0x01
	capMSI     = 0x05
	capVendor  = 0x09
	capExpress = 0x10
	capMSIX    = 0x11

	extAER         = 0x01
	extVC          = 0x02
	extPower       = 0x04
	extVendor      = 0x0b
	extATS         = 0x0f
	extReBAR       = 0x15
	extLTR         = 0x18
	extSecondary   = 0x19
	extL1PM        = 0x1e
	extDataLink    = 0x25
	extPhysical16G = 0x26
	extMargining   = 0x27
	extPhysical32G = 0x2a
)

// offsets says where the code that emulates a function finds its registers; 0
// is a capability that is not there.
type offsets struct {
	express int
	rebar   int
}

// A link is what the PCI Express capability says about the link.
type link struct {
	maxSpeed, maxWidth int
	speed, width       int
}

// layOut places a GPU's capabilities.
func (c Config) layOut(s *space) offsets {
	l := link{c.Model.Speed, c.Model.Width, c.Speed, c.Width}
	if c.Model.Layout == GH100 {
		return c.layOutGH100(s, l)
	}
	return c.layOutGA102(s, l)
}

// layOutGA102 has the values that lspci prints for an RTX A6000; registers it
// does not print are zero.
func (c Config) layOutGA102(s *space, l link) offsets {
	o := offsets{express: 0x78}
	s.powerManagement(0x60, 0x4803) // version 3, PME# from D0 and D3hot
	s.msi(0x68, 0x0080)             // one vector, 64-bit address
	s.express(o.express, express{
		portType: 1, // legacy endpoint
		// 256 byte payload, L0s any, L1 64 us, extended tags, role-based error
		// reporting, FLR
		devCap:  0x1000_8de1,
		devCap2: 0x0007_0013, // completion timeout ranges A B and none, 10-bit tags, OBFF
		// ASPM L0s (512 ns) and L1 (4 us), clock power management, ASPM optionality
		linkCap: 0x0045_3c00,
		link:    l,
	})
	s.vendorSpecific(0xb4, 0x14)

	s.extended(extVC, 1, 0x100)
	s.set32(0x114, 0x8000_0001, 0) // VC0 enabled for TC0
	s.extended(extL1PM, 1, 0x258)
	s.set32(0x25c, 0x0028_ff1f, 0) // all substates, 255 us common mode, 10 us power on
	s.set32(0x260, 0, 0xffff_ff0f)
	s.set32(0x264, 0x28, 0xfb)
	s.extended(extPower, 1, 0x128)
	s.aer(0x420, 0x0010_0000, 0x0007_6030, 0)
	s.extended(extVendor, 1, 0x600)
	s.set32(0x604, 0x0241_0001, 0) // id 1, revision 1, length 0x24
	s.secondary(0x900)
	if !c.NoReBAR {
		o.rebar = 0xbb0
		s.rebar(o.rebar, c.Model.BARs, true)
	}
	s.extended(extPhysical16G, 1, 0xc1c)
	s.extended(extMargining, 1, 0xd00)
	s.dataLink(0xe00)
	if c.ATS {
		s.ats(0xf00)
	}
	return o
}

// layOutGH100 has the values of the configuration space of an H200. There, a
// hypervisor had hidden what is at 0x100, 0x134 and 0x14c to 0x1b8; the ids are
// those of the bytes that it left, and for 0x134 those lspci shows of an H20.
// SR-IOV and what belongs to it is left out, for its functions are.
func (c Config) layOutGH100(s *space, l link) offsets {
	o := offsets{express: 0x60}
	s.powerManagement(0x40, 0x0013)
	s.msi(0x48, 0x0188) // 16 vectors, 64-bit address, maskable
	portType := uint16(0)
	if c.Model.Class>>8 == 0x0300 {
		portType = 1 // the kernel's log of an RTX 5090: legacy endpoint
	}
	s.express(o.express, express{
		portType: portType,
		devCap:   0x112c_8021,
		devCap2:  0x0007_0813, // as GA102, and LTR
		linkCap:  0x0045_7800,
		link:     l,
	})
	s.msix(0xb0, 9, 0xb9_0000, 0xba_0000)

	s.secondary(0x100)
	s.extended(extLTR, 1, 0x12c)
	if !c.NoReBAR {
		o.rebar = 0x134
		s.rebar(o.rebar, c.Model.BARs, false)
	}
	s.dataLink(0x14c)
	s.extended(extPhysical16G, 1, 0x158)
	s.extended(extPhysical32G, 1, 0x188)
	s.aer(0x1b8, 0x0018_0000, 0x0046_3030, 0xa0)
	s.extended(extMargining, 1, 0x200)
	s.extended(extVendor, 1, 0x2a4)
	s.set32(0x2a8, 0x0141_0001, 0) // id 1, revision 1, length 0x14
	s.extended(extPower, 1, 0x2b8)
	if c.ATS {
		s.ats(0x300)
	}
	return o
}

// powerManagement places the capability of PCIe 6.0, 7.5.2.
func (s *space) powerManagement(off int, capabilities uint16) {
	s.capability(capPM, off)
	s.set16(off+2, capabilities, 0)
	s.set16(off+4, 0x0008, 0x0103) // no soft reset; power state and PME_En
}

// msi places the capability of PCIe 6.0, 7.7.1, with a 64-bit address.
func (s *space) msi(off int, control uint16) {
	s.capability(capMSI, off)
	s.set16(off+2, control, 0x0071)
	s.set32(off+4, 0, 0xffff_fffc)
	s.set32(off+8, 0, 0xffff_ffff)
	s.set16(off+12, 0, 0xffff)
	if control&0x100 != 0 {
		s.set32(off+16, 0, 0xffff_ffff)
	}
}

// msix places the capability of PCIe 6.0, 7.7.2, with table and pending bits
// in BAR 0.
func (s *space) msix(off int, vectors uint16, table, pending uint32) {
	s.capability(capMSIX, off)
	s.set16(off+2, vectors-1, 0xc000)
	s.set32(off+4, table, 0)
	s.set32(off+8, pending, 0)
}

func (s *space) vendorSpecific(off int, length uint8) {
	s.capability(capVendor, off)
	s.value[off+2] = length
}

// express is the part of the PCI Express capability that differs.
type express struct {
	portType        uint16
	devCap, devCap2 uint32
	linkCap         uint32 // without speed and width
	link            link
}

// Registers of the PCI Express capability, PCIe 6.0, 7.5.3.
const (
	expDevCtl  = 0x08
	expDevSta  = 0x0a
	expLnkCap  = 0x0c
	expLnkCtl  = 0x10
	expLnkSta  = 0x12
	expDevCap2 = 0x24
	expDevCtl2 = 0x28
	expLnkCap2 = 0x2c
	expLnkCtl2 = 0x30
	expLnkSta2 = 0x32

	devCtlFLR = 1 << 15
)

// express places the capability of PCIe 6.0, 7.5.3.
func (s *space) express(off int, e express) {
	s.capability(capExpress, off)
	s.set16(off+2, 2|e.portType<<4, 0) // version 2
	s.set32(off+4, e.devCap, 0)
	s.set16(off+expDevCtl, 0x2910, 0x79ff) // relaxed ordering, extended tags, no snoop, 512 byte reads
	s.clear16(off+expDevSta, 0x000f)
	s.set32(off+expLnkCap, e.linkCap|uint32(e.link.maxSpeed)|uint32(e.link.maxWidth)<<4, 0)
	s.set16(off+expLnkCtl, 0, 0x01c3)
	s.set16(off+expLnkSta, 1<<12|uint16(e.link.speed)|uint16(e.link.width)<<4, 0) // slot clock
	s.set32(off+expDevCap2, e.devCap2, 0)
	s.set16(off+expDevCtl2, 0, 0x75ff)
	// Supported Link Speeds Vector, bits 7:1; retimers detected, bits 23 and 24
	s.set32(off+expLnkCap2, 0x0180_0000|(1<<e.link.maxSpeed-1)<<1, 0)
	s.set16(off+expLnkCtl2, uint16(e.link.maxSpeed), 0xffff)
	s.set16(off+expLnkSta2, 0x001e, 0) // equalization complete, phases 1 to 3
}

// Bits of errors, PCIe 6.0, 7.8.4.2 and 7.8.4.5.
const (
	uncorrectable = 0x007f_f030
	correctable   = 0x0000_f1c1
)

// aer places the capability of PCIe 6.0, 7.8.4.
func (s *space) aer(off int, mask, severity, control uint32) {
	s.extended(extAER, 2, off)
	s.clear32(off+0x04, uncorrectable)
	s.set32(off+0x08, mask, uncorrectable)
	s.set32(off+0x0c, severity, uncorrectable)
	s.clear32(off+0x10, correctable)
	s.set32(off+0x14, 0, correctable)
	s.set32(off+0x18, control, control&0xa0<<1) // enable bits of what is capable
}

// secondary places the capability of PCIe 6.0, 7.7.3.
func (s *space) secondary(off int) {
	s.extended(extSecondary, 1, off)
	s.clear32(off+8, 0xffff) // lane errors
}

// dataLink places the capability of PCIe 6.0, 7.7.4.
func (s *space) dataLink(off int) {
	s.extended(extDataLink, 1, off)
	s.set32(off+4, 0x8000_0001, 1<<31) // scaled flow control
	s.set32(off+8, 0x8000_0001, 0)     // so has the other side
}

// ats places the capability of PCIe 6.0, 10.5.1.
func (s *space) ats(off int) {
	s.extended(extATS, 1, off)
	s.set16(off+4, 1<<5, 0) // page aligned requests; 32 invalidations
	s.set16(off+6, 0, 0x801f)
}

// Fields of the Resizable BAR capability, PCIe 6.0, 7.8.6: one pair of
// capability and control register for each BAR.
const (
	rebarEntry     = 8
	rebarControl   = 8 // of the first pair, from the header on
	rebarSizeShift = 8
	rebarSizeMask  = 0x3f << rebarSizeShift
	rebarCount     = 5 // shift of the number of BARs, first pair only
	maxBAR         = Size(1) << 47
)

// rebarCode is a size as the control register has it.
func rebarCode(s Size) uint32 { return uint32(bits.TrailingZeros64(uint64(s / MiB))) }

// rebar places the Resizable BAR capability. Boards with the GA102 layout list
// their other memory BARs, with the one size they have, as well.
func (s *space) rebar(off int, bars []BAR, all bool) {
	s.extended(extReBAR, 1, off)
	n := 0
	for _, b := range bars {
		switch {
		case b.Resizable():
		case all && !b.IO:
			b.Sizes = Sizes{b.Size}
		default:
			continue
		}
		var sizes uint32
		for _, size := range b.Sizes {
			sizes |= 1 << rebarCode(size)
		}
		at := off + rebarControl + n*rebarEntry
		s.set32(at-4, sizes<<4, 0)
		s.set32(at, uint32(b.Index)|rebarCode(b.Size)<<rebarSizeShift, rebarSizeMask)
		n++
	}
	s.value[off+rebarControl] |= uint8(n << rebarCount)
}
