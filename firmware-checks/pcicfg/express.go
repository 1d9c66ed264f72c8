package pcicfg

import "fmt"

// PortType is the Device/Port Type field of the PCI Express Capabilities
// Register, bits 7:4.
type PortType int

// Port types (PCI Express Base Specification, "PCI Express Capabilities
// Register").
const (
	Endpoint             PortType = 0x0
	LegacyEndpoint       PortType = 0x1
	RootPort             PortType = 0x4
	UpstreamPort         PortType = 0x5
	DownstreamPort       PortType = 0x6
	ExpressToPCIBridge   PortType = 0x7
	PCIToExpressBridge   PortType = 0x8
	IntegratedEndpoint   PortType = 0x9
	RootComplexCollector PortType = 0xa
)

// String returns the name of t as the specification has it.
func (t PortType) String() string {
	switch t {
	case Endpoint:
		return "endpoint"
	case LegacyEndpoint:
		return "legacy endpoint"
	case RootPort:
		return "root port"
	case UpstreamPort:
		return "switch upstream port"
	case DownstreamPort:
		return "switch downstream port"
	case ExpressToPCIBridge:
		return "PCIe to PCI bridge"
	case PCIToExpressBridge:
		return "PCI to PCIe bridge"
	case IntegratedEndpoint:
		return "root complex integrated endpoint"
	case RootComplexCollector:
		return "root complex event collector"
	}
	return fmt.Sprintf("port type %d", int(t))
}

// Registers and fields of the PCI Express Capability structure (PCI Express
// Base Specification, section 7.5.3 in revisions 4.0 and later).
const (
	expFlags   = 0x02
	expDevCap  = 0x04
	expDevCtl  = 0x08
	expLnkCap  = 0x0c
	expLnkSta  = 0x12
	expDevCap2 = 0x24
	expLnkCap2 = 0x2c

	expSizeDevice = 0x0c // through the device registers, version 1 endpoints without a link
	expSizeLink   = 0x14 // through the link registers
	expSizeV2     = 0x3c // version 2 always has every register

	expPayloadMask      = 0x7 // Device Capabilities 2:0, 128 bytes << n
	expExtTagCapable    = 1 << 5
	expRelaxedOrdering  = 1 << 4
	expPayloadShift     = 5 // Device Control 7:5
	expExtTagEnable     = 1 << 8
	expNoSnoop          = 1 << 11
	expReadRequestShift = 12 // Device Control 14:12
	expSpeedMask        = 0xf
	expWidthShift       = 4 // bits 9:4
	expWidthMask        = 0x3f
	expLinkTraining     = 1 << 11
	expLinkActive       = 1 << 13
	expActiveReporting  = 1 << 20 // Link Capabilities: the active bit is meaningful

	expAtomicRouting       = 1 << 6
	expAtomic32Completer   = 1 << 7
	expAtomic64Completer   = 1 << 8
	expAtomic128Completer  = 1 << 9
	expTag10Completer      = 1 << 16
	expTag10Requester      = 1 << 17
	expSpeedVectorMask     = 0xfe // Link Capabilities 2, bits 7:1
	expSpeedVectorFirstBit = 1
)

// Express is the decoded PCI Express capability.
type Express struct {
	Offset  int      `json:"offset"`
	Version int      `json:"version"`
	Port    PortType `json:"port"`

	// The largest payload the function supports and the one in use, in bytes.
	MaxPayloadSupported int `json:"max_payload_supported"`
	MaxPayload          int `json:"max_payload"`
	// MaxReadRequest is the largest read the function may ask for, in bytes.
	MaxReadRequest        int                  `json:"max_read_request"`
	RelaxedOrdering       bool                 `json:"relaxed_ordering"`
	NoSnoop               bool                 `json:"no_snoop"`
	ExtendedTagsSupported bool                 `json:"extended_tags_supported"`
	ExtendedTags          bool                 `json:"extended_tags"`
	DeviceCapabilities    Hex                  `json:"device_capabilities"`
	DeviceControl         Hex                  `json:"device_control"`
	Link                  *Link                `json:"link,omitempty"`
	DeviceCapabilities2   *DeviceCapabilities2 `json:"device_capabilities_2,omitempty"`
}

