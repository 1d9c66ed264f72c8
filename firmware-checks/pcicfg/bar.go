package pcicfg

// Bits of a Base Address Register (PCIe 6.0 §7.5.1.2.1) and of the Expansion ROM
// Base Address Register (§7.5.1.2.4).
const (
	barIO           = 0x1
	barIOMask       = ^uint32(0x3)
	barType64       = 0x4 // bits 2:1 = 10b
	barTypeMask     = 0x6
	barPrefetchable = 0x8
	barMemMask      = ^uint32(0xf)

	romEnable   = 0x1
	romBaseMask = ^uint32(0x7ff)
)

// BAR is one Base Address Register that is in use. Its size is not in
// configuration space: software finds it by writing ones, and Linux publishes
// it in sysfs.
type BAR struct {
	// Index is the number of the register, 0 to 5. A 64-bit BAR also takes the
	// next index.
	Index        int  `json:"index"`
	IO           bool `json:"io,omitempty"`
	Is64         bool `json:"is_64,omitempty"`
	Prefetchable bool `json:"prefetchable,omitempty"`
	// Address is the programmed base without the type bits, 0 when
	// unassigned.
	Address Hex `json:"address"`
}

// bars decodes n registers. A register that reads zero is skipped: it is not
// implemented, or an unassigned 32-bit BAR, which nothing here needs.
func (d *decoder) bars(n int) []BAR {
	var bars []BAR
	add := func(b BAR) {
		if bars == nil {
			bars = make([]BAR, 0, n)
		}
		bars = append(bars, b)
	}
	for i := 0; i < n; i++ {
		v := d.u32(offBARs + 4*i)
		switch {
		case v == 0:
		case v&barIO != 0:
			add(BAR{Index: i, IO: true, Address: Hex(v & barIOMask)})
		default:
			b := BAR{
				Index:        i,
				Is64:         v&barTypeMask == barType64,
				Prefetchable: v&barPrefetchable != 0,
				Address:      Hex(v & barMemMask),
			}
			if b.Is64 {
				i++
				if i == n {
					d.unknown("BAR %d says it is 64 bits wide but is the last register", b.Index)
					b.Is64 = false
				} else {
					b.Address |= Hex(d.u32(offBARs+4*i)) << 32
				}
			}
			add(b)
		}
	}
	return bars
}

// ROM is the Expansion ROM Base Address Register.
type ROM struct {
	// Address is the programmed base, 0 when unassigned.
	Address Hex `json:"address"`
	// Enabled says that the ROM answers at that address, while the Memory Space
	// bit of the command register is set.
	Enabled bool `json:"enabled"`
}

// rom decodes the register at off, nil when it reads zero: there is no ROM, or
// an unassigned one.
func (d *decoder) rom(off int) *ROM {
	v := d.u32(off)
	if v == 0 {
		return nil
	}
	return &ROM{Address: Hex(v & romBaseMask), Enabled: v&romEnable != 0}
}
