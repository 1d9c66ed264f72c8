package pcicfg

// Capability identifiers (PCI Code and ID Assignment Specification).
const (
	CapExpress = 0x10 // PCI Express

	ExtCapAER    = 0x0001 // Advanced Error Reporting
	ExtCapSerial = 0x0003 // Device Serial Number
	ExtCapACS    = 0x000d // Access Control Services
	ExtCapATS    = 0x000f // Address Translation Services
	ExtCapReBAR  = 0x0015 // Resizable BAR
)

// Capability is one entry of a capability list.
type Capability struct {
	ID Hex `json:"id"`
	// Version is the capability version of an extended capability, 0 in the
	// conventional list, whose entries have none.
	Version int `json:"version,omitempty"`
	// Offset is the position of the entry in configuration space.
	Offset int `json:"offset"`
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
		d.cfg.Capabilities = append(d.cfg.Capabilities, c)
		if c.ID == CapExpress && d.cfg.Express == nil {
			d.express(off)
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
		d.cfg.ExtendedCapabilities = append(d.cfg.ExtendedCapabilities, c)
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
	case ExtCapATS:
		d.ats(c.Offset)
	case ExtCapReBAR:
		d.rebar(c.Offset)
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
