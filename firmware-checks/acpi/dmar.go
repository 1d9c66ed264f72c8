package acpi

import "mkp2pimg/firmware-checks/pcicfg"

// DMAR describes Intel's IOMMUs.
type DMAR struct {
	// HostAddressWidth is the widest physical address that devices can reach, in
	// bits.
	HostAddressWidth int `json:"host_address_width"`
	// InterruptRemapping says that the platform can remap interrupts.
	InterruptRemapping bool `json:"interrupt_remapping"`
	// X2APICOptOut asks the kernel to stay out of x2APIC mode.
	X2APICOptOut bool `json:"x2apic_opt_out"`
	// DMAOptIn (DMA_CTRL_PLATFORM_OPT_IN_FLAG) says that the firmware protects
	// itself from DMA until the kernel takes over. Linux then turns the IOMMU on
	// for devices outside the case.
	DMAOptIn bool   `json:"dma_opt_in"`
	Units    []DRHD `json:"units"`
	Reserved []RMRR `json:"reserved,omitempty"`
	ATS      []ATSR `json:"ats,omitempty"`
	Affinity []RHSA `json:"affinity,omitempty"`
}

// DRHD is a DMA remapping hardware unit.
type DRHD struct {
	Segment int        `json:"segment"`
	Base    pcicfg.Hex `json:"base"` // of its registers
	// All says that the unit translates for every device of the segment that no
	// other unit names.
	All    bool    `json:"all"`
	Scopes []Scope `json:"scopes,omitempty"`
}

// RMRR is memory that the firmware shares with devices, which the IOMMU must
// map as it is.
type RMRR struct {
	Segment int        `json:"segment"`
	Base    pcicfg.Hex `json:"base"`
	Limit   pcicfg.Hex `json:"limit"` // last byte
	Scopes  []Scope    `json:"scopes,omitempty"`
}

// ATSR names the root ports below which devices may use ATS.
type ATSR struct {
	Segment  int     `json:"segment"`
	AllPorts bool    `json:"all_ports"`
	Scopes   []Scope `json:"scopes,omitempty"`
}

// RHSA assigns a unit to a NUMA node.
type RHSA struct {
	Base   pcicfg.Hex `json:"base"`   // that of the unit
	Domain uint32     `json:"domain"` // proximity domain, as in [SRAT]
}

// Scope is a device or a bridge with everything below it.
type Scope struct {
	Kind ScopeKind `json:"kind"`
	// Bus is the bus that Path starts on.
	Bus int `json:"bus"`
	// Path are device and function of each bridge on the way and, last, of the
	// device itself: "1c.0", "00.0".
	Path []string `json:"path"`
}

// ScopeKind is what a [Scope] is.
type ScopeKind string

// The kinds of scope (VT-d specification, "Device Scope Structure").
const (
	ScopeEndpoint ScopeKind = "endpoint"
	ScopeBridge   ScopeKind = "bridge" // with everything below
	ScopeIOAPIC   ScopeKind = "ioapic"
	ScopeHPET     ScopeKind = "hpet"
	ScopeACPI     ScopeKind = "acpi" // a device that only ACPI enumerates
)
