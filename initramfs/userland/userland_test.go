package userland

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mkp2pimg/internal/digest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const standin = "mkp2pimg/initramfs/userland/testdata/standin"

func TestImports(t *testing.T) {
	list := Imports()
	for _, want := range []string{"core/init", "core/gosh", "core/ip", "exp/modprobe"} {
		assert.Contains(t, list, commands+want)
	}
	assert.NotContains(t, list, makebb)
	assert.IsNonDecreasing(t, list)
}

// TestBuild compiles a small command set from two copies of the source, with
// the settings of two different users, and compares the bytes.
func TestBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles programs")
	}
	cmds := []string{commands + "core/cat", commands + "core/true"}
	var sums [2]map[string]string
	for i, name := range []string{"a", "a much longer name"} {
		source := copySource(t, filepath.Join(t.TempDir(), name))
		t.Setenv("GOFLAGS", []string{"", "-trimpath=false"}[i])
		t.Setenv("GOAMD64", []string{"v1", "v3"}[i])
		if os.Getenv("MKP2PIMG_SLOW") != "" { // a cache each: compiles the standard library twice
			t.Setenv("GOCACHE", t.TempDir())
		}
		work := t.TempDir()
		d := Dirs{Source: source, Work: work, Cache: t.TempDir()}
		p, err := build(t.Context(), d, "v1.2.3", cmds, standin, standin)
		require.NoError(t, err)

		assert.Equal(t, []string{"cat", "true"}, p.Commands)
		assert.True(t, strings.HasPrefix(p.Go, "go1."), p.Go)
		assert.Contains(t, moduleNames(p), "github.com/u-root/u-root")
		sums[i] = map[string]string{"bb": sum(t, p.Busybox), "p2pinit": sum(t, p.P2PInit)}
		assertStatic(t, p.Busybox)

		out, err := exec.CommandContext(t.Context(), p.Busybox, "cat", filepath.Join(source, "go.mod")).Output()
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(out), "module mkp2pimg\n"), "%s", out)
		left, err := filepath.Glob(filepath.Join(work, "bb-src*"))
		require.NoError(t, err)
		assert.Empty(t, left, "generated source left behind")

		again, err := build(t.Context(), d, "v1.2.3", cmds, standin, standin)
		require.NoError(t, err)
		assert.Equal(t, d.Cache, filepath.Dir(again.Busybox), "not taken from the cache")
		assert.Equal(t, sums[i]["bb"], sum(t, again.Busybox))
	}
	assert.Equal(t, sums[0], sums[1])
}

func TestBuildErrors(t *testing.T) {
	_, err := Build(t.Context(), Dirs{Source: t.TempDir(), Work: t.TempDir()}, "v1.2.3")
	assert.ErrorContains(t, err, "go.mod")

	source := copySource(t, t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(source, "initramfs/userland/testdata/standin/main.go"), []byte("package main\nfunc main() { undefined() }\n"), 0o600))
	g, err := newGoTool(t.Context(), source)
	require.NoError(t, err)
	err = g.build(t.Context(), source, nil, filepath.Join(t.TempDir(), "x"), standin)
	assert.ErrorContains(t, err, "undefined: undefined", "what the compiler said")
}

func TestCache(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	file := filepath.Join(t.TempDir(), "bb")
	require.NoError(t, os.WriteFile(file, []byte("busybox"), 0o600))
	assert.Empty(t, cached(dir, "k1"))
	require.NoError(t, store(dir, "k1", file))
	got := cached(dir, "k1")
	assert.Equal(t, sum(t, file), sum(t, got))
	assert.Empty(t, cached(dir, "k2"), "another key")
	require.NoError(t, os.WriteFile(got, []byte("BUSYBOX"), 0o600))
	assert.Empty(t, cached(dir, "k1"), "damaged")
}

func TestKey(t *testing.T) {
	source := copySource(t, t.TempDir())
	g := &goTool{source: source, version: "go1.26.8"}
	key := func() string {
		k, err := g.key([]string{"cat"})
		require.NoError(t, err)
		return k
	}
	first := key()
	require.NoError(t, os.WriteFile(filepath.Join(source, "initramfs/userland/testdata/standin/main.go"), nil, 0o600))
	assert.Equal(t, first, key(), "a change of this module's own code")
	g.version = "go1.27.0"
	other := key()
	assert.NotEqual(t, first, other)
	require.NoError(t, os.WriteFile(filepath.Join(source, "go.sum"), nil, 0o600))
	assert.NotEqual(t, other, key())
}

func TestSourceDigest(t *testing.T) {
	source := copySource(t, t.TempDir())
	put := func(name, text string) {
		name = filepath.Join(source, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	sum := func() string {
		s, err := sourceDigest(t.Context(), source, standin)
		require.NoError(t, err)
		return s
	}
	program := strings.TrimPrefix(standin, "mkp2pimg/")
	before := sum()

	put("README.md", "text")
	put("out-6.1/manifest.json", "{}")
	put("logs/report.json", "{}")
	put("kmod/other.go", "package kmod")
	put(program+"/main_test.go", "package main")
	assert.Equal(t, before, sum(), "none of it is in the programs")

	for _, change := range [][2]string{
		{program + "/main.go", "package main\n\nfunc main() { println(1) }\n"},
		{program + "/more.go", "package main\n\nimport _ \"embed\"\n\n//go:embed data\nvar data string\n"},
		{program + "/data", "changed"},
		{"go.sum", ""},
	} {
		if filepath.Base(change[0]) == "more.go" {
			put(program+"/data", "as it was")
		}
		put(change[0], change[1])
		after := sum()
		assert.NotEqual(t, before, after, change[0])
		before = after
	}

	_, err := Digest(t.Context(), t.TempDir())
	assert.ErrorContains(t, err, "go.mod")
}

// copySource copies the files of the module that the test compiles to dir.
func copySource(t *testing.T, dir string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, name := range []string{"go.mod", "go.sum", "initramfs/userland/tools.go", "initramfs/userland/testdata/standin/main.go"} {
		data, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func sum(t *testing.T, name string) string {
	t.Helper()
	s, err := digest.File(name)
	require.NoError(t, err)
	return s
}

func assertStatic(t *testing.T, name string) {
	t.Helper()
	f, err := elf.Open(name)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "%s wants an ELF interpreter", name)
	}
}

func moduleNames(p *Programs) []string {
	var names []string
	for _, m := range p.Modules {
		names = append(names, m.Path)
	}
	return names
}
