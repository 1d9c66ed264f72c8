// Package userland compiles the programs of the image with the build host's Go:
// u-root's commands as one busybox-like binary, the init and the measuring
// program of this project.
//
// The binaries depend on the Go release and the module versions of go.sum only:
// not on the directory, user, environment or caches of the build.
package userland

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const (
	makebb   = "github.com/u-root/gobusybox/src/cmd/makebb"
	commands = "github.com/u-root/u-root/cmds/"

	// p2pinit is a binary of its own, not part of the busybox: it must start
	// whatever happens to the shell commands, and a change of it should not
	// relink them.
	p2pinit = "mkp2pimg/initramfs/p2pinit"
	p2pbw   = "mkp2pimg/initramfs/p2pbw"

	// liner is u-root's build tag for gosh's plain line editor. The default one
	// asks the terminal about itself and shows nothing until it answers, which
	// on a serial console may be never.
	liner = "goshliner"
)

//go:embed tools.go
var tools string

// Programs are the compiled programs and what went into them.
type Programs struct {
	Busybox  string   // host path, in Work or Cache, of the static binary with all Commands
	Commands []string // names by which it can be called
	P2PInit  string   // host path, static
	P2PBW    string   // host path, dynamically linked: it loads libcuda
	Go       string   // Go release, "go1.26.8"
	Modules  []Module // Go modules linked in, sorted by path
}

// Module is a Go module.
type Module struct {
	Path    string
	Version string
	Sum     string // as in go.sum: h1:…
}

// Version returns the version of the Go module with the given path among those
// linked in, "" if it is not one of them.
func (p *Programs) Version(module string) string {
	for _, m := range p.Modules {
		if m.Path == module {
			return m.Version
		}
	}
	return ""
}

// Imports returns the import paths of the command set, sorted.
func Imports() []string {
	f, err := parser.ParseFile(token.NewFileSet(), "tools.go", tools, parser.ImportsOnly)
	if err != nil {
		panic(err) // it is a source file of this package
	}
	var list []string
	for _, spec := range f.Imports {
		if p, _ := strconv.Unquote(spec.Path.Value); strings.HasPrefix(p, commands) {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// Dirs are the host directories of a build.
type Dirs struct {
	Source string // root of this Go module
	Work   string // exists, gets the programs
	Cache  string // keeps the busybox, the slow part, for later builds; "" to do without
}

// versionVariable is the variable of the init that says which version it is.
const versionVariable = p2pinit + "/node.Version"

// Build compiles the programs. version is the product's, which the init puts into its report.
func Build(ctx context.Context, d Dirs, version string) (*Programs, error) {
	return build(ctx, d, version, Imports(), p2pinit, p2pbw)
}

func build(ctx context.Context, d Dirs, version string, cmds []string, initPkg, bwPkg string) (*Programs, error) {
	g, err := newGoTool(ctx, d.Source)
	if err != nil {
		return nil, err
	}
	p := &Programs{
		P2PInit: filepath.Join(d.Work, "p2pinit"),
		P2PBW:   filepath.Join(d.Work, "p2pbw"),
		Go:      g.version,
	}
	for _, c := range cmds {
		p.Commands = append(p.Commands, path.Base(c))
	}
	if p.Busybox, err = g.cachedBusybox(ctx, d, cmds); err != nil {
		return nil, fmt.Errorf("build the command set: %w", err)
	}
	for out, pkg := range map[string]string{p.P2PInit: initPkg, p.P2PBW: bwPkg} {
		if err := g.build(ctx, d.Source, nil, out, pkg, "-X "+versionVariable+"="+version); err != nil {
			return nil, fmt.Errorf("build %s: %w", pkg, err)
		}
	}
	p.Modules, err = g.modules(ctx, append([]string{initPkg, bwPkg}, cmds...))
	return p, err
}

// goTool runs one Go release in a fixed environment.
type goTool struct {
	bin     string // go command
	version string
	source  string
	env     []string
}

// kept are the settings that say where Go finds and stores things. They don't
// change what is compiled, so the user's own hold; all others are Go's defaults
// or given below.
var kept = []string{"GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOINSECURE", "GOVCS", "GOAUTH"}

func newGoTool(ctx context.Context, source string) (*goTool, error) {
	if _, err := os.Stat(filepath.Join(source, "go.mod")); err != nil {
		return nil, fmt.Errorf("the programs of the image are compiled from mkp2pimg's source: %w; run in a checkout of it or name one", err)
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"env", "-json", "GOROOT", "GOVERSION"}, kept...)...)
	cmd.Dir = source
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("ask the host's Go about itself: %w", err)
	}
	set := map[string]string{}
	if err := json.Unmarshal(out, &set); err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	g := &goTool{bin: filepath.Join(set["GOROOT"], "bin", "go"), version: set["GOVERSION"], source: source}
	g.env = []string{
		"GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOROOT=" + set["GOROOT"],
		"GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "CGO_ENABLED=0", "LC_ALL=C",
		"PATH=" + filepath.Dir(g.bin) + ":" + os.Getenv("PATH"),
	}
	for _, k := range kept {
		if set[k] != "" {
			g.env = append(g.env, k+"="+set[k])
		}
	}
	for _, k := range []string{"HOME", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if v, ok := os.LookupEnv(k); ok {
			g.env = append(g.env, k+"="+v)
		}
	}
	return g, nil
}

