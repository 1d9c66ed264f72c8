package images

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mkp2pimg/initramfs"
	"mkp2pimg/internal/golden"
)

func sample(t *testing.T) *Netboot {
	t.Helper()
	kernel := filepath.Join(t.TempDir(), "vmlinuz-6.12")
	require.NoError(t, os.WriteFile(kernel, []byte("kernel"), 0o600))
	tree := &initramfs.Tree{}
	require.NoError(t, tree.AddBytes("/bin/p2pinit", 0o755, []byte("program"), initramfs.Origin{Kind: initramfs.BuiltHere, Name: "mkp2pimg"}))
	require.NoError(t, tree.AddLink("/init", "bin/p2pinit", initramfs.Origin{Kind: initramfs.Generated, Name: "etc"}))
	return &Netboot{
		Kernel: kernel,
		Manifest: Manifest{
			Product:         Product{Version: "0.1.0"},
			Driver:          "535.261.03",
			Kernel:          "6.12.117+deb12-amd64",
			CommandLine:     DefaultCommandLine,
			GPUs:            []string{"ada", "GeForce RTX 3090"},
			Profile:         initramfs.Minimal,
			SourceDateEpoch: 1700000000,
			Go:              "go1.26.8",
			Options:         []string{"options nvidia NVreg_EnableResizableBar=1"},
			ModuleSets: []ModuleSet{{Name: "p2p", Edits: []string{"bar1-p2p"}, Modules: []Module{{
				Path: "/lib/modules/6.12.117+deb12-amd64/updates/mkp2pimg/p2p/nvidia.ko", Version: "535.261.03", Vermagic: "6.12.117+deb12-amd64 SMP",
				Checks: []Check{{Name: "vermagic", Status: "pass"}},
			}}}},
			GoModules: []GoModule{{Path: "github.com/u-root/u-root", Version: "v0.16.0", Sum: "h1:x"}},
			Inputs: []Input{
				{Role: "libc", Name: "libc6", Version: "2.36-9+deb12u14", Origin: "http://deb.debian.org/debian/pool/main/g/glibc/libc6_2.36-9+deb12u14_amd64.deb", SHA256: strings.Repeat("ab", 32), Size: 12, Licence: "LGPL-2.1-or-later", Shipped: true},
				{Role: "userspace", Name: "libcuda1", Version: "535.261.03-1", Origin: "http://deb.debian.org/debian/pool/non-free/n/x/libcuda1_535.261.03-1_amd64.deb", SHA256: strings.Repeat("cd", 32), Size: 13, Licence: "LicenseRef-NVIDIA-driver", Shipped: true},
				{Role: "firmware", Name: "NVIDIA-Linux-x86_64", Version: "535.261.03", Origin: "NVIDIA-Linux-x86_64-535.261.03.run", SHA256: strings.Repeat("23", 32), Size: 16, Shipped: true},
				{Role: "toolchain", Name: "gcc-12", Version: "12.2.0-14", Origin: "http://deb.debian.org/debian/pool/main/g/gcc-12/gcc-12_12.2.0-14_amd64.deb", SHA256: strings.Repeat("ef", 32), Size: 14, Licence: "GPL with runtime exception"},
				{Role: "driver-source", Name: "nvidia-open-gpu-kernel-modules", Version: "535.261.03", Origin: "http://deb.debian.org/debian/pool/x.orig.tar.xz", SHA256: strings.Repeat("01", 32), Size: 15, Licence: "MIT OR GPL-2.0-only"},
			},
			Files: FilesOf(tree),
		},
		Initrd: func(w io.Writer) (initramfs.Sizes, error) {
			n, err := io.WriteString(w, "initramfs")
			return initramfs.Sizes{Raw: 20, Packed: int64(n)}, err
		},
		Extra: map[string][]byte{"patch.diff": []byte("--- a\n+++ b\n"), "patch-report.json": []byte("{}\n")},
	}
}

func TestWriteOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "out")
	m, err := sample(t).Write(t.Context(), dir)
	require.NoError(t, err)
	assert.Positive(t, m.Initrd.Packed)

	d, err := Open(dir)
	require.NoError(t, err)
	assert.Equal(t, m, d.Manifest)
	assert.FileExists(t, d.Kernel())
	st, err := os.Stat(d.Initrd())
	require.NoError(t, err)
	assert.Equal(t, m.Initrd.Packed, st.Size())

	list, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	assert.Len(t, list, 1, "temporary files left beside the directory")

	for _, name := range []string{ScriptName, ManifestName, SBOMName} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		golden.Equal(t, "testdata/"+name, got)
	}
}

func TestSHA256Sums(t *testing.T) {
	tool, err := exec.LookPath("sha256sum")
	if err != nil {
		t.Skip("sha256sum is not installed")
	}
	dir := filepath.Join(t.TempDir(), "out")
	_, err = sample(t).Write(t.Context(), dir)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), tool, "--check", "--strict", SumsName)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, 7, strings.Count(string(out), ": OK\n"), "%s", out)
}

