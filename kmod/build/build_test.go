package build

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.MaybeChild()
	os.Exit(m.Run())
}

// fake returns a configuration that builds testdata/tree, a tree with the make
// targets of the real one and one small source file per object, on the host.
func fake(t *testing.T) Config {
	t.Helper()
	for _, tool := range []string{"make", "cc", "ld", "strip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	return Config{
		ToolchainKey: "host with headers",
		CompilerKey:  "host",
		Source:       "testdata/tree",
		SourceKey:    "fake",
		Kernel:       "6.12.1",
		Edit:         appendTo("src/nvidia/bif.c", "int edited = 1;\n"),
		EditKey:      "one",
		Cache:        t.TempDir(),
		Jobs:         2,
	}
}

func appendTo(name, text string) func(string) error {
	return func(tree string) error {
		f, err := os.OpenFile(filepath.Join(tree, name), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(text)
		return errors.Join(err, f.Close())
	}
}

// build runs Build and returns what was compiled, in order and without the
// linking.
func build(t *testing.T, cfg Config) (r *Result, compiled string) {
	t.Helper()
	var log bytes.Buffer
	cfg.Log = &log
	r, err := Build(t.Context(), cfg)
	require.NoError(t, err)
	return r, strings.Join(compiledIn(log.String()), " ")
}

// compiledIn returns the files that a log of make says were compiled.
func compiledIn(log string) (files []string) {
	for line := range strings.Lines(log) {
		if file, ok := strings.CutPrefix(line, "CC "); ok {
			files = append(files, strings.TrimSpace(file))
		}
	}
	return files
}

func contains(t *testing.T, m Module, symbol string) bool {
	t.Helper()
	data, err := os.ReadFile(m.Path)
	require.NoError(t, err)
	return bytes.Contains(data, []byte(symbol))
}

func TestBuild(t *testing.T) {
	cfg := fake(t)

	first, compiled := build(t, cfg)
	assert.ElementsMatch(t, strings.Fields("bif.c bus.c id.c os.c uvm.c bif.c id.c"), strings.Fields(compiled),
		"everything once, then what the edit touches")
	require.Len(t, first.Stock, 2)
	require.Len(t, first.P2P, 2)
	assert.Equal(t, "nvidia-uvm", first.P2P[1].Name)
	assert.Equal(t, first.Stock[1].SHA256, first.P2P[1].SHA256, "an untouched module is the same")
	assert.False(t, contains(t, first.Stock[0], "edited"))
	assert.True(t, contains(t, first.P2P[0], "edited"))
	assert.True(t, contains(t, first.P2P[0], "(mkp2pimg@mkp2pimg)  Thu Jan  1 00:00:00 UTC 1970"))
	assert.False(t, contains(t, first.P2P[0], ".debug_info"))
	var names []string
	for _, s := range first.Steps {
		names = append(names, s.Name)
		assert.Positive(t, s.PeakRSS, s.Name)
	}
	assert.Equal(t, []string{
		"core: copy", "core: nv-kernel.o",
		"stock: copy", "stock: nv-kernel.o", "stock: modules", "stock: strip nvidia", "stock: strip nvidia-uvm",
		"p2p: copy", "p2p: nv-kernel.o", "p2p: modules", "p2p: strip nvidia", "p2p: strip nvidia-uvm",
	}, names)

	again, compiled := build(t, cfg)
	assert.Empty(t, compiled)
	assert.Empty(t, again.Steps)
	assert.Equal(t, first.Stock, again.Stock)
	assert.Equal(t, first.P2P, again.P2P)

	// Other edits start from the stock tree.
	cfg.Edit, cfg.EditKey = appendTo("src/nvidia/bus.c", "int other = 2;\n"), "two"
	other, compiled := build(t, cfg)
	assert.ElementsMatch(t, []string{"bus.c", "id.c"}, strings.Fields(compiled))
	assert.True(t, contains(t, other.P2P[0], "other"))
	assert.False(t, contains(t, other.P2P[0], "edited"))

	// Another date is another build.
	cfg.Epoch = time.Unix(1750000000, 0)
	dated, compiled := build(t, cfg)
	assert.NotEmpty(t, compiled)
	assert.True(t, contains(t, dated.Stock[0], "Sun Jun 15 15:06:40 UTC 2025"))
}

func TestBuildForAnotherKernel(t *testing.T) {
	cfg := fake(t)
	first, _ := build(t, cfg)

	cfg.Kernel, cfg.ToolchainKey = "6.1.1", "host with other headers"
	second, compiled := build(t, cfg)
	assert.ElementsMatch(t, strings.Fields("os.c uvm.c bif.c id.c"), strings.Fields(compiled),
		"the part that knows no kernel is compiled once")
	assert.Equal(t, first.P2P[0].SHA256, second.P2P[0].SHA256, "the fake modules know no kernel either")

	// Without the tree that only a new build would start from, nothing is missing.
	cores, err := filepath.Glob(filepath.Join(cfg.Cache, "core-*"))
	require.NoError(t, err)
	require.Len(t, cores, 3, "entry, lock and log")
	for _, c := range cores {
		require.NoError(t, os.RemoveAll(c))
	}
	third, compiled := build(t, cfg)
	assert.Empty(t, compiled)
	assert.Equal(t, second.Stock, third.Stock)

	// Another compiler is another core.
	cfg.CompilerKey = "other"
	_, compiled = build(t, cfg)
	assert.ElementsMatch(t, strings.Fields("bif.c bus.c id.c os.c uvm.c bif.c id.c"), strings.Fields(compiled))
}

// Changes for a kernel are mostly to what Kbuild compiles, but need not be.
func TestCompatTouchesCore(t *testing.T) {
	cfg := fake(t)
	build(t, cfg)
	var log bytes.Buffer
	cfg.Log = &log
	b := &builder{Config: cfg}
	core, _, _ := b.entries()
	partial := t.TempDir()
	err := b.build(t.Context(), job{
		label: "stock", entry: filepath.Join(cfg.Cache, "stock-compat"), from: filepath.Join(core, treeDir), partial: partial,
		change: appendTo("src/nvidia/bus.c", "int fitted = 1;\n"), modules: true,
	})
	require.NoError(t, err)
	assert.ElementsMatch(t, strings.Fields("bus.c id.c os.c uvm.c"), compiledIn(log.String()))
	assert.True(t, contains(t, Module{Path: filepath.Join(partial, modulesDir, "nvidia.ko")}, "fitted"))
}

func TestBuildIsReproducible(t *testing.T) {
	one, two := fake(t), fake(t)
	two.Jobs = 1
	a, _ := build(t, one)
	b, _ := build(t, two)
	for i := range a.Stock {
		assert.Equal(t, a.Stock[i].SHA256, b.Stock[i].SHA256)
		assert.Equal(t, a.P2P[i].SHA256, b.P2P[i].SHA256)
	}
}

func TestBuildStockOnly(t *testing.T) {
	cfg := fake(t)
	cfg.Edit, cfg.EditKey = nil, ""
	r, _ := build(t, cfg)
	assert.Len(t, r.Stock, 2)
	assert.Nil(t, r.P2P)
}

func TestBuildErrors(t *testing.T) {
	t.Run("keys", func(t *testing.T) {
		for _, drop := range []func(*Config){
			func(c *Config) { c.SourceKey = "" },
			func(c *Config) { c.ToolchainKey = "" },
			func(c *Config) { c.CompilerKey = "" },
			func(c *Config) { c.EditKey = "" },
			func(c *Config) { c.CompatKey = "without Compat" },
		} {
			cfg := fake(t)
			drop(&cfg)
			_, err := Build(t.Context(), cfg)
			assert.ErrorContains(t, err, "need a key each")
		}
	})
	t.Run("compiler", func(t *testing.T) {
		cfg := fake(t)
		cfg.Edit = appendTo("src/nvidia/bus.c", "int broken(void) { return undeclared; }\n")
		_, err := Build(t.Context(), cfg)
		compile, ok := errors.AsType[*CompileError](err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, "p2p: nv-kernel.o", compile.Step)
		assert.Contains(t, strings.Join(compile.Lines, "\n"), "bus.c:")
		assert.Contains(t, err.Error(), "undeclared")
		assert.ErrorContains(t, err, compile.Log)
		assert.FileExists(t, compile.Log)
		assertOnlyEntries(t, cfg.Cache, "core", "stock")

		cfg.Edit = appendTo("src/nvidia/bus.c", "int fine;\n")
		_, compiled := build(t, cfg)
		assert.ElementsMatch(t, []string{"bus.c", "id.c"}, strings.Fields(compiled))
	})
	t.Run("full disk", func(t *testing.T) {
		cfg := fake(t)
		cfg.Edit = appendTo("Makefile", "$(error fatal error: closing x.o: "+noSpace+")\n")
		_, err := Build(t.Context(), cfg)
		assert.ErrorIs(t, err, syscall.ENOSPC)
		assert.ErrorContains(t, err, noSpace)
	})
	t.Run("log", func(t *testing.T) {
		cfg := fake(t)
		r, w := io.Pipe()
		broken := errors.New("nobody reads")
		r.CloseWithError(broken)
		cfg.Log = w
		_, err := Build(t.Context(), cfg)
		assert.ErrorIs(t, err, broken)
		assertOnlyEntries(t, cfg.Cache)

		cfg.Source = "testdata/none"
		_, err = Build(t.Context(), cfg)
		assert.ErrorContains(t, err, "No such file", "the command is heard all the same")
	})
	t.Run("edit", func(t *testing.T) {
		cfg := fake(t)
		refused := errors.New("anchor not found")
		cfg.Edit = func(string) error { return refused }
		_, err := Build(t.Context(), cfg)
		assert.ErrorIs(t, err, refused)
		assertOnlyEntries(t, cfg.Cache, "core", "stock")
	})
	t.Run("source", func(t *testing.T) {
		cfg := fake(t)
		cfg.Source = "testdata/none"
		_, err := Build(t.Context(), cfg)
		assert.ErrorContains(t, err, "testdata/none")
		assertOnlyEntries(t, cfg.Cache)
	})
	t.Run("headers", func(t *testing.T) {
		cfg := fake(t)
		cfg.Compat, cfg.CompatKey = func(string, string) error { return nil }, "any"
		_, err := Build(t.Context(), cfg)
		assert.ErrorContains(t, err, "headers of kernel 6.12.1")
		assert.ErrorIs(t, err, fs.ErrNotExist)
	})
	t.Run("damaged cache", func(t *testing.T) {
		cfg := fake(t)
		r, _ := build(t, cfg)
		require.NoError(t, os.Truncate(r.P2P[0].Path, 100))
		_, err := Build(t.Context(), cfg)
		assert.ErrorContains(t, err, "cached modules are damaged")
		assert.ErrorContains(t, err, "remove "+cfg.Cache)
	})
}

func TestBuildInterrupted(t *testing.T) {
	cfg := fake(t)
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := cfg
	interrupted.Edit = func(string) error { cancel(); return nil }
	_, err := Build(ctx, interrupted)
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, errors.As(err, new(*CompileError)))
	assertOnlyEntries(t, cfg.Cache, "core", "stock")

	r, compiled := build(t, cfg)
	assert.ElementsMatch(t, []string{"bif.c", "id.c"}, strings.Fields(compiled))
	assert.Len(t, r.P2P, 2)
}

