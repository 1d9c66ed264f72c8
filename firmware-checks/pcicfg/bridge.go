package pcicfg

// Registers of the type 1 header (PCIe 6.0 §7.5.1.3).
const (
	offPrimaryBus     = 0x18
	offSecondaryBus   = 0x19
	offSubordinateBus = 0x1a
	offMemoryBase     = 0x20
	offMemoryLimit    = 0x22
	offPrefBase       = 0x24
	offPrefLimit      = 0x26
	offPrefBaseUpper  = 0x28
	offPrefLimitUpper = 0x2c

	windowMask   = 0xfff0 // address bits 31:20 in register bits 15:4
	windowType   = 0x000f
	windowType64 = 0x1
	windowGrain  = 1<<20 - 1 // windows are whole MiB, the limit's low bits are ones
)

// Bridge is what a type 1 header says about the buses and addresses behind it.
type Bridge struct {
	Primary     int `json:"primary"`
	Secondary   int `json:"secondary"`
	Subordinate int `json:"subordinate"`
	// Memory is the non-prefetchable window, always below 4 GiB.
	Memory Window `json:"memory"`
	// Prefetchable is the window that a GPU's framebuffer BAR must fit in.
	Prefetchable Window `json:"prefetchable"`
	// Prefetchable64 says that the prefetchable window can lie above 4 GiB.
	Prefetchable64 bool `json:"prefetchable_64"`
	// NoPrefetchable says that the bridge has no prefetchable window, which is
	// optional: its registers read zero. Prefetchable is closed then.
	NoPrefetchable bool `json:"no_prefetchable,omitempty"`
}

// Window is a range of addresses that a bridge forwards downstream, both ends
// included. A bridge closes a window by a base above the limit.
type Window struct {
	Base  Hex `json:"base"`
	Limit Hex `json:"limit"`
}

// Size returns the size of w in bytes, 0 when it is closed.
func (w Window) Size() uint64 {
	if w.Base > w.Limit {
		return 0
	}
	return uint64(w.Limit-w.Base) + 1
}

// Contains reports whether the n bytes at addr lie in w.
func (w Window) Contains(addr Hex, n uint64) bool {
	return n > 0 && n <= w.Size() && addr >= w.Base && uint64(addr-w.Base) <= w.Size()-n
}

// closed is what a window is set to that does not exist.
var closed = Window{Base: windowGrain + 1, Limit: windowGrain}

func (d *decoder) bridge() *Bridge {
	b := &Bridge{
		Primary:     int(d.u8(offPrimaryBus)),
		Secondary:   int(d.u8(offSecondaryBus)),
		Subordinate: int(d.u8(offSubordinateBus)),
		Memory:      d.window(offMemoryBase, offMemoryLimit),
	}
	// Registers that are not implemented are hardwired to zero, type bits
	// included (PCIe 5.0 §7.5.1.3.9), and would decode
	// as the first MiB.
	if d.u32(offPrefBase) == 0 {
		b.NoPrefetchable, b.Prefetchable = true, closed
		return b
	}
	b.Prefetchable = d.window(offPrefBase, offPrefLimit)
	if d.u16(offPrefBase)&windowType == windowType64 {
		b.Prefetchable64 = true
		b.Prefetchable.Base |= Hex(d.u32(offPrefBaseUpper)) << 32
		b.Prefetchable.Limit |= Hex(d.u32(offPrefLimitUpper)) << 32
	}
	return b
}

func (d *decoder) window(base, limit int) Window {
	return Window{
		Base:  Hex(d.u16(base)&windowMask) << 16,
		Limit: Hex(d.u16(limit)&windowMask)<<16 | windowGrain,
	}
}
