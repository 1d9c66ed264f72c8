package pcicfg

// Advanced Error Reporting Extended Capability (PCI Express Base
// Specification). Status bits are set by hardware and stay until cleared.
const (
	aerUncorrectableStatus = 0x04
	aerCorrectableStatus   = 0x10
	aerSize                = 0x14
)

// Bits of the Uncorrectable Error Status Register that bear on peer to peer
// traffic.
const (
	UncorrectableCompletionTimeout  = 1 << 14
	UncorrectableUnsupportedRequest = 1 << 20
	UncorrectableACSViolation       = 1 << 21
)

// AER is the decoded Advanced Error Reporting capability.
type AER struct {
	Offset              int `json:"offset"`
	UncorrectableStatus Hex `json:"uncorrectable_status"`
	CorrectableStatus   Hex `json:"correctable_status"`
}

func (d *decoder) aer(off int) {
	if d.cfg.AER != nil || !d.capture("AER", off, aerSize) {
		return
	}
	d.cfg.AER = &AER{
		Offset:              off,
		UncorrectableStatus: Hex(d.u32(off + aerUncorrectableStatus)),
		CorrectableStatus:   Hex(d.u32(off + aerCorrectableStatus)),
	}
}
