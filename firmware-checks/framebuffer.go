package checks

import (
	"fmt"
	"slices"
	"strings"

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

// rigidWindow is [narrowWindow] less the windows that the kernel makes larger when
// the driver enlarges the BAR of d (pci_reassign_bridge_resources in
// drivers/pci/setup-bus.c): it lays a window out anew that nothing else uses, if
// the host bridge has room. Firmware that forbids moving windows shows only when
// the driver has tried.
func rigidWindow(f *facts.Facts, d *facts.Device) (bridge *facts.Device, needs, holds uint64) {
	if d.Driver == "nvidia" && paramsMatch(f) == "1" {
		return narrowWindow(f, d)
	}
	all, _ := needsOf(f, func(x *facts.Device) bool { return x.Root == d.Root })
	if high, _ := above4GiB(f, d.Root); high < all {
		return narrowWindow(f, d)
	}
	for _, address := range d.Path {
		own, _ := needsOf(f, func(x *facts.Device) bool { return x.Address == d.Address })
		if below, _ := needsBelow(f, address); below != own {
			return narrowWindow(f, d)
		}
	}
	return nil, 0, 0
}

// above4GiB sums the address ranges of a host bridge above 4 GiB, and says what
// ranges it has, none if they could not be read.
func above4GiB(f *facts.Facts, root string) (high uint64, ranges []Evidence) {
	for _, r := range f.MemoryMap {
		if r.Name != "PCI Bus "+strings.TrimPrefix(root, "pci") {
			continue
		}
		ranges = append(ranges, Evidence{
			What: "range of host bridge " + root, Where: "/proc/iomem", Raw: fmt.Sprintf("%s-%s (%s)", r.Start, r.End, bytes(r.Size())),
		})
		if r.Start >= fourGiB {
			high += r.Size()
		}
	}
	return high, ranges
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
