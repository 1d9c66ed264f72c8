package pcicfg

// Slot registers (PCIe 6.0 §7.5.3.9 to §7.5.3.11).
const (
	expSltCap = 0x14
	expSltCtl = 0x18
	expSltSta = 0x1a

	sltCapController = 1 << 1
	sltCapSurprise   = 1 << 5
	sltCapHotPlug    = 1 << 6
	sltCapPowerBit   = 7 // bits 14:7
	sltCapPowerMask  = 0xff
	sltCapScaleBit   = 15 // bits 16:15
	sltCapScaleMask  = 0x3
	sltCapNumberBit  = 19      // bits 31:19
	sltCtlPowerOff   = 1 << 10 // meaningful with a power controller
	sltStaPresent    = 1 << 6

	sltPowerFirstHigh = 0xf0 // 250 W, then 25 W a step, with scale 0
	sltPowerLastHigh  = 0xfe // 600 W
)

// Slot is what a port says about the slot below it.
type Slot struct {
	// Number is the physical number of the slot in its chassis, 0 when it is
	// on the board.
	Number int `json:"number"`
	// PowerLimit is what the slot can give, in milliwatts, 0 for none set.
	PowerLimit int  `json:"power_limit_mw"`
	HotPlug    bool `json:"hot_plug"`
	Surprise   bool `json:"surprise"`
	// Present says that the slot is not empty.
	Present bool `json:"present"`
	// PoweredOff says that the slot's power controller holds it off.
	PoweredOff bool `json:"powered_off,omitempty"`
}

func (d *decoder) slot(off int) *Slot {
	capable := d.u32(off + expSltCap)
	return &Slot{
		Number:     int(capable >> sltCapNumberBit),
		PowerLimit: slotPower(int(capable>>sltCapPowerBit&sltCapPowerMask), int(capable>>sltCapScaleBit&sltCapScaleMask)),
		HotPlug:    capable&sltCapHotPlug != 0,
		Surprise:   capable&sltCapSurprise != 0,
		Present:    d.u16(off+expSltSta)&sltStaPresent != 0,
		PoweredOff: capable&sltCapController != 0 && d.u16(off+expSltCtl)&sltCtlPowerOff != 0,
	}
}

// slotPower returns milliwatts. The scale is 1, 0.1, 0.01 or 0.001 W; with the
// first, values from F0h on are an enumeration.
func slotPower(value, scale int) int {
	if scale == 0 && value >= sltPowerFirstHigh && value <= sltPowerLastHigh {
		return (250 + 25*(value-sltPowerFirstHigh)) * 1000
	}
	return value * [...]int{1000, 100, 10, 1}[scale]
}
