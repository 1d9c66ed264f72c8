package pcicfg

// Device 3 Extended Capability (PCIe 6.0 §7.7.9).
const (
	dev3Cap  = 0x04
	dev3Ctl  = 0x08
	dev3Size = 0x10

	dev3CapDeferrable    = 1 << 0
	dev3CapTag14Complete = 1 << 1
	dev3CapTag14Request  = 1 << 2
	dev3CtlDeferrable    = 1 << 0
	dev3CtlDeferBlock    = 1 << 1
	dev3CtlTag14Request  = 1 << 2
)

// Device3 is the decoded Device 3 capability.
type Device3 struct {
	Offset int `json:"offset"`
	// 14-bit tags, as supported and as switched on.
	Tag14Completer          bool `json:"tag14_completer"`
	Tag14RequesterSupported bool `json:"tag14_requester_supported"`
	Tag14Requester          bool `json:"tag14_requester"`
	// Deferrable memory writes: whether a port forwards them, whether the
	// function may send them, whether a port refuses to send them out.
	DeferrableRouting     bool `json:"deferrable_routing"`
	DeferrableRequester   bool `json:"deferrable_requester"`
	DeferrableEgressBlock bool `json:"deferrable_egress_block"`
}

func (d *decoder) device3(off int) {
	if d.cfg.Device3 != nil || !d.capture("Device 3", off, dev3Size) {
		return
	}
	capable, ctl := d.u32(off+dev3Cap), d.u16(off+dev3Ctl)
	d.cfg.Device3 = &Device3{
		Offset:                  off,
		Tag14Completer:          capable&dev3CapTag14Complete != 0,
		Tag14RequesterSupported: capable&dev3CapTag14Request != 0,
		Tag14Requester:          ctl&dev3CtlTag14Request != 0,
		DeferrableRouting:       capable&dev3CapDeferrable != 0,
		DeferrableRequester:     ctl&dev3CtlDeferrable != 0,
		DeferrableEgressBlock:   ctl&dev3CtlDeferBlock != 0,
	}
}
