package acpi

import (
	"fmt"

	"mkp2pimg/firmware-checks/pcicfg"
)

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

// Block types. An IVHD of type 0x11 or 0x40 has its extended features.
const (
	typeIVHD10    = 0x10
	typeIVHD11    = 0x11
	typeIVHD40    = 0x40
	typeIVMDAll   = 0x20
	typeIVMDOne   = 0x21
	typeIVMDRange = 0x22
)

var ivrsKinds = kinds{
	table: "IVRS", header: 4,
	typ:    func(s []byte) int { return u8(s, 0) },
	length: func(s []byte) int { return u16(s, 2) },
	sizes: map[int]int{
		typeIVHD10: 24, typeIVHD11: 40, typeIVHD40: 40,
		typeIVMDAll: 32, typeIVMDOne: 32, typeIVMDRange: 32,
	},
}

// ParseIVRS decodes the table IVRS.
func ParseIVRS(b []byte) (*IVRS, error) {
	const fixed = 48
	b, err := open(b, "IVRS", fixed)
	if err != nil {
		return nil, err
	}
	info := u32(b, 36) // IVinfo
	v := &IVRS{
		PhysicalAddressBits: int(info >> 8 & 0x7f),
		VirtualAddressBits:  int(info >> 15 & 0x7f),
		DMARemap:            info&(1<<1) != 0,
		HTATSReserved:       info&(1<<22) != 0,
		Units:               []IVHD{},
	}
	err = ivrsKinds.each(b, fixed, func(typ int, s []byte) error {
		if typ >= typeIVMDAll && typ <= typeIVMDRange {
			v.Memory = append(v.Memory, memoryDefinition(typ, s))
			return nil
		}
		unit, err := hardware(typ, s)
		v.Units = append(v.Units, unit)
		return err
	})
	if err != nil {
		return nil, err
	}
	return v, nil
}

func memoryDefinition(typ int, s []byte) IVMD {
	flags, first := u8(s, 1), u16(s, 4)
	m := IVMD{
		All: typ == typeIVMDAll, Base: pcicfg.Hex(u64(s, 16)), Size: u64(s, 24),
		Unity: flags&(1<<0) != 0, Exclusion: flags&(1<<3) != 0,
	}
	switch typ {
	case typeIVMDOne:
		m.Devices = &DeviceRange{function(first), function(first)}
	case typeIVMDRange:
		m.Devices = &DeviceRange{function(first), function(u16(s, 6))}
	}
	return m
}

func hardware(typ int, s []byte) (IVHD, error) {
	u := IVHD{
		Type: pcicfg.Hex(typ), Flags: pcicfg.Hex(u8(s, 1)), IOTLB: u8(s, 1)&(1<<4) != 0,
		Segment: u16(s, 16), Base: pcicfg.Hex(u64(s, 8)),
	}
	u.Device = address(u.Segment, u16(s, 4))
	entries := ivrsKinds.sizes[typ]
	if typ != typeIVHD10 {
		u.Features = pcicfg.Hex(u64(s, 24))
	}
	err := u.devices(s[entries:])
	return u, err
}

// Device entry types. Those below 0x40 have 4 bytes, those below 0x80 have 8.
const (
	entryAll         = 0x01
	entrySelect      = 0x02
	entryStart       = 0x03
	entryEnd         = 0x04
	entryAliasSelect = 0x42
	entryAliasStart  = 0x43
	entryExtSelect   = 0x46
	entryExtStart    = 0x47
	entryNamed       = 0xf0 // by ACPI hardware ID, of variable length
)

// entryLength returns the length of the device entry that b begins with, more
// than len(b) when b ends in it.
func entryLength(b []byte) int {
	if b[0] != entryNamed {
		return 4 << (b[0] >> 6)
	}
	const fixed = 22 // the last byte of these is the length of the unique ID
	if len(b) < fixed {
		return fixed
	}
	return fixed + u8(b, fixed-1)
}

// devices decodes the device entries of u.
func (u *IVHD) devices(b []byte) error {
	start := -1
	for len(b) > 0 {
		length := entryLength(b)
		if length > len(b) {
			return fmt.Errorf("device entry of type 0x%x needs %d bytes, %d are left", b[0], length, len(b))
		}
		switch b[0] {
		case entryAll:
			u.All = true
		case entrySelect, entryAliasSelect, entryExtSelect:
			id := function(u16(b, 1))
			u.Ranges = append(u.Ranges, DeviceRange{id, id})
		case entryStart, entryAliasStart, entryExtStart:
			start = u16(b, 1)
		case entryEnd:
			end := u16(b, 1)
			if start < 0 || end < start {
				return fmt.Errorf("device entries end a range at %s that did not start before it", function(end))
			}
			u.Ranges = append(u.Ranges, DeviceRange{function(start), function(end)})
			start = -1
		}
		b = b[length:]
	}
	return nil
}
