package checks

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

const (
	fourGiB = 4 << 30
	// legacyBAR is the size of the framebuffer BAR of a GPU that nobody
	// enlarged: it fits below 4 GiB. Peer mappings of all memory do not fit in
	// it.
	legacyBAR = 256 << 20
)

// framebuffer is the BAR through which the other GPUs reach a GPU's memory. On
// GeForce it is BAR 1, but the RTX PRO 6000 Server has it at BAR 2: it is known
// by being the largest 64-bit prefetchable one.
type framebuffer struct {
	index    int
	size     uint64 // 0 when unknown
	start    pcicfg.Hex
	assigned bool
	rebar    *pcicfg.ResizableBAR // nil when the capability has no entry for it
}

// framebufferOf finds the framebuffer BAR of d; ok is false when d has no
// candidate.
func framebufferOf(d *facts.Device) (fb framebuffer, ok bool) {
	candidates := map[int]framebuffer{}
	if d.Config != nil {
		// A BAR that the kernel gave up on may be missing in sysfs.
		for _, b := range d.Config.BARs {
			if b.Is64 && b.Prefetchable {
				candidates[b.Index] = framebuffer{index: b.Index}
			}
		}
	}
	for _, r := range d.Resources {
		if r.Prefetchable64() {
			candidates[r.Index] = framebuffer{index: r.Index, size: r.Size(), start: r.Start, assigned: r.Assigned()}
		}
	}
	for i := range 6 {
		c, found := candidates[i]
		if !found {
			continue
		}
		c.rebar = resizable(d, i)
		if c.size == 0 && c.rebar != nil {
			c.size = c.rebar.Size
		}
		if !ok || c.size > fb.size {
			fb, ok = c, true
		}
	}
	return fb, ok
}

// resizable returns the entry of the Resizable BAR capability for a BAR.
func resizable(d *facts.Device, bar int) *pcicfg.ResizableBAR {
	if d.Config == nil {
		return nil
	}
	i := slices.IndexFunc(d.Config.ResizableBARs, func(r pcicfg.ResizableBAR) bool { return r.BAR == bar })
	if i < 0 {
		return nil
	}
	return &d.Config.ResizableBARs[i]
}

// name returns "BAR1 of 0000:01:00.0".
func (fb framebuffer) name(d *facts.Device) string {
	return fmt.Sprintf("BAR%d of %s", fb.index, d.Address)
}

// evidence returns the assignment of the BAR as sysfs has it.
func (fb framebuffer) evidence(d *facts.Device) Evidence {
	raw := "not assigned"
	if fb.assigned {
		raw = fmt.Sprintf("%s at %s", bytes(fb.size), fb.start)
	}
	return Evidence{What: fb.name(d), Where: fmt.Sprintf("%s%s/resource line %d", sysPCI, d.Address, fb.index+1), Raw: raw}
}

// narrowWindow returns the bridge nearest to the root whose prefetchable window
// cannot hold the framebuffer BARs below it at their largest beside the other
// prefetchable BARs there, with the bytes they need; nil when all windows can,
// or their configuration space is not known.
func narrowWindow(f *facts.Facts, d *facts.Device) (bridge *facts.Device, needs, holds uint64) {
	for _, address := range d.Path {
		b := f.Device(address)
		if b == nil || b.Config == nil || b.Config.Bridge == nil {
			continue
		}
		needs, _ = needsBelow(f, address)
		if holds = b.Config.Bridge.Prefetchable.Size(); holds < needs {
			return b, needs, holds
		}
	}
	return nil, 0, 0
}

// needsBelow sums the prefetchable 64-bit BARs below a bridge as [needsOf] does.
func needsBelow(f *facts.Facts, bridge string) (largest, now uint64) {
	return needsOf(f, func(d *facts.Device) bool { return slices.Contains(d.Path, bridge) })
}

// needsOf sums the prefetchable 64-bit BARs of some functions: largest with
// every framebuffer BAR at its largest, now as they are. Alignment may cost
// more, so a window of this size is necessary rather than sufficient.
func needsOf(f *facts.Facts, some func(d *facts.Device) bool) (largest, now uint64) {
	for i := range f.Devices {
		d := &f.Devices[i]
		if !some(d) {
			continue
		}
		fb, isGPU := framebuffer{}, false
		if d.GPU {
			fb, isGPU = framebufferOf(d)
		}
		for _, r := range d.Resources {
			if !r.Prefetchable64() || isGPU && r.Index == fb.index {
				continue
			}
			largest += r.Size()
			now += r.Size()
		}
		if isGPU {
			now += fb.size
			if fb.rebar != nil {
				largest += max(fb.size, fb.rebar.MaxSize())
			} else {
				largest += fb.size
			}
		}
	}
	return largest, now
}

// bytes writes a size in the largest unit that it fills, to four digits.
func bytes(n uint64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	v, u := float64(n), 0
	for v >= 1024 && u < len(units)-1 {
		v /= 1024
		u++
	}
	return fmt.Sprintf("%.4g %s", v, units[u])
}
