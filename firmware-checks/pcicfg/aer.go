package pcicfg

// Advanced Error Reporting Extended Capability (PCIe 6.0 §7.8.4). Status bits
// are set by hardware, whatever the masks, and stay until cleared.
const (
	aerUncorrectableStatus   = 0x04
	aerUncorrectableMask     = 0x08
	aerUncorrectableSeverity = 0x0c
	aerCorrectableStatus     = 0x10
	aerCorrectableMask       = 0x14
	aerControl               = 0x18
	aerHeaderLog             = 0x1c // four double words
	aerRootCommand           = 0x2c // root ports and event collectors
	aerRootStatus            = 0x30
	aerRootSources           = 0x34
	aerSize                  = 0x2c
	aerRootSize              = 0x38

	aerFirstErrorMask   = 0x1f
	aerHeaderWords      = 4
	aerSourceUpperShift = 16
)

// Bits of the Uncorrectable Error Status, Mask and Severity registers that bear
// on peer to peer traffic (PCIe 6.0 §7.8.4.2).
const (
	UncorrectableDataLink           = 1 << 4
	UncorrectableSurpriseDown       = 1 << 5
	UncorrectablePoisoned           = 1 << 12
	UncorrectableCompletionTimeout  = 1 << 14
	UncorrectableCompleterAbort     = 1 << 15
	UncorrectableUnexpected         = 1 << 16 // completion
	UncorrectableMalformed          = 1 << 18
	UncorrectableUnsupportedRequest = 1 << 20
	UncorrectableACSViolation       = 1 << 21
	UncorrectableAtomicBlocked      = 1 << 24 // AtomicOp egress blocked
)

// Bits of the Correctable Error Status and Mask registers (PCIe 6.0
// §7.8.4.5).
const (
	CorrectableReceiver       = 1 << 0
	CorrectableBadTLP         = 1 << 6
	CorrectableBadDLLP        = 1 << 7
	CorrectableReplayRollover = 1 << 8
	CorrectableReplayTimeout  = 1 << 12
	CorrectableAdvisory       = 1 << 13
)

// AER is the decoded Advanced Error Reporting capability.
type AER struct {
	Offset              int `json:"offset"`
	UncorrectableStatus Hex `json:"uncorrectable_status"`
	CorrectableStatus   Hex `json:"correctable_status"`
	// A masked error is not reported and its header is not logged.
	UncorrectableMask Hex `json:"uncorrectable_mask"`
	CorrectableMask   Hex `json:"correctable_mask"`
	// UncorrectableSeverity has a bit set for each error that is fatal.
	UncorrectableSeverity Hex `json:"uncorrectable_severity"`
	// FirstError is the number of the bit in UncorrectableStatus that came
	// first; it says something only while that bit is set.
	FirstError int `json:"first_error"`
	// HeaderLog is the header of the packet of that error, four double words.
	HeaderLog [aerHeaderWords]Hex `json:"header_log"`
	// Root is what a root port or event collector collected from below.
	Root *AERRoot `json:"root,omitempty"`
}

// AERRoot are the registers of AER in a root port (PCIe 6.0 §7.8.4.9 to
// §7.8.4.11).
type AERRoot struct {
	Command Hex `json:"command"`
	Status  Hex `json:"status"`
	// Requester IDs (bus 15:8, device 7:3, function 2:0) of the first error
	// messages.
	CorrectableSource   Hex `json:"correctable_source"`
	UncorrectableSource Hex `json:"uncorrectable_source"`
}

func (d *decoder) aer(off int) {
	const name = "AER"
	if d.cfg.AER != nil || !d.capture(name, off, aerSize) {
		return
	}
	a := &AER{
		Offset:                off,
		UncorrectableStatus:   Hex(d.u32(off + aerUncorrectableStatus)),
		UncorrectableMask:     Hex(d.u32(off + aerUncorrectableMask)),
		UncorrectableSeverity: Hex(d.u32(off + aerUncorrectableSeverity)),
		CorrectableStatus:     Hex(d.u32(off + aerCorrectableStatus)),
		CorrectableMask:       Hex(d.u32(off + aerCorrectableMask)),
		FirstError:            int(d.u32(off+aerControl) & aerFirstErrorMask),
	}
	for i := range a.HeaderLog {
		a.HeaderLog[i] = Hex(d.u32(off + aerHeaderLog + 4*i))
	}
	d.cfg.AER = a
	if e := d.cfg.Express; e == nil || e.Port != RootPort && e.Port != RootComplexCollector {
		return
	}
	if d.capture(name+" root", off, aerRootSize) {
		sources := d.u32(off + aerRootSources)
		a.Root = &AERRoot{
			Command:             Hex(d.u32(off + aerRootCommand)),
			Status:              Hex(d.u32(off + aerRootStatus)),
			CorrectableSource:   Hex(sources & 0xffff),
			UncorrectableSource: Hex(sources >> aerSourceUpperShift),
		}
	}
}
