package pcicfg

// ATS, Page Request and PASID Extended Capabilities (PCIe 6.0 §10.5.1, §10.5.2
// and §7.8.9).
const (
	atsCap          = 0x04
	atsCtl          = 0x06
	atsSize         = 0x08
	atsQueueMask    = 0x1f // Capability 4:0, 0 stands for 32
	atsQueueMax     = 32
	atsPageAligned  = 1 << 5
	atsGlobal       = 1 << 6
	atsRelaxed      = 1 << 7
	atsSTUMask      = 0x1f // Control 4:0
	atsEnable       = 1 << 15
	atsSmallestPage = 4096

	priCtl     = 0x04
	priStatus  = 0x06
	priSize    = 0x10
	priEnable  = 1 << 0
	priStopped = 1 << 8

	pasidCap        = 0x04
	pasidCtl        = 0x06
	pasidSize       = 0x08
	pasidWidthShift = 8 // Capability 12:8
	pasidWidthMask  = 0x1f
	pasidEnable     = 1 << 0
)

// ATS is the decoded Address Translation Services capability.
type ATS struct {
	Offset  int  `json:"offset"`
	Enabled bool `json:"enabled"`
	// SmallestUnit is the Smallest Translation Unit in bytes.
	SmallestUnit uint64 `json:"smallest_unit"`
	// InvalidateQueue is how many invalidations the function takes before it
	// makes the root wait, 1 to 32.
	InvalidateQueue int `json:"invalidate_queue"`
	// PageAligned says that the function asks for translations of aligned
	// addresses only.
	PageAligned      bool `json:"page_aligned"`
	GlobalInvalidate bool `json:"global_invalidate"`
	// RelaxedOrdering says that translation requests may carry that
	// attribute.
	RelaxedOrdering bool `json:"relaxed_ordering"`
}

// PRI is the decoded Page Request capability.
type PRI struct {
	Offset  int  `json:"offset"`
	Enabled bool `json:"enabled"`
	Stopped bool `json:"stopped"`
}

// PASID is the decoded Process Address Space ID capability.
type PASID struct {
	Offset  int  `json:"offset"`
	Enabled bool `json:"enabled"`
	// Width is how many bits of ID the function supports, up to 20.
	Width int `json:"width"`
}

func (d *decoder) ats(off int) {
	if d.cfg.ATS != nil || !d.capture("ATS", off, atsSize) {
		return
	}
	capable, ctl := d.u16(off+atsCap), d.u16(off+atsCtl)
	a := &ATS{
		Offset:           off,
		Enabled:          ctl&atsEnable != 0,
		SmallestUnit:     atsSmallestPage << (ctl & atsSTUMask),
		InvalidateQueue:  int(capable & atsQueueMask),
		PageAligned:      capable&atsPageAligned != 0,
		GlobalInvalidate: capable&atsGlobal != 0,
		RelaxedOrdering:  capable&atsRelaxed != 0,
	}
	if a.InvalidateQueue == 0 {
		a.InvalidateQueue = atsQueueMax
	}
	d.cfg.ATS = a
}

func (d *decoder) pri(off int) {
	if d.cfg.PRI != nil || !d.capture("Page Request", off, priSize) {
		return
	}
	d.cfg.PRI = &PRI{
		Offset:  off,
		Enabled: d.u16(off+priCtl)&priEnable != 0,
		Stopped: d.u16(off+priStatus)&priStopped != 0,
	}
}

func (d *decoder) pasid(off int) {
	if d.cfg.PASID != nil || !d.capture("PASID", off, pasidSize) {
		return
	}
	d.cfg.PASID = &PASID{
		Offset:  off,
		Enabled: d.u16(off+pasidCtl)&pasidEnable != 0,
		Width:   int(d.u16(off+pasidCap) >> pasidWidthShift & pasidWidthMask),
	}
}
