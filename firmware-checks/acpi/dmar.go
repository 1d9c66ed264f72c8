package acpi

import (
	"fmt"

	"mkp2pimg/firmware-checks/pcicfg"
)

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

// Remapping structure types (VT-d specification, "Remapping Structure Types").
const (
	typeDRHD = 0
	typeRMRR = 1
	typeATSR = 2
	typeRHSA = 3
)

var dmarKinds = kinds{
	table: "DMAR", header: 4,
	typ:    func(s []byte) int { return u16(s, 0) },
	length: func(s []byte) int { return u16(s, 2) },
	sizes:  map[int]int{typeDRHD: 16, typeRMRR: 24, typeATSR: 8, typeRHSA: 20},
}

// ParseDMAR decodes the table DMAR.
func ParseDMAR(b []byte) (*DMAR, error) {
	const fixed = 48
	b, err := open(b, "DMAR", fixed)
	if err != nil {
		return nil, err
	}
	flags := u8(b, 37)
	d := &DMAR{
		HostAddressWidth:   u8(b, 36) + 1, // the field holds the width minus one
		InterruptRemapping: flags&1 != 0,
		X2APICOptOut:       flags&2 != 0,
		DMAOptIn:           flags&4 != 0,
		Units:              []DRHD{},
	}
	err = dmarKinds.each(b, fixed, func(typ int, s []byte) error {
		var err error
		switch typ {
		case typeDRHD:
			u := DRHD{Segment: u16(s, 6), Base: pcicfg.Hex(u64(s, 8)), All: u8(s, 4)&1 != 0}
			u.Scopes, err = scopes(s, 16)
			d.Units = append(d.Units, u)
		case typeRMRR:
			r := RMRR{Segment: u16(s, 6), Base: pcicfg.Hex(u64(s, 8)), Limit: pcicfg.Hex(u64(s, 16))}
			r.Scopes, err = scopes(s, 24)
			d.Reserved = append(d.Reserved, r)
		case typeATSR:
			a := ATSR{Segment: u16(s, 6), AllPorts: u8(s, 4)&1 != 0}
			a.Scopes, err = scopes(s, 8)
			d.ATS = append(d.ATS, a)
		case typeRHSA:
			d.Affinity = append(d.Affinity, RHSA{Base: pcicfg.Hex(u64(s, 8)), Domain: u32(s, 16)})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// scopeKinds are the device scope types from 1.
var scopeKinds = []ScopeKind{ScopeEndpoint, ScopeBridge, ScopeIOAPIC, ScopeHPET, ScopeACPI}

// scopes decodes the device scopes of structure s from off to its end. Those of
// a kind that the specification does not name are left out.
func scopes(s []byte, off int) ([]Scope, error) {
	const fixed = 6 // a path element has 2 bytes
	var out []Scope
	for off < len(s) {
		rest := s[off:]
		if len(rest) < fixed {
			return nil, fmt.Errorf("%d bytes left over after its device scopes", len(rest))
		}
		kind, length := u8(rest, 0), u8(rest, 1)
		if length < fixed || length > len(rest) || length%2 != 0 {
			return nil, fmt.Errorf("device scope at 0x%x in it has a length of %d, want an even number from %d to %d", off, length, fixed, len(rest))
		}
		sc := Scope{Bus: u8(rest, 5), Path: []string{}}
		for i := fixed; i < length; i += 2 {
			sc.Path = append(sc.Path, fmt.Sprintf("%02x.%x", rest[i], rest[i+1]))
		}
		if kind >= 1 && kind <= len(scopeKinds) {
			sc.Kind = scopeKinds[kind-1]
			out = append(out, sc)
		}
		off += length
	}
	return out, nil
}
