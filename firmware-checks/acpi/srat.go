package acpi

import "mkp2pimg/firmware-checks/pcicfg"

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
