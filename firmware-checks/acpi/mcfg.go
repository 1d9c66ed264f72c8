package acpi

import "mkp2pimg/firmware-checks/pcicfg"

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
