package pcicfg

import "slices"

// Capability identifiers (PCI Code and ID Assignment Specification).
const (
	CapSubsystem = 0x0d // Subsystem ID of a bridge
	CapExpress   = 0x10 // PCI Express

	ExtCapAER             = 0x0001 // Advanced Error Reporting
	ExtCapSerial          = 0x0003 // Device Serial Number
	ExtCapACS             = 0x000d // Access Control Services
	ExtCapARI             = 0x000e // Alternative Routing-ID Interpretation
	ExtCapATS             = 0x000f // Address Translation Services
	ExtCapSRIOV           = 0x0010 // Single Root I/O Virtualization
	ExtCapPRI             = 0x0013 // Page Request
	ExtCapReBAR           = 0x0015 // Resizable BAR
	ExtCapPASID           = 0x001b // Process Address Space ID
	ExtCapDPC             = 0x001d // Downstream Port Containment
	ExtCapL1Substates     = 0x001e // L1 PM Substates
	ExtCapVFReBAR         = 0x0024 // VF Resizable BAR
	ExtCapDataLinkFeature = 0x0025 // Data Link Feature
	ExtCapPhysical16      = 0x0026 // Physical Layer 16.0 GT/s
	ExtCapMargining       = 0x0027 // Lane Margining at the Receiver
	ExtCapPhysical32      = 0x002a // Physical Layer 32.0 GT/s
	ExtCapDevice3         = 0x002f // Device 3
	ExtCapIDE             = 0x0030 // Integrity and Data Encryption
	ExtCapPhysical64      = 0x0031 // Physical Layer 64.0 GT/s
)

// Registers of the Subsystem ID and Subsystem Vendor ID capability (PCI-to-PCI
// Bridge Architecture Specification 1.2).
const (
	subsystemVendor = 0x04
	subsystemDevice = 0x06
	subsystemSize   = 0x08
)

// usualCapabilities is how long a list is expected to be.
const usualCapabilities = 12

// Capability is one entry of a capability list.
type Capability struct {
	ID Hex `json:"id"`
	// Version is the capability version of an extended capability, 0 in the
	// conventional list, whose entries have none.
	Version int `json:"version,omitempty"`
	// Offset is the position of the entry in configuration space.
	Offset int `json:"offset"`
}

// HasExtended reports whether the function has the extended capability id.
// known is false when it was not found in a list that could not be read to its
// end: then nothing can be said.
func (c *Config) HasExtended(id Hex) (has, known bool) {
	has = slices.ContainsFunc(c.ExtendedCapabilities, func(e Capability) bool { return e.ID == id })
	return has, has || c.ExtendedRead
}

// capabilities walks the list that starts at 0x34. Each entry is a byte of
// identifier and a byte that points to the next one; the low two bits of a
// pointer are reserved.
func (d *decoder) capabilities() {
	if d.cfg.Status&statusCapList == 0 || d.cfg.HeaderType > 1 {
		return
	}
	var seen [ConventionalSize]bool
	for off := int(d.u8(offCapPointer) &^ 3); off != 0; {
		switch {
		case off < HeaderSize:
			d.unknown("capability list points into the header at %#x", off)
			return
		case !d.has(off, 2):
			d.unknown("capability at %#x lies beyond the %d bytes of the dump", off, d.cfg.Length)
			return
		case seen[off]:
			d.unknown("capability list loops back to %#x", off)
			return
		}
		seen[off] = true
		c := Capability{ID: Hex(d.u8(off)), Offset: off}
		if c.ID == 0xff {
			d.unknown("capability at %#x reads all ones", off)
			return
		}
		d.cfg.Capabilities = appendCapability(d.cfg.Capabilities, c)
		switch {
		case c.ID == CapExpress && d.cfg.Express == nil:
			d.express(off)
		case c.ID == CapSubsystem && d.cfg.Bridge != nil:
			d.subsystem(off)
		}
		off = int(d.u8(off+1) &^ 3)
	}
}

