package pcicfg

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
	// Port is the number of the port within its component, by which the ACS
	// Egress Control Vector counts.
	Port int `json:"port"`
	// ASPMSupported and ASPM are the low-power states that the link can enter
	// and may enter by itself.
	ASPMSupported ASPM `json:"aspm_supported"`
	ASPM          ASPM `json:"aspm"`
	// Disabled says that software switched the link off.
	Disabled bool `json:"disabled,omitempty"`
	// AutonomousWidthDisabled keeps hardware from narrowing the link for
	// reasons other than reliability.
	AutonomousWidthDisabled bool `json:"autonomous_width_disabled,omitempty"`
	// BandwidthChanged says that, since it was cleared, software had the link
	// retrained or hardware slowed or narrowed it because it was unreliable;
	// AutonomousChange says that hardware did for another reason, such as to
	// save power. Only downstream ports set them.
	BandwidthChanged bool `json:"bandwidth_changed,omitempty"`
	AutonomousChange bool `json:"autonomous_change,omitempty"`
}

// ASPM is a set of link states of Active State Power Management.
type ASPM int

// The states.
const (
	ASPML0s ASPM = 1 << 0
	ASPML1  ASPM = 1 << 1
)

// Link2 is what the second link control and status registers say.
type Link2 struct {
	// TargetSpeed is the generation that software lets the link train to.
	TargetSpeed int `json:"target_speed"`
	// AutonomousSpeedDisabled keeps hardware from changing the speed for
	// reasons other than reliability.
	AutonomousSpeedDisabled bool `json:"autonomous_speed_disabled"`
	// Equalization is that for 8 GT/s.
	Equalization Equalization `json:"equalization"`
	// Retimers is how many were seen on the link, 0 to 2. Only downstream
	// ports that can detect them count.
	Retimers int `json:"retimers"`
	// FlitMode says that the link runs in Flit Mode (PCIe 6.0).
	FlitMode bool `json:"flit_mode"`
}

// Equalization is the outcome of the last link equalization for one speed. It
// is all false when the link never went to that speed.
type Equalization struct {
	Complete bool `json:"complete"`
	Phase1   bool `json:"phase_1"`
	Phase2   bool `json:"phase_2"`
	Phase3   bool `json:"phase_3"`
	// Requested says that a component asked for it to be done again.
	Requested bool `json:"requested"`
}

// Registers of the link (PCIe 6.0 §7.5.3.6 to §7.5.3.8 and §7.5.3.18 to
// §7.5.3.20).
const (
	expLnkCap  = 0x0c
	expLnkCtl  = 0x10
	expLnkSta  = 0x12
	expLnkCap2 = 0x2c
	expLnkCtl2 = 0x30
	expLnkSta2 = 0x32

	lnkSpeedMask = 0xf // bits 3:0 of Capabilities, Status and Control 2
	lnkWidthBit  = 4   // bits 9:4 of Capabilities and Status
	lnkWidthMask = 0x3f

	lnkCapASPMBit   = 10 // bits 11:10
	lnkASPMMask     = 0x3
	lnkCapReporting = 1 << 20 // the active bit of Status is meaningful
	lnkCapPortBit   = 24      // bits 31:24

	lnkCtlDisable  = 1 << 4
	lnkCtlWidth    = 1 << 9
	lnkStaTraining = 1 << 11
	lnkStaActive   = 1 << 13
	lnkStaManaged  = 1 << 14
	lnkStaAutonom  = 1 << 15

	lnkCap2SpeedsBit  = 1 // bits 7:1, bit n for generation n
	lnkCap2SpeedsMask = 0x7f
	lnkCtl2Speed      = 1 << 5
	lnkSta2EqualBit   = 1 // bits 5:1
	lnkSta2Retimer    = 1 << 6
	lnkSta2Retimers   = 1 << 7
	lnkSta2Flit       = 1 << 10
)

func (d *decoder) link(off int) *Link {
	capable, ctl, sta := d.u32(off+expLnkCap), d.u16(off+expLnkCtl), d.u16(off+expLnkSta)
	l := &Link{
		MaxSpeed:                int(capable & lnkSpeedMask),
		MaxWidth:                int(capable >> lnkWidthBit & lnkWidthMask),
		Speed:                   int(sta & lnkSpeedMask),
		Width:                   int(sta >> lnkWidthBit & lnkWidthMask),
		Training:                sta&lnkStaTraining != 0,
		Port:                    int(capable >> lnkCapPortBit),
		ASPMSupported:           ASPM(capable >> lnkCapASPMBit & lnkASPMMask),
		ASPM:                    ASPM(ctl & lnkASPMMask),
		Disabled:                ctl&lnkCtlDisable != 0,
		AutonomousWidthDisabled: ctl&lnkCtlWidth != 0,
		BandwidthChanged:        sta&lnkStaManaged != 0,
		AutonomousChange:        sta&lnkStaAutonom != 0,
	}
	if capable&lnkCapReporting != 0 {
		active := sta&lnkStaActive != 0
		l.Active = &active
	}
	return l
}

func (d *decoder) supportedSpeeds(off int) []int {
	vector := d.u32(off+expLnkCap2) >> lnkCap2SpeedsBit & lnkCap2SpeedsMask
	if vector == 0 {
		return nil
	}
	speeds := make([]int, 0, 8)
	for generation := 1; vector != 0; generation, vector = generation+1, vector>>1 {
		if vector&1 != 0 {
			speeds = append(speeds, generation)
		}
	}
	return speeds
}

func (d *decoder) link2(off int) *Link2 {
	ctl, sta := d.u16(off+expLnkCtl2), d.u16(off+expLnkSta2)
	l := &Link2{
		TargetSpeed:             int(ctl & lnkSpeedMask),
		AutonomousSpeedDisabled: ctl&lnkCtl2Speed != 0,
		Equalization:            equalization(uint32(sta) >> lnkSta2EqualBit),
		FlitMode:                sta&lnkSta2Flit != 0,
	}
	switch {
	case sta&lnkSta2Retimers != 0:
		l.Retimers = 2
	case sta&lnkSta2Retimer != 0:
		l.Retimers = 1
	}
	return l
}

// equalization decodes the five bits that Link Status 2 and the status
// registers of the physical layer capabilities have in common.
func equalization(bits uint32) Equalization {
	return Equalization{
		Complete:  bits&(1<<0) != 0,
		Phase1:    bits&(1<<1) != 0,
		Phase2:    bits&(1<<2) != 0,
		Phase3:    bits&(1<<3) != 0,
		Requested: bits&(1<<4) != 0,
	}
}
