package pcicfg

import "fmt"

// PortType is the Device/Port Type field of the PCI Express Capabilities
// Register, bits 7:4.
type PortType int

// Port types (PCIe 6.0 §7.5.3.2).
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

// Layout of the PCI Express Capability structure (PCIe 6.0 §7.5.3). The link and
// slot registers in it are in link.go and slot.go. Device Status 2 has no bit
// defined that bears on anything here.
const (
	expFlags   = 0x02
	expDevCap  = 0x04
	expDevCtl  = 0x08
	expDevSta  = 0x0a
	expDevCap2 = 0x24
	expDevCtl2 = 0x28

	expSizeDevice = 0x0c // through the device registers, version 1 endpoints without a link
	expSizeLink   = 0x14 // through the link registers
	expSizeSlot   = 0x1c // through the slot registers
	expSizeV2     = 0x3c // version 2 always has every register

	expVersionMask = 0xf // Capabilities 3:0
	expPortBit     = 4   // Capabilities 7:4
	expPortMask    = 0xf
	expSlot        = 1 << 8
	expFlitMode    = 1 << 15

	expPayloadMask      = 0x7 // Device Capabilities 2:0, 128 bytes << n
	expExtTagCapable    = 1 << 5
	expFunctionReset    = 1 << 28
	expRelaxedOrdering  = 1 << 4
	expPayloadShift     = 5 // Device Control 7:5
	expExtTagEnable     = 1 << 8
	expNoSnoop          = 1 << 11
	expReadRequestShift = 12 // Device Control 14:12
)

// Bits of the Device Status register (PCIe 6.0 §7.5.3.5). The errors stay until
// cleared and are set even where AER is not implemented.
const (
	DeviceCorrectable        = 1 << 0
	DeviceNonFatal           = 1 << 1
	DeviceFatal              = 1 << 2
	DeviceUnsupportedRequest = 1 << 3
	DeviceTransactionPending = 1 << 5
)

// Express is the decoded PCI Express capability.
type Express struct {
	Offset  int      `json:"offset"`
	Version int      `json:"version"`
	Port    PortType `json:"port"`
	// FlitModeSupported says that the port can run its link in Flit Mode.
	FlitModeSupported bool `json:"flit_mode_supported,omitempty"`

	// The largest payload the function supports and the one in use, in bytes.
	MaxPayloadSupported int `json:"max_payload_supported"`
	MaxPayload          int `json:"max_payload"`
	// MaxReadRequest is the largest read the function may ask for, in bytes.
	MaxReadRequest        int  `json:"max_read_request"`
	RelaxedOrdering       bool `json:"relaxed_ordering"`
	NoSnoop               bool `json:"no_snoop"`
	ExtendedTagsSupported bool `json:"extended_tags_supported"`
	ExtendedTags          bool `json:"extended_tags"`
	// FunctionReset says that the function can be reset by itself.
	FunctionReset      bool `json:"function_reset,omitempty"`
	DeviceCapabilities Hex  `json:"device_capabilities"`
	DeviceControl      Hex  `json:"device_control"`
	DeviceStatus       Hex  `json:"device_status"`

	// Link is nil for functions without one, those integrated in the root
	// complex. Slot is nil for ports without one. The second registers are
	// nil before version 2 of the capability.
	Link                *Link                `json:"link,omitempty"`
	Link2               *Link2               `json:"link_2,omitempty"`
	Slot                *Slot                `json:"slot,omitempty"`
	DeviceCapabilities2 *DeviceCapabilities2 `json:"device_capabilities_2,omitempty"`
	DeviceControl2      *DeviceControl2      `json:"device_control_2,omitempty"`
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
		Version:               int(flags & expVersionMask),
		Port:                  PortType(flags >> expPortBit & expPortMask),
		FlitModeSupported:     flags&expFlitMode != 0,
		MaxPayloadSupported:   128 << (devCap & expPayloadMask),
		MaxPayload:            128 << (devCtl >> expPayloadShift & expPayloadMask),
		MaxReadRequest:        128 << (devCtl >> expReadRequestShift & expPayloadMask),
		RelaxedOrdering:       devCtl&expRelaxedOrdering != 0,
		NoSnoop:               devCtl&expNoSnoop != 0,
		ExtendedTagsSupported: devCap&expExtTagCapable != 0,
		ExtendedTags:          devCtl&expExtTagEnable != 0,
		FunctionReset:         devCap&expFunctionReset != 0,
		DeviceCapabilities:    Hex(devCap),
		DeviceControl:         Hex(devCtl),
		DeviceStatus:          Hex(d.u16(off + expDevSta)),
	}
	d.cfg.Express = e
	hasLink := e.Port != IntegratedEndpoint && e.Port != RootComplexCollector
	if hasLink && d.capture(name+" link", off, expSizeLink) {
		e.Link = d.link(off)
	}
	if e.hasSlot(flags) && d.capture(name+" slot", off, expSizeSlot) {
		e.Slot = d.slot(off)
	}
	if e.Version < 2 || !d.capture(name+" version 2", off, expSizeV2) {
		return
	}
	e.DeviceCapabilities2 = deviceCapabilities2(d.u32(off + expDevCap2))
	e.DeviceControl2 = deviceControl2(d.u16(off + expDevCtl2))
	if e.Link != nil {
		e.Link.SupportedSpeeds = d.supportedSpeeds(off)
		e.Link2 = d.link2(off)
	}
}

// hasSlot reports whether e has slot registers: the bit for it is undefined in
// anything but downstream ports.
func (e *Express) hasSlot(flags uint16) bool {
	return flags&expSlot != 0 && (e.Port == RootPort || e.Port == DownstreamPort)
}
