package userland

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
		p, err := build(t.Context(), source, work, cmds, standin, standin)
		require.NoError(t, err)

		assert.Equal(t, []string{"cat", "true"}, p.Commands)
		assert.True(t, strings.HasPrefix(p.Go, "go1."), p.Go)
		assert.Contains(t, moduleNames(p), "github.com/u-root/u-root")
		sums[i] = map[string]string{"bb": digest(t, p.Busybox), "p2pinit": digest(t, p.P2PInit)}
		assertStatic(t, p.Busybox)

		out, err := exec.CommandContext(t.Context(), p.Busybox, "cat", filepath.Join(source, "go.mod")).Output()
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(out), "module mkp2pimg\n"), "%s", out)
		left, err := filepath.Glob(filepath.Join(work, "bb-src*"))
		require.NoError(t, err)
		assert.Empty(t, left, "generated source left behind")
	}
	assert.Equal(t, sums[0], sums[1])
}

func TestBuildErrors(t *testing.T) {
	_, err := Build(t.Context(), t.TempDir(), t.TempDir())
	assert.ErrorContains(t, err, "go.mod")

	source := copySource(t, t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(source, "initramfs/userland/testdata/standin/main.go"), []byte("package main\nfunc main() { undefined() }\n"), 0o600))
	g, err := newGoTool(t.Context(), source)
	require.NoError(t, err)
	err = g.build(t.Context(), source, nil, filepath.Join(t.TempDir(), "x"), standin)
	assert.ErrorContains(t, err, "undefined: undefined", "what the compiler said")
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

func digest(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
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
