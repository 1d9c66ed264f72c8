package pcicfg

// Downstream Port Containment and L1 PM Substates Extended Capabilities (PCIe
// 6.0 §7.9.14 and §7.8.3).
const (
	dpcCtl         = 0x06
	dpcStatus      = 0x08
	dpcSource      = 0x0a
	dpcSize        = 0x0c
	dpcTriggerMask = 0x3 // Control 1:0
	dpcTriggered   = 1 << 0
	dpcReasonBit   = 1 // Status 2:1
	dpcReasonMask  = 0x3

	l1Cap          = 0x04
	l1Ctl          = 0x08
	l1Size         = 0x10
	l1SubstateMask = 0xf // bits 3:0 of both
)

// DPC is the decoded Downstream Port Containment capability.
type DPC struct {
	Offset int `json:"offset"`
	// Trigger says which errors take the link down.
	Trigger DPCTrigger `json:"trigger"`
	// Triggered says that the link is held down because of an error.
	Triggered bool `json:"triggered"`
	// Reason is 0 for an uncorrectable error that the port saw, 1 and 2 for a
	// non-fatal and a fatal error message from below, 3 for another.
	Reason int `json:"reason"`
	// Source is the requester ID of that message.
	Source Hex `json:"source"`
}

// DPCTrigger is the DPC Trigger Enable field (PCIe 6.0 §7.9.14.3).
type DPCTrigger int

// Values of the field; 3 is reserved.
const (
	DPCOff        DPCTrigger = 0
	DPCFatal      DPCTrigger = 1
	DPCAnyFailure DPCTrigger = 2 // fatal or not
)

// L1Substates is the decoded L1 PM Substates capability.
type L1Substates struct {
	Offset int `json:"offset"`
	// Supported and Enabled have bit 0 set for PCI-PM L1.2, 1 for PCI-PM L1.1,
	// 2 for ASPM L1.2 and 3 for ASPM L1.1.
	Supported Hex `json:"supported"`
	Enabled   Hex `json:"enabled"`
}

func (d *decoder) dpc(off int) {
	if d.cfg.DPC != nil || !d.capture("DPC", off, dpcSize) {
		return
	}
	status := d.u16(off + dpcStatus)
	d.cfg.DPC = &DPC{
		Offset:    off,
		Trigger:   DPCTrigger(d.u16(off+dpcCtl) & dpcTriggerMask),
		Triggered: status&dpcTriggered != 0,
		Reason:    int(status >> dpcReasonBit & dpcReasonMask),
		Source:    Hex(d.u16(off + dpcSource)),
	}
}

func (d *decoder) l1Substates(off int) {
	if d.cfg.L1Substates != nil || !d.capture("L1 PM Substates", off, l1Size) {
		return
	}
	d.cfg.L1Substates = &L1Substates{
		Offset:    off,
		Supported: Hex(d.u32(off+l1Cap) & l1SubstateMask),
		Enabled:   Hex(d.u32(off+l1Ctl) & l1SubstateMask),
	}
}
