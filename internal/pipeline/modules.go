package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/build"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/kmod/ko"
	"mkp2pimg/kmod/loadopt"
	"mkp2pimg/kmod/patch"
)

// Names of the module sets in the image.
const (
	stockSet = "stock" // the driver as NVIDIA ships it, made to compile
	p2pSet   = "p2p"   // with the P2P edits as well
)

// modules are the driver's modules and how they came to be.
type modules struct {
	stock, p2p []build.Module
	edits      *edits
	load       *loadopt.Data
	manifest   []images.ModuleSet
	steps      []build.Step
}

// edits are the changes to a driver's source, planned before anything is
// compiled.
type edits struct {
	compat *patch.Result // what the kernel asks for: in both sets
	p2p    *patch.Result // what peer-to-peer asks for
	all    *patch.Result // both
	offer  loadopt.Offer
}

// plan works out the edits of a source tree for a kernel's headers.
func plan(source, headers, mode string) (*edits, error) {
	tree := os.DirFS(source)
	e := &edits{}
	var err error
	compat, p2p := patch.Compat(os.DirFS(headers)), patch.P2P(patch.Mode(mode))
	if e.compat, err = patch.Plan(tree, compat); err != nil {
		return nil, fmt.Errorf("edits for the kernel: %w", err)
	}
	if e.p2p, err = patch.Plan(tree, p2p); err != nil {
		return nil, fmt.Errorf("P2P edits: %w", err)
	}
	for _, o := range e.p2p.Edits {
		if o.Status == patch.AlreadyApplied {
			return nil, refuse("the driver's source has edit %s already, so that no modules as NVIDIA ships them can be built from it: "+
				"give unedited source, or take the edits back with \"mkp2pimg patch --revert\"", o.Edit.ID)
		}
	}
	if e.all, err = patch.Plan(tree, append(compat, p2p...)); err != nil {
		return nil, fmt.Errorf("all edits together: %w", err)
	}
	e.offer, err = patch.Offered(tree)
	return e, err
}

// driverTime is the date that the modules carry: that of the newest file at
// the top of the source tree, which its archive sets.
func driverTime(source string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(source, "version.mk"))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// compile builds the modules of both sets.
func (in *inputs) compile(ctx context.Context, o *Options, toolchain sandbox.Root, source, sourceKey string, e *edits) (*modules, error) {
	epoch, err := driverTime(source)
	if err != nil {
		return nil, err
	}
	toolchainKey, compilerKey, err := in.toolchainKeys(ctx, o)
	if err != nil {
		return nil, err
	}
	result, err := build.Build(ctx, build.Config{
		Toolchain:    toolchain,
		ToolchainKey: toolchainKey,
		CompilerKey:  compilerKey,
		Source:       source,
		SourceKey:    sourceKey,
		Kernel:       in.lock.Kernel,
		Epoch:        epoch,
		Compat: func(tree, headers string) error {
			return write(tree, patch.Compat(os.DirFS(headers)))
		},
		CompatKey: keyOf("compat", e.compat.Diff()),
		Edit: func(tree string) error {
			return write(tree, patch.P2P(patch.Mode(o.Edits)))
		},
		EditKey: keyOf("p2p", e.p2p.Diff()),
		Cache:   filepath.Join(o.Cache, "modules"),
		Jobs:    o.Jobs,
	})
	if err != nil {
		return nil, err
	}
	return &modules{stock: result.Stock, p2p: result.P2P, edits: e, load: e.load(), steps: result.Steps}, nil
}

// write applies edits to a tree.
func write(tree string, list []patch.Edit) error {
	r, err := patch.Plan(os.DirFS(tree), list)
	if err != nil {
		return err
	}
	return r.Write(tree)
}

// load is what the options to load the driver with are chosen from, once the
// machine is known.
func (e *edits) load() *loadopt.Data {
	d := &loadopt.Data{Offer: e.offer, Edited: []string{}, Models: catalog.Load().Models(e.p2p.Driver)}
	if len(applied(e.p2p)) > 0 {
		d.Edited = []string{p2pSet}
	}
	return d
}

// sets names the modules for the image.
func (m *modules) sets() []initramfs.ModuleSet {
	return []initramfs.ModuleSet{{Name: p2pSet, Files: paths(m.p2p)}, {Name: stockSet, Files: paths(m.stock)}}
}

func paths(list []build.Module) []string {
	var files []string
	for _, m := range list {
		files = append(files, m.Path)
	}
	return files
}

// check proves that the modules fit the image's kernel, as far as that can be
// done without inserting them, and describes both sets for the manifest.
// Modules that would be refused are an error.
func (m *modules) check(toolchain sandbox.Root, kernel initramfs.Package, release string) error {
	vermagic, err := initramfs.Vermagic(kernel, release)
	if err != nil {
		return err
	}
	_, output, err := build.Headers(toolchain, release)
	if err != nil {
		return err
	}
	for _, set := range []struct {
		name    string
		modules []build.Module
		edits   []string
	}{
		{p2pSet, m.p2p, append(applied(m.edits.compat), applied(m.edits.p2p)...)},
		{stockSet, m.stock, applied(m.edits.compat)},
	} {
		reports, err := build.Check(set.modules, filepath.Join(output, "Module.symvers"), vermagic)
		if err != nil {
			return err
		}
		entry := images.ModuleSet{Name: set.name, Edits: set.edits}
		for i, r := range reports {
			if err := r.Err(); err != nil {
				return err
			}
			module, err := describe(set.modules[i], set.name, release, r)
			if err != nil {
				return err
			}
			entry.Modules = append(entry.Modules, module)
		}
		m.manifest = append(m.manifest, entry)
	}
	return nil
}

// describe says what was proven of a module.
func describe(m build.Module, set, release string, r *ko.Report) (images.Module, error) {
	k, err := ko.Open(m.Path)
	if err != nil {
		return images.Module{}, err
	}
	var from []string
	for _, module := range slices.Sorted(maps.Keys(r.From)) {
		from = append(from, fmt.Sprintf("%d from %s", r.From[module], module))
	}
	return images.Module{
		Path:     layout.DriverModule(release, set, path.Base(m.Name)),
		Version:  k.Version,
		Vermagic: k.Vermagic,
		Checks: []images.Check{
			{Name: "vermagic", Status: "pass", Detail: k.Vermagic},
			{Name: "symbol-crcs", Status: "pass", Detail: fmt.Sprintf("%d imports resolved: %s", r.Imports, strings.Join(from, ", "))},
		},
	}, nil
}

// applied lists the edits that a plan makes.
func applied(r *patch.Result) []string {
	ids := []string{}
	for _, o := range r.Edits {
		if o.Status == patch.Applied || o.Status == patch.AlreadyApplied {
			ids = append(ids, o.Edit.ID)
		}
	}
	return ids
}

// report is the content of patch-report.json and patch.diff.
func (e *edits) report() (report, diff []byte, err error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(e.all.Report()); err != nil {
		return nil, nil, err
	}
	return b.Bytes(), []byte(e.all.Diff()), nil
}
