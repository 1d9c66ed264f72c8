package acpi

import "mkp2pimg/firmware-checks/pcicfg"

// IVRS describes AMD's IOMMUs.
type IVRS struct {
	// PhysicalAddressBits and VirtualAddressBits are the widths of addresses.
	PhysicalAddressBits int `json:"physical_address_bits"`
	VirtualAddressBits  int `json:"virtual_address_bits"`
	// DMARemap says that the firmware protects itself from DMA until the kernel
	// takes over.
	DMARemap bool `json:"dma_remap"`
	// HTATSReserved says that addresses reserved to HyperTransport are not
	// translated for ATS.
	HTATSReserved bool   `json:"ht_ats_reserved"`
	Units         []IVHD `json:"units"`
	Memory        []IVMD `json:"memory,omitempty"`
}

// IVHD is an IOMMU. One unit can appear in several types of block; the kernel
// uses the highest type it knows.
type IVHD struct {
	Type    pcicfg.Hex `json:"type"` // 0x10, 0x11 or 0x40
	Flags   pcicfg.Hex `json:"flags"`
	IOTLB   bool       `json:"iotlb"`   // flag IotlbSup: devices may use ATS
	Device  string     `json:"device"`  // address of the unit itself
	Segment int        `json:"segment"` // of the devices it translates for
	Base    pcicfg.Hex `json:"base"`    // of its registers
	// Features are the extended features (EFR) in blocks of type 0x11 and 0x40.
	Features pcicfg.Hex `json:"features,omitempty"`
	// All says that it translates for every device of the segment.
	All bool `json:"all,omitempty"`
	// Ranges are the devices that it names.
	Ranges []DeviceRange `json:"ranges,omitempty"`
}

// DeviceRange are the functions from First to Last, by bus, device and function:
// "01:00.0".
type DeviceRange struct {
	First string `json:"first"`
	Last  string `json:"last"`
}

// IVMD is memory that the firmware shares with devices, or that must not be
// translated.
type IVMD struct {
	All     bool         `json:"all,omitempty"`     // for every device
	Devices *DeviceRange `json:"devices,omitempty"` // else for these
	Base    pcicfg.Hex   `json:"base"`
	Size    uint64       `json:"size"` // bytes
	// Unity memory is mapped as it is; an exclusion range is not translated.
	Unity     bool `json:"unity"`
	Exclusion bool `json:"exclusion"`
}
