package checks

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
)

const (
	fourGiB = 4 << 30
	// legacyBAR is the size of the framebuffer BAR of a GPU that nobody
	// enlarged: it fits below 4 GiB. Peer mappings of all memory do not fit in
	// it.
	legacyBAR = 256 << 20
)

// assignment is that of the framebuffer BAR of d as sysfs has it.
func assignment(d *facts.Device, fb facts.Framebuffer) Evidence {
	raw := "not assigned"
	if fb.Assigned {
		raw = fmt.Sprintf("%s at %s", bytes(fb.Size), fb.Start)
	}
	return Evidence{
		What:  fmt.Sprintf("BAR%d of %s", fb.Index, d.Address),
		Where: fmt.Sprintf("%s%s/resource line %d", sysPCI, d.Address, fb.Index+1), Raw: raw,
	}
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
		fb, isGPU := facts.Framebuffer{}, false
		if d.GPU {
			fb, isGPU = d.Framebuffer()
		}
		for _, r := range d.Resources {
			if !r.Prefetchable64() || isGPU && r.Index == fb.Index {
				continue
			}
			largest += r.Size()
			now += r.Size()
		}
		if isGPU {
			now += fb.Size
			largest += fb.Largest()
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
