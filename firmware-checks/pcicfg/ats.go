package pcicfg

// ATS Extended Capability (PCI Express Base Specification, "ATS Extended
// Capability").
const (
	atsCtl     = 0x06
	atsSize    = 0x08
	atsEnable  = 1 << 15
	atsSTUMask = 0x1f
)

// ATS is the decoded Address Translation Services capability.
type ATS struct {
	Offset  int  `json:"offset"`
	Enabled bool `json:"enabled"`
	// SmallestUnit is the Smallest Translation Unit in bytes.
	SmallestUnit uint64 `json:"smallest_unit"`
}

func (d *decoder) ats(off int) {
	if d.cfg.ATS != nil || !d.capture("ATS", off, atsSize) {
		return
	}
	ctl := d.u16(off + atsCtl)
	d.cfg.ATS = &ATS{
		Offset:       off,
		Enabled:      ctl&atsEnable != 0,
		SmallestUnit: 4096 << (ctl & atsSTUMask),
	}
}
