package acpi

import (
	"maps"
	"slices"

	"mkp2pimg/firmware-checks/pcicfg"
)

// SRAT assigns processors, memory and devices to proximity domains, which Linux
// turns into NUMA nodes. Entries that the firmware disabled are left out.
type SRAT struct {
	Processors []ProcessorAffinity `json:"processors,omitempty"`
	Memory     []MemoryAffinity    `json:"memory,omitempty"`
	// Devices are PCI devices with memory or engines of their own (Generic
	// Initiator and Generic Port Affinity Structures).
	Devices []DeviceAffinity `json:"devices,omitempty"`
}

// ProcessorAffinity says how many logical processors a domain has.
type ProcessorAffinity struct {
	Domain uint32 `json:"domain"`
	Count  int    `json:"count"`
}

// MemoryAffinity is a range of memory in a domain.
type MemoryAffinity struct {
	Domain  uint32     `json:"domain"`
	Base    pcicfg.Hex `json:"base"`
	Size    uint64     `json:"size"` // bytes
	Hotplug bool       `json:"hotplug,omitempty"`
}

// DeviceAffinity is a PCI device in a domain.
type DeviceAffinity struct {
	Domain uint32 `json:"domain"`
	Device string `json:"device"` // address
}

// Affinity structure types (ACPI Specification, "System Resource Affinity
// Table"). A device is a generic initiator or a generic port.
const (
	typeLocalAPIC = 0
	typeMemory    = 1
	typeX2APIC    = 2
	typeInitiator = 5
	typePort      = 6
)

// deviceHandlePCI is the type of device handle that holds a segment and a
// requester ID.
const deviceHandlePCI = 1

var sratKinds = kinds{
	table: "SRAT", header: 2,
	typ:    func(s []byte) int { return u8(s, 0) },
	length: func(s []byte) int { return u8(s, 1) },
	sizes:  map[int]int{typeLocalAPIC: 16, typeMemory: 40, typeX2APIC: 24, typeInitiator: 32, typePort: 32},
}

// ParseSRAT decodes the table SRAT.
func ParseSRAT(b []byte) (*SRAT, error) {
	const fixed = 48
	b, err := open(b, "SRAT", fixed)
	if err != nil {
		return nil, err
	}
	s := new(SRAT)
	processors := map[uint32]int{}
	err = sratKinds.each(b, fixed, func(typ int, e []byte) error {
		switch typ {
		case typeLocalAPIC:
			if u32(e, 4)&1 != 0 { // enabled
				// The upper 24 bits are zero before revision 2.
				processors[uint32(e[2])|uint32(e[9])<<8|uint32(e[10])<<16|uint32(e[11])<<24]++
			}
		case typeX2APIC:
			if u32(e, 12)&1 != 0 {
				processors[u32(e, 4)]++
			}
		case typeMemory:
			if flags := u32(e, 28); flags&1 != 0 {
				s.Memory = append(s.Memory, MemoryAffinity{
					Domain: u32(e, 2), Base: pcicfg.Hex(u64(e, 8)), Size: u64(e, 16), Hotplug: flags&2 != 0,
				})
			}
		case typeInitiator, typePort:
			if u32(e, 24)&1 != 0 && u8(e, 3) == deviceHandlePCI {
				s.Devices = append(s.Devices, DeviceAffinity{Domain: u32(e, 4), Device: address(u16(e, 8), requesterID(e))})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, domain := range slices.Sorted(maps.Keys(processors)) {
		s.Processors = append(s.Processors, ProcessorAffinity{domain, processors[domain]})
	}
	return s, nil
}

// requesterID returns that in the PCI device handle of e, whose bytes are the
// bus number first, then device and function.
func requesterID(e []byte) int { return u8(e, 10)<<8 | u8(e, 11) }
