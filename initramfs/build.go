package initramfs

import (
	"context"
)

// Package is an unpacked distribution package.
type Package struct {
	Name    string // linux-image-6.12.117+deb12-amd64, libcuda1, libc6 …
	Version string // version of the package
	Root    string // host directory that holds its files (what Unpack of a .deb makes)
}

func (p *Package) origin() Origin { return Origin{FromPackage, p.Name, p.Version} }

// ModuleSet is one build of the driver's kernel modules.
type ModuleSet struct {
	Name  string   // "p2p" or "stock"
	Files []string // host paths of nvidia.ko and nvidia-uvm.ko
}

// Spec is what an image is made of. All paths are host paths.
type Spec struct {
	Driver  string // driver release; the version of every driver library, firmware and module
	Release string // kernel release, as uname -r prints it

	Source string // root directory of this Go module, where go.mod is
	Work   string // existing scratch directory; files in it must stay until the tree is packed

	Kernel    Package     // has lib/modules/<Release> or usr/lib/modules/<Release>
	Firmware  Package     // has lib/firmware/nvidia/<Driver>/gsp_*.bin
	Userspace []Package   // libcuda1, libnvidia-ml1, libnvidia-ptxjitcompiler1, nvidia-smi: all their libraries and nvidia-smi are taken
	Libc      []Package   // libc6 and what else the libraries may need: only what the closure asks for is taken
	Sets      []ModuleSet // driver modules
	Options   []string    // lines of modprobe.d/mkp2pimg.conf: "options nvidia NVreg_…=…"

	Log func(format string, args ...any) // progress, one line a step; may be nil
}

// Result is an assembled image.
type Result struct {
	Tree    *Tree
	Modules ModuleReport // what became of the list of kernel modules
	Go      string       // Go release that compiled the programs, "go1.26.8"
}

// Build assembles the tree of an image. It checks that every part of the driver
// has the same release before it copies anything.
func Build(ctx context.Context, s *Spec) (*Result, error) {
	return build(ctx, s)
}