// Link is the state of the link on the far side of a port, or towards the root
// for an endpoint and an upstream port.
type Link struct {
	// Speeds are PCI Express generations: 1 is 2.5 GT/s, 5 is 32 GT/s; 0 is
	// not a valid encoding and is what an absent link may read.
	MaxSpeed int `json:"max_speed"`
	Speed    int `json:"speed"`
	// Widths are lane counts.
	MaxWidth int  `json:"max_width"`
	Width    int  `json:"width"`
	Training bool `json:"training,omitempty"`
	// Active is nil when the port does not report whether its link is up.
	Active *bool `json:"active,omitempty"`
	// SupportedSpeeds are the generations of Link Capabilities 2, empty before
	// version 2 of the capability.
	SupportedSpeeds []int `json:"supported_speeds,omitempty"`
}

// DeviceCapabilities2 are the parts of that register that bear on peer to peer
// traffic.
type DeviceCapabilities2 struct {
	Raw            Hex  `json:"raw"`
	AtomicRouting  bool `json:"atomic_routing"`
	Atomic32       bool `json:"atomic_32_completer"`
	Atomic64       bool `json:"atomic_64_completer"`
	CAS128         bool `json:"cas_128_completer"`
	Tag10Completer bool `json:"tag10_completer"`
	Tag10Requester bool `json:"tag10_requester"`
}

func (d *decoder) express(off int) {
	const name = "PCI Express"
	if !d.capture(name, off, expSizeDevice) {
		return
	}
	flags := d.u16(off + expFlags)
	devCap, devCtl := d.u32(off+expDevCap), d.u16(off+expDevCtl)
	e := &Express{
		Offset:                off,
		Version:               int(flags & 0xf),
		Port:                  PortType(flags >> 4 & 0xf),
		MaxPayloadSupported:   128 << (devCap & expPayloadMask),
		MaxPayload:            128 << (devCtl >> expPayloadShift & expPayloadMask),
		MaxReadRequest:        128 << (devCtl >> expReadRequestShift & expPayloadMask),
		RelaxedOrdering:       devCtl&expRelaxedOrdering != 0,
		NoSnoop:               devCtl&expNoSnoop != 0,
		ExtendedTagsSupported: devCap&expExtTagCapable != 0,
		ExtendedTags:          devCtl&expExtTagEnable != 0,
		DeviceCapabilities:    Hex(devCap),
		DeviceControl:         Hex(devCtl),
	}
	d.cfg.Express = e
	if e.Port == IntegratedEndpoint || e.Port == RootComplexCollector {
		return // no link behind or before it
	}
	if !d.capture(name+" link", off, expSizeLink) {
		return
	}
	lnkCap, lnkSta := d.u32(off+expLnkCap), d.u16(off+expLnkSta)
	e.Link = &Link{
		MaxSpeed: int(lnkCap & expSpeedMask),
		MaxWidth: int(lnkCap >> expWidthShift & expWidthMask),
		Speed:    int(lnkSta & expSpeedMask),
		Width:    int(lnkSta >> expWidthShift & expWidthMask),
		Training: lnkSta&expLinkTraining != 0,
	}
	if lnkCap&expActiveReporting != 0 {
		active := lnkSta&expLinkActive != 0
		e.Link.Active = &active
	}
	if e.Version < 2 || !d.capture(name+" version 2", off, expSizeV2) {
		return
	}
	devCap2 := d.u32(off + expDevCap2)
	e.DeviceCapabilities2 = &DeviceCapabilities2{
		Raw:            Hex(devCap2),
		AtomicRouting:  devCap2&expAtomicRouting != 0,
		Atomic32:       devCap2&expAtomic32Completer != 0,
		Atomic64:       devCap2&expAtomic64Completer != 0,
		CAS128:         devCap2&expAtomic128Completer != 0,
		Tag10Completer: devCap2&expTag10Completer != 0,
		Tag10Requester: devCap2&expTag10Requester != 0,
	}
	speeds := d.u32(off+expLnkCap2) & expSpeedVectorMask >> expSpeedVectorFirstBit
	for gen := 1; speeds != 0; gen, speeds = gen+1, speeds>>1 {
		if speeds&1 != 0 {
			e.Link.SupportedSpeeds = append(e.Link.SupportedSpeeds, gen)
		}
	}
}