// extended walks the list that starts at 0x100. An entry is a 32-bit header:
// identifier 15:0, version 19:16, next offset 31:20, whose low two bits are
// reserved. A header of zero at 0x100 says that there is none.
func (d *decoder) extended() {
	if d.cfg.Length <= ConventionalSize {
		d.cfg.ExtendedRead = d.cfg.Length == ConventionalSize && d.cfg.Express == nil && d.cfg.Unknown == nil
		if !d.cfg.ExtendedRead {
			d.unknown("extended capabilities (ACS, Resizable BAR, ATS, AER) lie beyond the %d bytes of the dump; read it as root", d.cfg.Length)
		}
		return
	}
	var seen [ExtendedSize]bool
	for off := ConventionalSize; off != 0; {
		switch {
		case off < ConventionalSize:
			d.unknown("extended capability list points outside its space at %#x", off)
			return
		case !d.has(off, 4):
			d.unknown("extended capability at %#x lies beyond the %d bytes of the dump", off, d.cfg.Length)
			return
		case seen[off]:
			d.unknown("extended capability list loops back to %#x", off)
			return
		}
		seen[off] = true
		h := d.u32(off)
		if h == 0 {
			break
		}
		if h == 0xffffffff {
			d.unknown("extended capability at %#x reads all ones", off)
			return
		}
		c := Capability{ID: Hex(h & 0xffff), Version: int(h >> 16 & 0xf), Offset: off}
		d.cfg.ExtendedCapabilities = appendCapability(d.cfg.ExtendedCapabilities, c)
		d.extendedCapability(c)
		off = int(h >> 20 &^ 3)
	}
	d.cfg.ExtendedRead = true
}

func (d *decoder) extendedCapability(c Capability) {
	switch c.ID {
	case ExtCapAER:
		d.aer(c.Offset)
	case ExtCapACS:
		d.acs(c.Offset)
	case ExtCapARI:
		d.ari(c.Offset)
	case ExtCapATS:
		d.ats(c.Offset)
	case ExtCapSRIOV:
		d.sriov(c.Offset)
	case ExtCapPRI:
		d.pri(c.Offset)
	case ExtCapReBAR:
		d.rebar("Resizable BAR", c.Offset, &d.cfg.ResizableBARs)
	case ExtCapPASID:
		d.pasid(c.Offset)
	case ExtCapDPC:
		d.dpc(c.Offset)
	case ExtCapL1Substates:
		d.l1Substates(c.Offset)
	case ExtCapVFReBAR:
		d.rebar("VF Resizable BAR", c.Offset, &d.cfg.VFResizableBARs)
	case ExtCapDataLinkFeature:
		d.dataLinkFeature(c.Offset)
	case ExtCapPhysical16:
		d.physical("Physical Layer 16.0 GT/s", c.Offset, &d.cfg.Physical16)
	case ExtCapPhysical32:
		d.physical("Physical Layer 32.0 GT/s", c.Offset, &d.cfg.Physical32)
	case ExtCapPhysical64:
		d.physical("Physical Layer 64.0 GT/s", c.Offset, &d.cfg.Physical64)
	case ExtCapDevice3:
		d.device3(c.Offset)
	}
}

// appendCapability is append, with room for a list of the usual length.
func appendCapability(list []Capability, c Capability) []Capability {
	if list == nil {
		list = make([]Capability, 0, usualCapabilities)
	}
	return append(list, c)
}

func (d *decoder) subsystem(off int) {
	if d.capture("Subsystem ID", off, subsystemSize) {
		d.cfg.SubsystemVendor = Hex(d.u16(off + subsystemVendor))
		d.cfg.SubsystemDevice = Hex(d.u16(off + subsystemDevice))
	}
}

// capture reports whether the n bytes of the capability called name at off are
// in the dump, and notes it as unknown when they are not.
func (d *decoder) capture(name string, off, n int) bool {
	if d.has(off, n) {
		return true
	}
	d.unknown("%s capability at %#x is cut off by the end of the %d byte dump", name, off, d.cfg.Length)
	return false
}