// assertOnlyEntries checks which builds the cache has, whole or not.
func assertOnlyEntries(t *testing.T, cache string, labels ...string) {
	t.Helper()
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	var got []string
	for _, e := range entries {
		if label, _, ok := strings.Cut(e.Name(), "-"); ok && e.IsDir() {
			got = append(got, label)
		}
	}
	assert.Equal(t, labels, got)
}

func TestErrorLines(t *testing.T) {
	e := &errorLines{}
	for _, part := range []string{
		"  CC [M]  /build/kernel-open/nvidia/nv-pci.o\n/build/kernel-open/nvidia/nv-pci.c:237:9: err", "or: too few arguments to function\n",
		"x.c:1: warning: not an error [-Werror]\n", "ld: x.o: undefined reference to `y'\n",
		"make[3]: *** [scripts/Makefile.build:1: nv-pci.o] Error 1\n", "/bin/sh: 1: pahole: not found\n", "ERROR: modpost: \"x\" undefined!\n",
		strings.Repeat("a", 1000) + ": error: six\n", "bye",
	} {
		_, err := e.Write([]byte(part))
		require.NoError(t, err)
	}
	err := e.explain(&CompileError{Step: "stock: modules", Log: "/c/x.log", Err: errors.New("make: exit status 2")})
	assert.EqualError(t, err, "stock: modules: make: exit status 2\n"+
		"\t/build/kernel-open/nvidia/nv-pci.c:237:9: error: too few arguments to function\n"+
		"\tld: x.o: undefined reference to `y'\n"+
		"\tmake[3]: *** [scripts/Makefile.build:1: nv-pci.o] Error 1\n"+
		"\t/bin/sh: 1: pahole: not found\n"+
		"\tERROR: modpost: \"x\" undefined!\n"+
		"the whole log is /c/x.log")

	silent := &errorLines{}
	_, _ = silent.Write([]byte("working\nstopped"))
	assert.Equal(t, []string{"stopped"}, silent.explain(&CompileError{}).Lines)
}

