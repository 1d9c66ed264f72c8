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

// framebuffer is the size of a GPU's framebuffer BAR, 0 while it has no address.
func framebuffer(g *facts.Device) uint64 {
	if fb, _ := g.Framebuffer(); fb.Assigned {
		return fb.Size
	}
	return 0
}

// headless reports whether firmware left no console in the GPU's memory: that is
// where the boot display device has it. Functions that are no VGA controller
// have no such file.
func headless(root fs.FS, address string) bool {
	text, err := fs.ReadFile(root, "sys/bus/pci/devices/"+address+"/boot_vga")
	return errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(text)) == "0"
}
