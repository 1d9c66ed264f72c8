package pcicfg

// ARI and SR-IOV Extended Capabilities (PCIe 6.0 §7.8.8 and §9.3.3).
const (
	ariCap     = 0x04
	ariSize    = 0x08
	ariNextBit = 8 // Capability 15:8

	sriovCtl    = 0x08
	sriovTotal  = 0x0e
	sriovNumber = 0x10
	sriovSize   = 0x40
	sriovEnable = 1 << 0
)

// ARI is the decoded Alternative Routing-ID Interpretation capability.
type ARI struct {
	Offset int `json:"offset"`
	// NextFunction is the number of the device's next function, 0 after the
	// last.
	NextFunction int `json:"next_function"`
}

// SRIOV is the decoded Single Root I/O Virtualization capability.
type SRIOV struct {
	Offset  int  `json:"offset"`
	Enabled bool `json:"enabled"`
	// Total is how many virtual functions there can be, Number how many were
	// asked for.
	Total  int `json:"total"`
	Number int `json:"number"`
}

func (d *decoder) ari(off int) {
	if d.cfg.ARI != nil || !d.capture("ARI", off, ariSize) {
		return
	}
	d.cfg.ARI = &ARI{Offset: off, NextFunction: int(d.u16(off+ariCap) >> ariNextBit)}
}

func (d *decoder) sriov(off int) {
	if d.cfg.SRIOV != nil || !d.capture("SR-IOV", off, sriovSize) {
		return
	}
	d.cfg.SRIOV = &SRIOV{
		Offset:  off,
		Enabled: d.u16(off+sriovCtl)&sriovEnable != 0,
		Total:   int(d.u16(off + sriovTotal)),
		Number:  int(d.u16(off + sriovNumber)),
	}
}