func TestHeaders(t *testing.T) {
	root := t.TempDir()
	modules := filepath.Join(root, "lib/modules/6.12.1-amd64")
	require.NoError(t, os.MkdirAll(modules, 0o755))
	for _, dir := range []string{"usr/src/common", "usr/src/amd64"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.Symlink("/usr/src/amd64", filepath.Join(modules, "build")))

	source, output, err := Headers(sandbox.Root{Dir: root}, "6.12.1-amd64")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "usr/src/amd64"), output)
	assert.Equal(t, output, source)

	require.NoError(t, os.Symlink("../../../usr/src/common", filepath.Join(modules, "source")))
	source, _, err = Headers(sandbox.Root{Dir: root}, "6.12.1-amd64")
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(root, "usr/src/common"), source)

	_, _, err = Headers(sandbox.Root{Dir: root}, "7.0")
	assert.ErrorContains(t, err, "headers of kernel 7.0")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	symvers := filepath.Join(dir, "Module.symvers")
	require.NoError(t, os.WriteFile(symvers, []byte("0xaaaaaaaa\tprintk\tvmlinux\tEXPORT_SYMBOL\t\n0xbbbbbbbb\tkmalloc\tvmlinux\tEXPORT_SYMBOL\t\n"), 0o644))
	modules := []Module{{Path: "../ko/testdata/provider.ko"}, {Path: "../ko/testdata/user.ko"}}
	reports, err := Check(modules, symvers, "6.12.1 SMP preempt mod_unload modversions")
	require.NoError(t, err)
	require.Len(t, reports, 2)
	for _, r := range reports {
		assert.NoError(t, r.Err())
	}
	assert.Equal(t, map[string]int{"vmlinux": 1, "prov": 2}, reports[1].From)

	reports, err = Check(modules, symvers, "6.12.2 SMP")
	require.NoError(t, err)
	assert.ErrorContains(t, reports[0].Err(), "vermagic")

	_, err = Check([]Module{{Path: symvers}}, symvers, "")
	assert.ErrorContains(t, err, "not a kernel module")
	_, err = Check(modules, "testdata/tree/Makefile", "")
	assert.ErrorContains(t, err, "testdata/tree/Makefile: symvers line 1")
	_, err = Check(modules, "none", "")
	assert.ErrorIs(t, err, fs.ErrNotExist)
}
