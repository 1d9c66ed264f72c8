package driver

import (
	"errors"
	"io/fs"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/kmod/loadopt"
)

// Choose decides with which options nvidia.ko of a module set is loaded on the
// machine whose facts are f, nil if they are not known, and whose root is root.
func Choose(d *loadopt.Data, set string, f *facts.Facts, root fs.FS) loadopt.Choice {
	if f == nil {
		return d.Choose(set, nil)
	}
	var gpus []loadopt.GPU
	for _, g := range f.GPUs() {
		if !g.StandIn {
			gpus = append(gpus, d.GPU(g.Address, uint16(g.Device), framebuffer(g), headless(root, g.Address)))
		}
	}
	return d.Choose(set, gpus)
}

// framebuffer is the size of the BAR that shows a GPU's memory: the largest
// 64-bit prefetchable one, BAR1 on most and BAR2 on the RTX PRO 6000 Server. It
// is 0 while the BAR has no address.
func framebuffer(g *facts.Device) uint64 {
	var largest facts.Resource
	for _, r := range g.Resources {
		if r.Prefetchable64() && r.Size() > largest.Size() {
			largest = r
		}
	}
	if !largest.Assigned() {
		return 0
	}
	return largest.Size()
}

// headless reports whether firmware left no console in the GPU's memory: that is
// where the boot display device has it. Functions that are no VGA controller
// have no such file.
func headless(root fs.FS, address string) bool {
	text, err := fs.ReadFile(root, "sys/bus/pci/devices/"+address+"/boot_vga")
	return errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(text)) == "0"
}
