package initramfs

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/userland"
	"mkp2pimg/kmod/loadopt"
)

// LibcPackages are the Debian packages that hold the C library and dynamic
// linker which p2pbw and the driver's libraries need.
var LibcPackages = []string{"libc6"}

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
	Version string // version of this product
	Driver  string // driver release; the version of every driver library, firmware and module
	Release string // kernel release, as uname -r prints it

	Source string // root directory of this Go module, where go.mod is
	Work   string // existing scratch directory; files in it must stay until the tree is packed
	Cache  string // directory that keeps the compiled command set for later builds; "" to do without

	Kernel    Package     // has lib/modules/<Release> or usr/lib/modules/<Release>
	Firmware  Package     // has lib/firmware/nvidia/<Driver>/gsp_*.bin
	Userspace []Package   // libcuda1, libnvidia-ml1, libnvidia-ptxjitcompiler1, nvidia-smi: or one unpacked .run archive
	Libc      []Package   // libc6 and what else the libraries may need: only what the closure asks for is taken
	Sets      []ModuleSet // driver modules
	Options   []string    // lines of modprobe.d/mkp2pimg.conf: "options nvidia NVreg_…=…"

	Profile     Profile
	GPUFirmware []string // of the firmware, files whose names end in _<word>.bin, as catalog.GPU.Firmware gives it; nil for all

	Load *loadopt.Data // what the init chooses the driver's options from; nil to take Options
}

// Result is an assembled image.
type Result struct {
	Tree     *Tree
	Modules  ModuleReport       // what became of the list of kernel modules
	Userland *userland.Programs // the programs and the Go modules in them
}

// Build assembles the tree of an image. It checks that every part of the driver
// has the same release before it compiles or unpacks anything.
func Build(ctx context.Context, s *Spec) (*Result, error) {
	driver, err := findDriver(s)
	if err != nil {
		return nil, fmt.Errorf("driver %s: %w", s.Driver, err)
	}
	kernel, err := openKernel(s.Kernel, s.Release)
	if err != nil {
		return nil, err
	}
	var (
		res     = &Result{Tree: &Tree{}}
		modules []*chosen
	)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		res.Userland, err = userland.Build(gctx, userland.Dirs{Source: s.Source, Work: s.Work, Cache: s.Cache}, s.Version)
		return err
	})
	g.Go(func() (err error) {
		modules, res.Modules, err = kernel.choose(gctx, slices.Concat(s.Profile.modules(), driver.kernelModules()))
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if err := requireModules(driver.kernelModules(), &res.Modules); err != nil {
		return nil, err
	}
	if err := addKernelModules(res.Tree, kernel, modules, s.Kernel, s.Release, s.Work); err != nil {
		return nil, err
	}
	if err := assemble(res.Tree, s, driver, res.Userland); err != nil {
		return nil, err
	}
	return res, nil
}

// assemble adds all but the kernel's modules.
func assemble(t *Tree, s *Spec, driver *driverFiles, p *userland.Programs) error {
	if err := addPrograms(t, p); err != nil {
		return err
	}
	if err := driver.add(t, s, p.P2PBW); err != nil {
		return err
	}
	return addEtc(t, s)
}

// requireModules checks that the kernel modules which the driver depends on
// are in the image or in the kernel.
func requireModules(names []string, rep *ModuleReport) error {
	for _, name := range names {
		if slices.Contains(rep.Absent, name) {
			return fmt.Errorf("the driver's modules depend on kernel module %s, which the kernel package lacks", name)
		}
	}
	return nil
}

// addPrograms puts the compiled programs into the tree: the busybox under
// /bbin, where u-root's init expects its commands, and this project's under
// /bin.
func addPrograms(t *Tree, p *userland.Programs) error {
	o := Origin{BuiltHere, "u-root", p.Version("github.com/u-root/u-root")}
	if err := t.AddFile("/bbin/bb", 0o755, p.Busybox, o); err != nil {
		return err
	}
	links := map[string]string{"/init": "bbin/init", layout.Shell: "../bbin/gosh", "/bin/defaultsh": "../bbin/gosh", layout.Uinit: path.Base(layout.P2PInit)}
	for _, c := range p.Commands {
		links["/bbin/"+c] = "bb"
	}
	for name, target := range links {
		if err := t.AddLink(name, target, o); err != nil {
			return err
		}
	}
	for name, host := range map[string]string{layout.P2PInit: p.P2PInit, layout.P2PBW: p.P2PBW} {
		if err := t.AddFile(name, 0o755, host, Origin{Kind: BuiltHere, Name: "mkp2pimg"}); err != nil {
			return err
		}
	}
	return nil
}

// addEtc adds the files that the build writes itself, mount points, and last,
// since it lists all others, the description of the image.
func addEtc(t *Tree, s *Spec) error {
	o := Origin{Kind: Generated, Name: "etc"}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run", "/tmp", "/mnt", "/root", "/var/log"} {
		if err := t.AddDir(dir, 0o755, o); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"/etc/passwd":        "root:x:0:0:root:/root:/bin/sh\n",
		"/etc/group":         "root:x:0:\ntty:x:5:\n",
		"/etc/hosts":         "127.0.0.1 localhost\n::1 localhost\n",
		"/etc/nsswitch.conf": "hosts: files dns\n",
		layout.Options:       strings.Join(append(slices.Clone(s.Options), ""), "\n"),
	} {
		if err := t.AddBytes(name, 0o644, []byte(text), o); err != nil {
			return err
		}
	}
	img := layout.Image{Version: layout.Version, Driver: s.Driver, Kernel: s.Release, Load: s.Load, Files: t.Files()}
	for _, set := range s.Sets {
		img.Sets = append(img.Sets, set.Name)
	}
	data, err := json.MarshalIndent(&img, "", " ")
	if err != nil {
		return err
	}
	return t.AddBytes(layout.Description, 0o644, append(data, '\n'), o)
}
