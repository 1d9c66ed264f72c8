package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/build"
)

// Files of an image directory besides those that package images names.
const (
	LockName        = "mkp2pimg.lock"
	PatchReportName = "patch-report.json"
	PatchDiffName   = "patch.diff"
)

// Result is a finished image.
type Result struct {
	Out      string          `json:"out"`
	Driver   string          `json:"driver"`
	Kernel   string          `json:"kernel"`
	Edits    []string        `json:"edits"`
	Initrd   initramfs.Sizes `json:"initrd"`
	UpToDate bool            `json:"up_to_date"` // the image was there already, and nothing was built
	Steps    []Step          `json:"steps"`
	Compiled []build.Step    `json:"compiled"` // parts of the step "modules", none if the cache had them
}

// Build makes the image that o asks for. What earlier builds left in the cache
// is used again; if nothing changed since the image in o.Out was made, it is
// verified and left alone.
func Build(ctx context.Context, o Options) (*Result, error) {
	if err := errors.Join(o.checkInputs(), o.checkImage()); err != nil {
		return nil, err
	}
	s := o.steps()
	in, err := s.inputs(ctx, &o, o.roles()...)
	if err != nil {
		return nil, err
	}
	if err := o.gpus.check(in.lock.Driver); err != nil {
		return nil, err
	}
	key, err := in.imageKey(ctx, &o)
	if err != nil {
		return nil, err
	}
	if m := o.upToDate(key); m != nil {
		fmt.Fprintf(o.Log, "%s is up to date\n", o.Out)
		r := result(&o, m, s, nil)
		r.UpToDate = true
		return r, nil
	}
	work, remove, err := o.scratch()
	if err != nil {
		return nil, err
	}
	defer remove()
	if err := s.userspace(ctx, &o, in); err != nil {
		return nil, err
	}
	mods, err := s.modules(ctx, &o, in)
	if err != nil {
		return nil, err
	}
	n, err := s.rootfs(ctx, &o, in, mods, work)
	if err != nil {
		return nil, err
	}
	if n.Media, err = s.media(ctx, &o, in); err != nil {
		return nil, err
	}
	var m *images.Manifest
	err = s.run("image", func() (string, error) {
		if m, err = n.Write(ctx, o.Out); err != nil {
			return "", err
		}
		return fmt.Sprintf("%s: initrd %.1f MB, %.1f MB unpacked", o.Out, float64(m.Initrd.Packed)/1e6, float64(m.Initrd.Raw)/1e6), nil
	})
	if err != nil {
		return nil, err
	}
	return result(&o, m, s, mods.steps), o.remember(key)
}

func result(o *Options, m *images.Manifest, s *steps, compiled []build.Step) *Result {
	r := &Result{
		Out: o.Out, Driver: m.Driver, Kernel: m.Kernel, Edits: []string{}, Initrd: m.Initrd,
		Steps: s.done, Compiled: compiled,
	}
	for _, set := range m.ModuleSets {
		if set.Name == p2pSet {
			r.Edits = set.Edits
		}
	}
	return r
}

// userspace unpacks firmware and libraries and checks once that they are of the
// driver, before modules are compiled for many minutes.
func (s *steps) userspace(ctx context.Context, o *Options, in *inputs) error {
	if in.checked {
		return nil
	}
	return s.run("userspace", func() (string, error) {
		spec := &initramfs.Spec{}
		if err := in.userspace(ctx, o, spec); err != nil {
			return "", err
		}
		in.checked = true
		return "firmware and libraries of driver " + in.lock.Driver, initramfs.CheckUserspace(spec)
	})
}

// modules unpacks toolchain and source, plans the edits and compiles.
func (s *steps) modules(ctx context.Context, o *Options, in *inputs) (*modules, error) {
	var toolchain sandbox.Root
	var source, sourceKey string
	var e *edits
	err := s.run("toolchain", func() (detail string, err error) {
		if o.Toolchain == ToolchainHost {
			return "the host's", nil
		}
		toolchain, err = in.root(ctx, o, lock.Toolchain)
		return fmt.Sprintf("%d packages", len(in.lock.ByRole(lock.Toolchain))), err
	})
	if err != nil {
		return nil, err
	}
	err = s.run("edits", func() (string, error) {
		if source, sourceKey, err = in.source(ctx, o); err != nil {
			return "", err
		}
		headers, _, err := build.Headers(toolchain, in.lock.Kernel)
		if err != nil {
			return "", err
		}
		if e, err = plan(source, headers, o.Edits); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d for the kernel, %d for P2P, of driver %s", len(applied(e.compat)), len(applied(e.p2p)), e.p2p.Driver), nil
	})
	if err != nil {
		return nil, err
	}
	var m *modules
	err = s.run("modules", func() (string, error) {
		if m, err = in.compile(ctx, o, toolchain, source, sourceKey, e); err != nil {
			return "", err
		}
		kernel, err := in.one(ctx, o, lock.Kernel)
		if err != nil {
			return "", err
		}
		if err := m.check(toolchain, kernel, in.lock.Kernel); err != nil {
			return "", err
		}
		if len(m.steps) == 0 {
			return "from the cache", nil
		}
		return fmt.Sprintf("%d modules", len(m.stock)+len(m.p2p)), nil
	})
	if err != nil {
		return nil, err
	}
	for _, step := range m.steps {
		fmt.Fprintf(o.Log, "  %-24s %7.1f s  %5d MB  largest process; %.1f s of CPU\n",
			step.Name, step.Wall.Seconds(), step.PeakRSS/1e6, step.CPU.Seconds())
	}
	return m, nil
}

