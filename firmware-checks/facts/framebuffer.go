package facts

import (
	"slices"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Framebuffer is the BAR through which others reach a GPU's memory.
type Framebuffer struct {
	Index    int
	Size     uint64 // bytes, 0 when unknown
	Start    pcicfg.Hex
	Assigned bool
	// Resizable is nil when the Resizable BAR capability has no entry for it.
	Resizable *pcicfg.ResizableBAR
}

// Framebuffer finds the framebuffer BAR of d; ok is false when d has no
// candidate. On GeForce it is BAR 1, but the RTX PRO 6000 Server has it at BAR
// 2: it is known by being the largest 64-bit prefetchable one.
func (d *Device) Framebuffer() (fb Framebuffer, ok bool) {
	candidates := map[int]Framebuffer{}
	if d.Config != nil {
		// A BAR that the kernel gave up on may be missing in sysfs.
		for _, b := range d.Config.BARs {
			if b.Is64 && b.Prefetchable {
				candidates[b.Index] = Framebuffer{Index: b.Index}
			}
		}
	}
	for _, r := range d.Resources {
		if r.Prefetchable64() {
			candidates[r.Index] = Framebuffer{Index: r.Index, Size: r.Size(), Start: r.Start, Assigned: r.Assigned()}
		}
	}
	for i := range 6 {
		c, found := candidates[i]
		if !found {
			continue
		}
		c.Resizable = d.resizable(i)
		if c.Size == 0 && c.Resizable != nil {
			c.Size = c.Resizable.Size
		}
		if !ok || c.Size > fb.Size {
			fb, ok = c, true
		}
	}
	return fb, ok
}

// resizable returns the entry of the Resizable BAR capability for a BAR.
func (d *Device) resizable(bar int) *pcicfg.ResizableBAR {
	if d.Config == nil {
		return nil
	}
	i := slices.IndexFunc(d.Config.ResizableBARs, func(r pcicfg.ResizableBAR) bool { return r.BAR == bar })
	if i < 0 {
		return nil
	}
	return &d.Config.ResizableBARs[i]
}

// Largest is the largest size that the BAR can take, in bytes: the one it has
// if it can't be resized.
func (fb Framebuffer) Largest() uint64 {
	if fb.Resizable == nil {
		return fb.Size
	}
	return max(fb.Size, fb.Resizable.MaxSize())
}