// cachedBusybox returns the busybox of the cache, or makes it.
func (g *goTool) cachedBusybox(ctx context.Context, d Dirs, cmds []string) (string, error) {
	key, err := g.key(cmds)
	if err != nil {
		return "", err
	}
	if d.Cache != "" {
		if file := cached(d.Cache, key); file != "" {
			return file, nil
		}
	}
	file := filepath.Join(d.Work, "bb")
	if err := g.busybox(ctx, d.Work, file, cmds); err != nil {
		return "", err
	}
	if d.Cache != "" {
		err = store(d.Cache, key, file)
	}
	return file, err
}

// busybox lets gobusybox rewrite the commands into packages of one program, in
// a GOPATH of its own, and compiles that. Compiling it here rather than in
// makebb keeps Go's build cache in use.
func (g *goTool) busybox(ctx context.Context, work, out string, cmds []string) error {
	tool := filepath.Join(work, "makebb")
	host := []string{"GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH}
	if err := g.build(ctx, g.source, host, tool, makebb); err != nil {
		return err
	}
	gopath := filepath.Join(work, "bb-src")
	if err := os.RemoveAll(gopath); err != nil {
		return err
	}
	gen := exec.CommandContext(ctx, tool, append([]string{"-g", "-gen-dir", gopath, "-go-build-tags", liner}, cmds...)...)
	gen.Dir, gen.Env = g.source, g.env
	if _, err := output(gen); err != nil {
		return err
	}
	env := []string{"GO111MODULE=off", "GOPATH=" + gopath}
	if err := g.build(ctx, filepath.Join(gopath, "src/bb.u-root.com/bb"), env, out, "."); err != nil {
		return err
	}
	return os.RemoveAll(gopath)
}

// build compiles a package reproducibly. Debug information and symbols are left
// out for size.
func (g *goTool) build(ctx context.Context, dir string, env []string, out, pkg string, ldflags ...string) error {
	ldflags = append([]string{"-s -w -buildid="}, ldflags...)
	cmd := exec.CommandContext(ctx, g.bin, "build", "-trimpath", "-buildvcs=false", "-tags", liner,
		"-ldflags="+strings.Join(ldflags, " "), "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(g.env), env...)
	_, err := output(cmd)
	return err
}

// goPackage is what "go list" says of a package.
type goPackage struct {
	Dir    string
	Module *struct {
		Module
		Main bool
	}
	GoFiles, SFiles, EmbedFiles []string
}

// list describes the given packages and all they import.
func (g *goTool) list(ctx context.Context, pkgs ...string) ([]goPackage, error) {
	const fields = "-json=Dir,Module,GoFiles,SFiles,EmbedFiles"
	cmd := exec.CommandContext(ctx, g.bin, append([]string{"list", "-deps", "-tags", liner, fields}, pkgs...)...)
	cmd.Dir, cmd.Env = g.source, g.env
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("list the Go packages of the programs: %w", err)
	}
	var list []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		err := dec.Decode(&pkg)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		list = append(list, pkg)
	}
}

// modules lists the Go modules that provide the given packages and all they
// import.
func (g *goTool) modules(ctx context.Context, pkgs []string) ([]Module, error) {
	all, err := g.list(ctx, pkgs...)
	if err != nil {
		return nil, err
	}
	var list []Module
	for _, pkg := range all {
		if pkg.Module != nil && pkg.Module.Version != "" {
			list = append(list, pkg.Module.Module)
		}
	}
	slices.SortFunc(list, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return slices.Compact(list), nil
}

// files lists what is compiled into the given packages or embedded in them,
// of this module: paths below its root, sorted.
func (g *goTool) files(ctx context.Context, pkgs ...string) ([]string, error) {
	all, err := g.list(ctx, pkgs...)
	if err != nil {
		return nil, err
	}
	root, err := filepath.Abs(g.source)
	if err != nil {
		return nil, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil { // as Go names it
		return nil, err
	}
	var list []string
	for _, pkg := range all {
		if pkg.Module == nil || !pkg.Module.Main {
			continue
		}
		dir, err := filepath.Rel(root, pkg.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Concat(pkg.GoFiles, pkg.SFiles, pkg.EmbedFiles) {
			list = append(list, filepath.Join(dir, name))
		}
	}
	slices.Sort(list)
	return list, nil
}

// output runs cmd and returns its standard output; the error of a failed
// command holds what it said on standard error.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(stderr.String() + stdout.String())
		if len(said) > 4000 {
			said = "…" + said[len(said)-4000:]
		}
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args[:min(len(cmd.Args), 2)], " "), err, said)
	}
	return stdout.Bytes(), nil
}
