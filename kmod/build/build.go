// Package build compiles the modules nvidia and nvidia-uvm from the full source
// tree of NVIDIA's open GPU kernel modules, as shipped ("stock") and with the
// P2P edits ("p2p").
//
// There are three stages. "core" compiles the part of the driver that knows no
// kernel, and serves every kernel; "stock" adds what Kbuild makes for one kernel;
// "p2p" is stock with the edits. The trees of the first two are kept in the cache
// as they were compiled, objects and all, and the next stage starts from a copy,
// whose time stamps tell make which objects are older than their source: what its
// changes touch is compiled, the rest is linked again. All happen at one path
// inside the sandbox, under fixed user, host and date, so that the modules do not
// depend on where, when and by whom they are built.
package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"mkp2pimg/internal/cachedir"
	"mkp2pimg/internal/sandbox"
)

// ToolchainPackages are the Debian 12 packages that, with the kernel's headers
// and the dependencies of all, make a root that [Build] works in. The compiler
// is the one Debian's kernels are built with.
var ToolchainPackages = []string{
	"binutils", "coreutils", "dash", "findutils", "gcc-12", "grep", "libc6-dev", "make", "mawk", "sed",
}

// ToolchainExclude are packages that the headers of a kernel release depend on
// and the build has no use for: the kernel itself and its installation.
func ToolchainExclude(kernel string) []string {
	return []string{"linux-image-" + kernel, "linux-base", "pahole", "dwarves"}
}

// HeadersPackage tells whether a package of the root is there for the headers of
// a kernel: them, the programs that Debian built with them, and the name of its
// compiler.
func HeadersPackage(name string) bool {
	return slices.ContainsFunc([]string{"linux-headers-", "linux-kbuild-", "linux-compiler-"}, func(prefix string) bool {
		return strings.HasPrefix(name, prefix)
	})
}

// Config is what to build. The keys name the contents of what they stand for:
// equal keys, equal contents. They decide whether the cache has it.
type Config struct {
	// Toolchain holds the compiler and the kernel's headers. On the host itself
	// the modules depend on its compiler and on the cache's path, and the
	// kernel-open part is compiled anew for each set of edits.
	Toolchain    sandbox.Root
	ToolchainKey string // all of it
	CompilerKey  string // all but the kernel's headers: the same for every kernel

	Source    string // the pristine tree, with kernel-open and src; only read
	SourceKey string

	Kernel string    // release, e.g. "6.12.117+deb12-amd64"
	Epoch  time.Time // date that nvidia.ko carries; the source's is a good choice

	// Compat makes the source fit the kernel whose headers (the directory with
	// include/linux) are at headers. Both builds get its changes. May be nil.
	Compat    func(tree, headers string) error
	CompatKey string

	// Edit makes the P2P edits. It must write only files that it changes. If
	// nil, only stock modules are built.
	Edit    func(tree string) error
	EditKey string

	Cache string    // directory of compiled trees, logs and modules
	Jobs  int       // compilers at a time; 0 is the number of CPUs
	Log   io.Writer // gets all that make prints; may be nil
}

// Module is a built and stripped module.
type Module struct {
	Name   string `json:"name"` // file name without .ko: "nvidia-uvm"
	Path   string `json:"-"`    // in the cache, not to be changed
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Result are the modules that were asked for, and what was done to get them: no
// steps if all of it was in the cache.
type Result struct {
	Stock []Module
	P2P   []Module // nil without Config.Edit
	Steps []Step
}

// Step is one finished part of the work.
type Step struct {
	Name    string        `json:"name"` // such as "stock: nv-kernel.o"
	Wall    time.Duration `json:"wall_ns"`
	CPU     time.Duration `json:"cpu_ns"`         // user and system time of all its processes
	PeakRSS int64         `json:"peak_rss_bytes"` // bytes, of its largest process; 0 if none was started
}

// Build returns the modules from the cache, or builds them. If ctx ends, or any
// step fails, the cache holds nothing of what was not finished. A failed
// compilation gives a [*CompileError].
func Build(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.SourceKey == "" || cfg.ToolchainKey == "" || cfg.CompilerKey == "" || (cfg.Compat != nil) != (cfg.CompatKey != "") || (cfg.Edit != nil) != (cfg.EditKey != "") {
		return nil, errors.New("build: source, toolchain, compiler, compat and edits need a key each")
	}
	if cfg.Jobs <= 0 {
		cfg.Jobs = runtime.NumCPU()
	}
	if cfg.Log == nil {
		cfg.Log = io.Discard
	}
	for _, path := range []*string{&cfg.Source, &cfg.Cache} {
		abs, err := filepath.Abs(*path)
		if err != nil {
			return nil, fmt.Errorf("build: %w", err)
		}
		*path = abs
	}
	b := &builder{Config: cfg}

	core, stock, p2p := b.entries()
	err := cachedir.Make(ctx, stock, func(partial string) error {
		err := cachedir.Make(ctx, core, func(partial string) error {
			return b.build(ctx, job{label: "core", entry: core, from: cfg.Source, partial: partial})
		})
		if err != nil {
			return err
		}
		return b.build(ctx, job{"stock", stock, filepath.Join(core, treeDir), partial, b.compat, true})
	})
	if err != nil {
		return nil, err
	}
	r := &Result{}
	if r.Stock, err = readModules(stock); err != nil {
		return nil, err
	}
	if cfg.Edit != nil {
		err = cachedir.Make(ctx, p2p, func(partial string) error {
			err := b.build(ctx, job{"p2p", p2p, filepath.Join(stock, treeDir), partial, cfg.Edit, true})
			// The next edits start from the stock tree again.
			return errors.Join(err, os.RemoveAll(filepath.Join(partial, treeDir)))
		})
		if err != nil {
			return nil, err
		}
		if r.P2P, err = readModules(p2p); err != nil {
			return nil, err
		}
	}
	r.Steps = b.steps
	return r, nil
}

// entries returns the directories of the cache for the three stages.
func (b *builder) entries() (core, stock, p2p string) {
	date := fmt.Sprint(environment(b.Epoch))
	core = b.entry("core", b.SourceKey, b.CompilerKey, fmt.Sprint(nvKernel(b.Epoch)), date)
	stock = b.entry("stock", filepath.Base(core), b.ToolchainKey, b.CompatKey, fmt.Sprint(kbuild(b.Kernel)))
	p2p = b.entry("p2p", filepath.Base(stock), b.EditKey)
	return core, stock, p2p
}

// entry returns the directory for what the parts describe.
func (b *builder) entry(label string, parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return filepath.Join(b.Cache, label+"-"+hex.EncodeToString(h.Sum(nil)[:12]))
}

// compat runs Config.Compat if there is one.
func (b *builder) compat(tree string) error {
	if b.Compat == nil {
		return nil
	}
	headers, _, err := Headers(b.Toolchain, b.Kernel)
	if err != nil {
		return err
	}
	return b.Compat(tree, headers)
}
