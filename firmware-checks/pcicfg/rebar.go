package pcicfg

import "math/bits"

// Resizable BAR and VF Resizable BAR Extended Capabilities (PCIe 6.0 §7.8.6 and
// §7.8.7), which share one layout. Pairs of a capability and a control
// register, one pair per resizable BAR. A size code
// n stands for 1 MiB << n. Codes 0 to 27 (128 TiB) are bits 31:4 of the
// capability register, codes 28 to 43 (256 TiB to 8 EiB) bits 31:16 of the
// control register; headers made before the latter existed mask them away.
const (
	rebarFirst  = 0x04
	rebarStride = 0x08
	rebarCtl    = 0x04 // within a pair

	rebarMax           = 6 // one per BAR
	rebarCapShift      = 4
	rebarCapCodes      = 28
	rebarCtlHighShift  = 16
	rebarIndexMask     = 0x7
	rebarCountShift    = 5
	rebarCountMask     = 0x7
	rebarSizeShift     = 8
	rebarSizeMask      = 0x3f
	rebarLargestCode   = 43
	rebarUnitSizeShift = 20
)

// ResizableBAR is one entry of the Resizable BAR capability, or of that for the
// BARs of virtual functions.
type ResizableBAR struct {
	// BAR is the index of the register, 0 to 5.
	BAR int `json:"bar"`
	// Sizes has bit n set when the BAR can be 1 MiB << n large.
	Sizes Hex `json:"sizes"`
	// Size is the size in use, in bytes, 0 when the register holds no valid
	// code.
	Size uint64 `json:"size"`
}

// MaxSize returns the largest size the BAR can take, in bytes, 0 when it lists
// none.
func (r ResizableBAR) MaxSize() uint64 {
	if r.Sizes == 0 {
		return 0
	}
	return SizeOfCode(bits.Len64(uint64(r.Sizes)) - 1)
}

// SizeOfCode returns the bytes that a Resizable BAR size code stands for, 0
// when the specification defines no such code.
func SizeOfCode(code int) uint64 {
	if code < 0 || code > rebarLargestCode {
		return 0
	}
	return 1 << (code + rebarUnitSizeShift)
}

func (d *decoder) rebar(name string, off int, into *[]ResizableBAR) {
	if *into != nil || !d.capture(name, off, rebarFirst+rebarStride) {
		return
	}
	n := int(d.u32(off+rebarFirst+rebarCtl) >> rebarCountShift & rebarCountMask)
	if n < 1 || n > rebarMax {
		d.unknown("%s capability at %#x claims %d entries, the specification allows 1 to %d", name, off, n, rebarMax)
		return
	}
	if !d.capture(name, off, rebarFirst+n*rebarStride) {
		return
	}
	entries := make([]ResizableBAR, n)
	for i := range entries {
		pair := off + rebarFirst + i*rebarStride
		capable, ctl := d.u32(pair), d.u32(pair+rebarCtl)
		entries[i] = ResizableBAR{
			BAR:   int(ctl & rebarIndexMask),
			Sizes: Hex(capable>>rebarCapShift) | Hex(ctl>>rebarCtlHighShift)<<rebarCapCodes,
			Size:  SizeOfCode(int(ctl >> rebarSizeShift & rebarSizeMask)),
		}
	}
	*into = entries
}