// rootfs assembles the tree and describes the directory to write.
func (s *steps) rootfs(ctx context.Context, o *Options, in *inputs, mods *modules, work string) (*images.Netboot, error) {
	var n *images.Netboot
	return n, s.run("rootfs", func() (string, error) {
		res, spec, err := in.rootfs(ctx, o, mods, work)
		if err != nil {
			return "", err
		}
		if n, err = in.netboot(o, mods, res, spec); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d files, %d kernel modules, %s", len(n.Manifest.Files), len(res.Modules.Chosen), res.Userland.Go), nil
	})
}

// netboot gathers what the image's directory is written from.
func (in *inputs) netboot(o *Options, mods *modules, res *initramfs.Result, spec *initramfs.Spec) (*images.Netboot, error) {
	report, diff, err := mods.edits.report()
	if err != nil {
		return nil, err
	}
	locked, err := in.lock.Marshal()
	if err != nil {
		return nil, err
	}
	epoch := in.epoch()
	n := &images.Netboot{
		Manifest: images.Manifest{
			Product:         images.Product{Version: o.Version},
			Driver:          in.lock.Driver,
			Kernel:          in.lock.Kernel,
			GPUs:            o.gpus.names,
			Profile:         o.Profile,
			CommandLine:     images.DefaultCommandLine,
			SourceDateEpoch: epoch.Unix(),
			Go:              res.Userland.Go,
			Options:         spec.Options,
			ModuleSets:      mods.manifest,
			KernelModules:   res.Modules,
			GoModules:       images.GoModulesOf(res.Userland),
			Files:           images.FilesOf(res.Tree),
		},
		Kernel: filepath.Join(spec.Kernel.Root, "boot", "vmlinuz-"+in.lock.Kernel),
		Initrd: func(w io.Writer) (initramfs.Sizes, error) {
			return res.Tree.Pack(w, initramfs.PackOptions{Epoch: epoch, First: isFirmware})
		},
		Split: slices.Contains(o.Formats, FormatSplit),
		Extra: map[string][]byte{LockName: locked, PatchReportName: report, PatchDiffName: diff},
	}
	n.Manifest.Inputs, err = in.manifest(o.roles())
	return n, err
}

// isFirmware says whether a file is firmware: much the largest part of what stays
// the same from one build to the next.
func isFirmware(path string) bool { return strings.HasPrefix(path, layout.Firmware+"/") }

// shipped are the roles of inputs whose files are in the image itself.
var shipped = []lock.Role{lock.Kernel, lock.DriverSource, lock.Firmware, lock.Userspace, lock.Libc}

// manifest lists the inputs with one of the roles.
func (in *inputs) manifest(roles []lock.Role) ([]images.Input, error) {
	var list []images.Input
	for _, input := range in.lock.Inputs {
		if !slices.Contains(roles, input.Role) {
			continue
		}
		// Not the mirror that was asked: it must not change the image.
		f, err := in.lock.File(input, nil)
		if err != nil {
			return nil, err
		}
		origin := f.Name
		if len(f.URLs) > 0 {
			origin = f.URLs[0]
		}
		list = append(list, images.Input{
			Role: string(input.Role), Name: input.Name, Version: input.Version, Origin: origin,
			SHA256: input.SHA256, Size: input.Size, Licence: input.Licence, Shipped: slices.Contains(shipped, input.Role) || isLoader(input),
		})
	}
	return list, nil
}

// epoch is the date of the newest archive: nothing in the image is newer.
func (in *inputs) epoch() time.Time {
	var t time.Time
	for _, a := range in.lock.Archives {
		if a.Date.After(t) {
			t = a.Date
		}
	}
	return t
}