func TestManifestSchema(t *testing.T) {
	c := jsonschema.NewCompiler()
	schema, err := c.Compile("schema.json")
	require.NoError(t, err)
	valid := func(data []byte) error {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		require.NoError(t, err)
		return schema.Validate(v)
	}
	data, err := os.ReadFile("testdata/" + ManifestName)
	require.NoError(t, err)
	require.NoError(t, valid(data))
	empty, err := json.Marshal(Manifest{Version: 1, Product: Product{Name: ProductName}})
	require.NoError(t, err)
	require.NoError(t, valid(empty))
	assert.Error(t, valid(bytes.Replace(data, []byte(`"driver"`), []byte(`"drivers"`), 1)))
}

func TestReadManifestErrors(t *testing.T) {
	for text, want := range map[string]string{
		``:               "EOF",
		`{"product":{}}`: `made by "", not by mkp2pimg`,
		`{"version":2,"product":{"name":"mkp2pimg"}}`: "has version 2, this program reads version 1",
	} {
		_, err := ReadManifest(strings.NewReader(text))
		assert.ErrorContains(t, err, want)
	}
}

func TestSBOM(t *testing.T) {
	data, err := os.ReadFile("testdata/" + SBOMName)
	require.NoError(t, err)
	doc, err := spdxjson.Read(bytes.NewReader(data))
	require.NoError(t, err)
	ids := map[string]bool{"DOCUMENT": true}
	for _, p := range doc.Packages {
		assert.False(t, ids[string(p.PackageSPDXIdentifier)], "%s twice", p.PackageSPDXIdentifier)
		ids[string(p.PackageSPDXIdentifier)] = true
	}
	for _, r := range doc.Relationships {
		assert.True(t, ids[string(r.RefA.ElementRefID)] && ids[string(r.RefB.ElementRefID)], "%v", r)
	}
	require.Len(t, doc.OtherLicenses, 1)
	assert.Equal(t, "LicenseRef-NVIDIA-driver", doc.OtherLicenses[0].LicenseIdentifier)
}

func TestWriteReplaces(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	n := sample(t)
	_, err := n.Write(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(filepath.Dir(dir), ".out.tmp-7"), 0o700)) // of a killed program
	first, err := os.ReadFile(filepath.Join(dir, ManifestName))
	require.NoError(t, err)

	_, err = n.Write(t.Context(), dir)
	require.NoError(t, err)
	second, err := os.ReadFile(filepath.Join(dir, ManifestName))
	require.NoError(t, err)
	assert.Equal(t, string(first), string(second), "same input, other bytes")

	delete(n.Extra, "patch.diff")
	_, err = n.Write(t.Context(), dir)
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(dir, "patch.diff"), "file of the replaced image")
	list, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	assert.Len(t, list, 1, "left beside the directory")
	_, err = Open(dir)
	require.NoError(t, err)
}

func TestWriteRefuses(t *testing.T) {
	parent := t.TempDir()
	foreign := filepath.Join(parent, "foreign")
	require.NoError(t, os.Mkdir(foreign, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(foreign, "thesis.txt"), nil, 0o600))
	other := filepath.Join(parent, "other")
	require.NoError(t, os.Mkdir(other, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(other, ManifestName), []byte(`{"name":"web app"}`), 0o600))
	file := filepath.Join(parent, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	for _, dir := range []string{foreign, other} {
		_, err := sample(t).Write(t.Context(), dir)
		var notOurs *NotOursError
		require.ErrorAs(t, err, &notOurs)
		assert.Equal(t, dir, notOurs.Dir)
	}
	_, err := sample(t).Write(t.Context(), file)
	assert.ErrorContains(t, err, "not a directory")
	assert.FileExists(t, filepath.Join(foreign, "thesis.txt"))
}

// TestWriteFails breaks the write at each part in turn: the old image must stay
// whole, and nothing may be left beside it.
func TestWriteFails(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		spoil func(n *Netboot) context.Context
		want  string
	}{
		"kernel": {func(n *Netboot) context.Context { n.Kernel += ".missing"; return t.Context() }, "no such file"},
		"initrd": {func(n *Netboot) context.Context {
			n.Initrd = func(w io.Writer) (initramfs.Sizes, error) {
				_, err := w.Write(make([]byte, 1000))
				return initramfs.Sizes{}, errors.Join(err, boom)
			}
			return t.Context()
		}, "initrd.zst: boom"},
		"parameter": {func(n *Netboot) context.Context { n.Manifest.CommandLine = []string{"a b"}; return t.Context() }, `"a b"`},
		"name":      {func(n *Netboot) context.Context { n.Extra = map[string][]byte{"../x": nil}; return t.Context() }, `"../x"`},
		"clash":     {func(n *Netboot) context.Context { n.Extra = map[string][]byte{KernelName: nil}; return t.Context() }, "file exists"},
		"interrupt": {func(*Netboot) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		}, "canceled"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			n := sample(t)
			_, err := n.Write(t.Context(), dir)
			require.NoError(t, err)
			_, err = n.Write(tt.spoil(n), dir)
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, dir)
			_, err = Open(dir)
			require.NoError(t, err)
			list, err := os.ReadDir(filepath.Dir(dir))
			require.NoError(t, err)
			assert.Len(t, list, 1)
		})
	}
}

