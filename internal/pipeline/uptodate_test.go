package pipeline

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/internal/lock"
	"mkp2pimg/internal/pipeline/pipelinetest"
)

func TestSourceDigest(t *testing.T) {
	source := fstest.MapFS{
		"go.mod":                      {Data: []byte("module mkp2pimg\n")},
		"cmd/main.go":                 {Data: []byte("package main\n")},
		"kmod/catalog/catalog.yaml":   {Data: []byte("version: 1\n")},
		"internal/measure/kernel.ptx": {Data: []byte(".version 7.0\n")},
	}
	digest := func(change func(fstest.MapFS)) string {
		fsys := maps.Clone(source)
		if change != nil {
			change(fsys)
		}
		sum, err := sourceDigest(fsys)
		require.NoError(t, err)
		require.Len(t, sum, 64)
		return sum
	}
	put := func(name, text string) func(fstest.MapFS) {
		return func(f fstest.MapFS) { f[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	before := digest(nil)
	for name, change := range map[string]func(fstest.MapFS){
		"documentation": put("README.md", "changed"),
		"a test's data": put("kmod/testdata/x.go", "package x\n"),
		"an image":      put("out/manifest.json", "{}"),
		"a program":     put("bin/tool.go", "package main\n"),
		"git's own":     put(".git/x.go", "package x\n"),
	} {
		assert.Equal(t, before, digest(change), name)
	}
	for name, change := range map[string]func(fstest.MapFS){
		"code":                     put("cmd/main.go", "package main // changed\n"),
		"a new file":               put("cmd/extra.go", "package main\n"),
		"a dependency":             put("go.sum", "x v1 h1:abc\n"),
		"embedded data":            put("kmod/catalog/catalog.yaml", "version: 2\n"),
		"embedded GPU code":        put("internal/measure/kernel.ptx", ".version 8.0\n"),
		"a package called out":     put("internal/out/x.go", "package out\n"),
		"a file that is gone":      func(f fstest.MapFS) { delete(f, "cmd/main.go") },
		"a file of another name":   func(f fstest.MapFS) { f["cmd/n.go"] = f["cmd/main.go"]; delete(f, "cmd/main.go") },
		"contents that swap names": func(f fstest.MapFS) { f["go.mod"], f["cmd/main.go"] = f["cmd/main.go"], f["go.mod"] },
	} {
		assert.NotEqual(t, before, digest(change), name)
	}
}

func TestSourceDigestOfThisModule(t *testing.T) {
	a, err := sourceDigest(os.DirFS("../.."))
	require.NoError(t, err)
	b, err := sourceDigest(fstest.MapFS{})
	require.NoError(t, err)
	assert.NotEqual(t, a, b)
	_, err = sourceDigest(os.DirFS(filepath.Join(t.TempDir(), "none")))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestUpToDate(t *testing.T) {
	o := &Options{Out: filepath.Join(t.TempDir(), "out"), Cache: t.TempDir()}
	assert.Nil(t, o.upToDate("key"), "nothing was ever built")
	require.ErrorIs(t, o.remember("key"), os.ErrNotExist, "no image, nothing to remember")

	pipelinetest.WriteImage(t, o.Out, "535.261.03", nil)
	assert.Nil(t, o.upToDate("key"), "an image of unknown making")
	require.NoError(t, o.remember("key"))
	m := o.upToDate("key")
	require.NotNil(t, m)
	assert.Equal(t, "535.261.03", m.Driver)
	assert.Nil(t, o.upToDate("other key"))

	initrd := filepath.Join(o.Out, images.InitrdName)
	whole, err := os.ReadFile(initrd)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(initrd, bytes.ToUpper(whole), 0o644))
	assert.Nil(t, o.upToDate("key"), "a damaged image")
	require.NoError(t, os.WriteFile(initrd, whole, 0o644))
	assert.NotNil(t, o.upToDate("key"))
	require.NoError(t, os.Remove(initrd))
	assert.Nil(t, o.upToDate("key"), "a file is gone")

	pipelinetest.WriteImage(t, o.Out, "550.163.01", nil)
	assert.Nil(t, o.upToDate("key"), "another image in its place")
	require.NoError(t, o.remember("other key"))
	assert.NotNil(t, o.upToDate("other key"))
	assert.Nil(t, o.upToDate("key"))
}

func TestRememberNamesTheCacheItCannotWrite(t *testing.T) {
	o := &Options{Out: filepath.Join(t.TempDir(), "out"), Cache: filepath.Join(t.TempDir(), "file")}
	pipelinetest.WriteImage(t, o.Out, "535.261.03", nil)
	require.NoError(t, os.WriteFile(o.Cache, nil, 0o644))
	require.ErrorContains(t, o.remember("key"), o.Cache)
}

func TestImageKeyHangsOnTheRequest(t *testing.T) {
	l, err := lock.Read("../lock/testdata/v1.lock")
	require.NoError(t, err)
	in := &inputs{lock: l}
	key := func(change func(*Options)) string {
		o := &Options{Source: "../..", Edits: "auto", Toolchain: ToolchainSandbox, Out: "a", Cache: "b", Jobs: 1}
		change(o)
		k, err := in.imageKey(t.Context(), o)
		require.NoError(t, err)
		return k
	}
	before := key(func(*Options) {})
	assert.Equal(t, before, key(func(o *Options) { o.Out, o.Cache, o.Jobs = "c", "d", 2 }), "where and how fast doesn't matter")
	assert.NotEqual(t, before, key(func(o *Options) { o.Edits = "minimal" }))
	assert.NotEqual(t, before, key(func(o *Options) { o.Toolchain = ToolchainHost }))
	l.Inputs[0].SHA256 = strings.Repeat("0", 64)
	assert.NotEqual(t, before, key(func(*Options) {}), "another input")
}
