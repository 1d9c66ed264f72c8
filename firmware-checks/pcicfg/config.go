package pcicfg

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of the regions of configuration space, in bytes.
const (
	HeaderSize       = 64   // predefined header, readable by any user
	ConventionalSize = 256  // PCI-compatible region
	ExtendedSize     = 4096 // PCI Express extended configuration space
)

// Offsets in the header common to both header types (PCIe 6.0 §7.5.1.1).
const (
	offVendor     = 0x00
	offDevice     = 0x02
	offCommand    = 0x04
	offStatus     = 0x06
	offRevision   = 0x08
	offClass      = 0x09 // three bytes: programming interface, subclass, class
	offHeaderType = 0x0e
	offBARs       = 0x10
	offSubsystem  = 0x2c // type 0 only
	offROM0       = 0x30 // Expansion ROM, type 0
	offROM1       = 0x38 // Expansion ROM, type 1
	offCapPointer = 0x34

	statusCapList       = 0x0010
	headerTypeMask      = 0x7f
	headerMultiFunction = 0x80
)

// ErrNoResponse says that every byte of the header is 0xff: nothing answers at
// this address, the device is off the bus or its link is down.
var ErrNoResponse = errors.New("configuration space reads all ones: the device does not answer")

// Config is the decoded configuration space of one function.
type Config struct {
	// Length is the number of bytes decoded: 64, 256, 4096 or whatever part of
	// the space the dump holds.
	Length int `json:"length"`

	Vendor Hex `json:"vendor"`
	Device Hex `json:"device"`
	// The subsystem of a bridge is in an optional capability.
	SubsystemVendor Hex `json:"subsystem_vendor,omitempty"`
	SubsystemDevice Hex `json:"subsystem_device,omitempty"`
	// Class is the 24-bit class code: class, subclass, programming interface.
	Class    Hex `json:"class"`
	Revision Hex `json:"revision"`
	Command  Hex `json:"command"`
	Status   Hex `json:"status"`

	// HeaderType is 0 for an endpoint and 1 for a PCI-to-PCI bridge.
	HeaderType    int  `json:"header_type"`
	MultiFunction bool `json:"multi_function,omitempty"`

	BARs   []BAR   `json:"bars,omitempty"`
	ROM    *ROM    `json:"rom,omitempty"`
	Bridge *Bridge `json:"bridge,omitempty"`

	// Capabilities are in the order of their lists. Those that are decoded
	// follow: nil is one that the function lacks or, when it is in Unknown, one
	// that could not be read. Of the others only their presence is known
	// ([Config.HasExtended]).
	Capabilities         []Capability `json:"capabilities,omitempty"`
	ExtendedCapabilities []Capability `json:"extended_capabilities,omitempty"`

	Express       *Express       `json:"express,omitempty"`
	ACS           *ACS           `json:"acs,omitempty"`
	ResizableBARs []ResizableBAR `json:"resizable_bars,omitempty"`
	ATS           *ATS           `json:"ats,omitempty"`
	AER           *AER           `json:"aer,omitempty"`

	VFResizableBARs []ResizableBAR   `json:"vf_resizable_bars,omitempty"`
	SRIOV           *SRIOV           `json:"sriov,omitempty"`
	PRI             *PRI             `json:"pri,omitempty"`
	PASID           *PASID           `json:"pasid,omitempty"`
	ARI             *ARI             `json:"ari,omitempty"`
	DPC             *DPC             `json:"dpc,omitempty"`
	L1Substates     *L1Substates     `json:"l1_substates,omitempty"`
	DataLinkFeature *DataLinkFeature `json:"data_link_feature,omitempty"`
	Physical16      *PhysicalLayer   `json:"physical_16,omitempty"`
	Physical32      *PhysicalLayer   `json:"physical_32,omitempty"`
	Physical64      *PhysicalLayer   `json:"physical_64,omitempty"`
	Device3         *Device3         `json:"device_3,omitempty"`

	// ExtendedRead says that the list of extended capabilities was read to its
	// end, or that the function has no extended space: a capability missing
	// here is missing in the device.
	ExtendedRead bool `json:"extended_read"`

	// Unknown lists, in words, what the dump was too short or too broken to
	// tell.
	Unknown []string `json:"unknown,omitempty"`
}

// Decode decodes a dump of configuration space. It fails only when nothing can
// be said: fewer than [HeaderSize] bytes, or [ErrNoResponse]. Bytes past
// [ExtendedSize] are ignored.
func Decode(raw []byte) (*Config, error) {
	if len(raw) < HeaderSize {
		return nil, fmt.Errorf("configuration space dump has %d bytes, its header alone needs %d", len(raw), HeaderSize)
	}
	d := &decoder{raw: raw[:min(len(raw), ExtendedSize)], cfg: new(Config)}
	if d.allOnes() {
		return nil, ErrNoResponse
	}
	d.header()
	d.capabilities()
	d.extended()
	return d.cfg, nil
}

// decoder walks one dump. Its readers must be asked only for offsets that has
// confirmed.
type decoder struct {
	raw []byte
	cfg *Config
}

func (d *decoder) has(off, n int) bool { return off >= 0 && off+n <= len(d.raw) }

func (d *decoder) u8(off int) uint8   { return d.raw[off] }
func (d *decoder) u16(off int) uint16 { return binary.LittleEndian.Uint16(d.raw[off:]) }
func (d *decoder) u32(off int) uint32 { return binary.LittleEndian.Uint32(d.raw[off:]) }

func (d *decoder) unknown(format string, args ...any) {
	d.cfg.Unknown = append(d.cfg.Unknown, fmt.Sprintf(format, args...))
}

func (d *decoder) allOnes() bool {
	for _, b := range d.raw[:HeaderSize] {
		if b != 0xff {
			return false
		}
	}
	return true
}

func (d *decoder) header() {
	c := d.cfg
	c.Length = len(d.raw)
	c.Vendor = Hex(d.u16(offVendor))
	c.Device = Hex(d.u16(offDevice))
	c.Command = Hex(d.u16(offCommand))
	c.Status = Hex(d.u16(offStatus))
	c.Revision = Hex(d.u8(offRevision))
	c.Class = Hex(d.u32(offRevision) >> 8)
	c.HeaderType = int(d.u8(offHeaderType) & headerTypeMask)
	c.MultiFunction = d.u8(offHeaderType)&headerMultiFunction != 0
	switch c.HeaderType {
	case 0:
		c.SubsystemVendor = Hex(d.u16(offSubsystem))
		c.SubsystemDevice = Hex(d.u16(offSubsystem + 2))
		c.BARs = d.bars(6)
		c.ROM = d.rom(offROM0)
	case 1:
		c.BARs = d.bars(2)
		c.ROM = d.rom(offROM1)
		c.Bridge = d.bridge()
	default:
		d.unknown("header type %d is neither an endpoint (0) nor a PCI-to-PCI bridge (1)", c.HeaderType)
	}
}
