package acpi

import (
	"fmt"

	"mkp2pimg/firmware-checks/pcicfg"
)

// MCFG says where the configuration space of each PCI segment is mapped.
type MCFG struct {
	Segments []Segment `json:"segments"`
}

// Segment is a range of buses of a PCI segment.
type Segment struct {
	Segment int        `json:"segment"`
	Start   int        `json:"start"` // first bus
	End     int        `json:"end"`   // last bus
	Base    pcicfg.Hex `json:"base"`  // of bus 0, whatever Start is
}

// ParseMCFG decodes the table MCFG.
func ParseMCFG(b []byte) (*MCFG, error) {
	const fixed, size = 44, 16 // of the table, of an allocation
	b, err := open(b, "MCFG", fixed)
	if err != nil {
		return nil, err
	}
	if rest := (len(b) - fixed) % size; rest != 0 {
		return nil, fmt.Errorf("MCFG: %d bytes left over after its allocations of %d bytes", rest, size)
	}
	m := &MCFG{Segments: []Segment{}}
	for s := b[fixed:]; len(s) > 0; s = s[size:] {
		seg := Segment{Segment: u16(s, 8), Start: u8(s, 10), End: u8(s, 11), Base: pcicfg.Hex(u64(s, 0))}
		if seg.End < seg.Start {
			return nil, fmt.Errorf("MCFG: segment %04x has buses %02x to %02x", seg.Segment, seg.Start, seg.End)
		}
		m.Segments = append(m.Segments, seg)
	}
	return m, nil
}