func TestWriteNoSpace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("mounting a small tmpfs: %v", err)
	}
	defer func() { assert.NoError(t, unix.Unmount(small, 0)) }()
	n := sample(t)
	n.Extra["big"] = make([]byte, 1<<20)
	_, err := n.Write(t.Context(), filepath.Join(small, "out"))
	require.ErrorIs(t, err, unix.ENOSPC)
	assert.ErrorContains(t, err, "make room in "+small)
	list, err := os.ReadDir(small)
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestWriteFollowsLink(t *testing.T) {
	parent := t.TempDir()
	link, dir := filepath.Join(parent, "link"), filepath.Join(parent, "dir")
	require.NoError(t, os.Symlink("dir", link))
	_, err := sample(t).Write(t.Context(), link)
	require.ErrorIs(t, err, os.ErrNotExist, "a link to nothing")

	require.NoError(t, os.Mkdir(dir, 0o755))
	for range 2 {
		_, err = sample(t).Write(t.Context(), link)
		require.NoError(t, err)
		_, err = Open(dir)
		require.NoError(t, err)
	}
	target, err := os.Readlink(link)
	require.NoError(t, err)
	assert.Equal(t, "dir", target)
}

func TestCheckTargetNeedsAWritableParent(t *testing.T) {
	parent := t.TempDir()
	if os.Geteuid() == 0 {
		if err := unix.Mount("tmpfs", parent, "tmpfs", unix.MS_RDONLY, ""); err != nil {
			t.Skipf("mounting a read-only tmpfs: %v", err)
		}
		defer func() { assert.NoError(t, unix.Unmount(parent, 0)) }()
	} else {
		require.NoError(t, os.Chmod(parent, 0o555))
	}
	for _, dir := range []string{"out", "a/b/out"} {
		assert.ErrorContains(t, CheckTarget(filepath.Join(parent, dir)), "write to "+parent+": ")
	}
}

func TestExchangeFails(t *testing.T) {
	parent := t.TempDir()
	tmp, dir := filepath.Join(parent, "tmp"), filepath.Join(parent, "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old"), nil, 0o600))
	assert.ErrorIs(t, exchange(tmp, dir), os.ErrNotExist)
	assert.FileExists(t, filepath.Join(dir, "old"))
}

func TestOpenDamaged(t *testing.T) {
	whole := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "out")
		_, err := sample(t).Write(t.Context(), dir)
		require.NoError(t, err)
		return dir
	}
	edit := func(t *testing.T, file string, change func([]byte) []byte) {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, change(data), 0o600))
	}
	tests := map[string]struct {
		damage func(t *testing.T, dir string)
		want   []string
	}{
		"no directory": {func(t *testing.T, dir string) { require.NoError(t, os.RemoveAll(dir)) }, []string{"not a netboot directory"}},
		"changed and missing": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, InitrdName), func(b []byte) []byte { return b[:len(b)-1] })
			require.NoError(t, os.Remove(filepath.Join(dir, KernelName)))
		}, []string{InitrdName + ": sha256 is", KernelName + ": no such file", "build it again"}},
		"truncated list": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, SumsName), func(b []byte) []byte { return b[:100] })
		}, []string{"line 2"}},
		"empty list": {func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, SumsName), func([]byte) []byte { return nil })
		}, []string{"does not list " + KernelName, "does not list " + ManifestName}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := whole(t)
			tt.damage(t, dir)
			_, err := Open(dir)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenNetboot(ctx, whole(t))
	require.ErrorIs(t, err, context.Canceled)
	assert.NotContains(t, err.Error(), "damaged")
}

func FuzzParseSums(f *testing.F) {
	f.Add([]byte(strings.Repeat("0", 64) + "  vmlinuz\n"))
	f.Add([]byte("x  ../y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		sums, err := ParseSums(data)
		if err != nil {
			return
		}
		for name, sum := range sums {
			assert.Equal(t, filepath.Base(name), name)
			assert.Len(t, sum, 64)
		}
	})
}

func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(`{"version":1,"product":{"name":"mkp2pimg"}}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _ = ReadManifest(bytes.NewReader(data))
	})
}
