package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"mkp2pimg/internal/golden"
	"mkp2pimg/kmod/patch"
)

// sourceTree writes a small driver source into the directory "tree" of the current directory.
func sourceTree(t *testing.T, name string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("..", "..", "kmod", "patch", "testdata", name+".txtar"))
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	for _, f := range archive.Files {
		path := filepath.Join("tree", f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, 0o644))
	}
}

func tarOf(t *testing.T, dir, file string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	require.NoError(t, w.AddFS(os.DirFS(dir)))
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
}

// tree returns the text of the files below dir by path.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(text)
		return err
	}))
	return files
}

// mkp2pimg runs "mkp2pimg patch" and wants a code.
func mkp2pimg(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	assert.Equal(t, code, run(t.Context(), append([]string{"patch"}, args...), &out, &errs), "%s%s", out.String(), errs.String())
	return out.String(), errs.String()
}

func TestPatchTree(t *testing.T) {
	sourceTree(t, "c")
	stock := tree(t, "tree")
	text := "$ mkp2pimg patch --check tree\n"
	out, _ := mkp2pimg(t, exitOK, "--check", "tree")
	text += out
	assert.Equal(t, stock, tree(t, "tree"))
	for _, args := range [][]string{
		{"tree"}, {"tree"}, {"--revert", "tree"}, {"--revert", "tree"}, {"--edits", "none", "tree"},
		{"--edits", "minimal", "tree"}, {"--edits", "all", "tree"}, {"--edits", "minimal", "tree"}, {"--revert", "tree"},
	} {
		out, errs := mkp2pimg(t, exitOK, args...)
		assert.Empty(t, errs)
		text += "\n$ mkp2pimg patch " + strings.Join(args, " ") + "\n" + out
	}
	assert.Equal(t, stock, tree(t, "tree"))
	t.Chdir(goldenDir)
	golden.Equal(t, "testdata/patch.txt", text)
}

// goldenDir is where the tests of this package run.
var goldenDir = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()

func TestPatchJSON(t *testing.T) {
	sourceTree(t, "c")
	out, _ := mkp2pimg(t, exitOK, "--json", "--gpu", "4090", "--gpu", "hopper", "tree")
	var report patch.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Equal(t, patch.Auto, report.Mode)
	assert.Len(t, report.Files, 4)
	out, _ = mkp2pimg(t, exitOK, "--revert", "--json", "tree")
	var done patch.Reverted
	require.NoError(t, json.Unmarshal([]byte(out), &done))
	assert.Len(t, done.Files, 4)
	out, _ = mkp2pimg(t, exitOK, "--json", "--check", "--gpu", "5090", "tree")
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	assert.Len(t, report.Files, 2, "Blackwell needs the guards only")
}

func TestPatchRefused(t *testing.T) {
	sourceTree(t, "c")
	const file = "tree/src/nvidia/src/kernel/gpu/bus/arch/pascal/kern_bus_gp100.c"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(text, []byte("_CONNECTION_TYPE, _PCIE,"), []byte("_CONNECTION_TYPE, _PCIE_ANY,"), 1), 0o644))
	before := tree(t, "tree")
	for _, args := range [][]string{{"tree"}, {"--check", "tree"}, {"--diff", "tree"}, {"--format", "quilt", "-o", "patches", "tree"}} {
		out, errs := mkp2pimg(t, exitData, args...)
		assert.NotContains(t, out, "applied")
		assert.Contains(t, errs, "1 edits do not fit the source of driver 580.1; nothing was changed")
		assert.Contains(t, errs, "P2P-E4-CREATE: src/nvidia/src/kernel/gpu/bus/arch/pascal/kern_bus_gp100.c: function kbusCreateP2PMapping_GP100: anchor")
		assert.Contains(t, errs, "nearest: ")
		assert.NotContains(t, out, "diff --git")
	}
	assert.Equal(t, before, tree(t, "tree"))
	assert.NoDirExists(t, "patches")
	out, _ := mkp2pimg(t, exitData, "--check", "--json", "tree")
	var report patch.Report
	require.NoError(t, json.Unmarshal([]byte(out), &report))
}

func TestPatchFormats(t *testing.T) {
	sourceTree(t, "a1")
	stock := tree(t, "tree")
	diff, errs := mkp2pimg(t, exitOK, "--diff", "tree")
	assert.Empty(t, errs)
	assert.True(t, strings.HasPrefix(diff, "--- a/"), diff)
	mailbox, _ := mkp2pimg(t, exitOK, "--format", "git", "tree")
	assert.Contains(t, mailbox, "Subject: [PATCH 1/")
	out, _ := mkp2pimg(t, exitOK, "--format", "git", "--output", "mbox", "tree")
	assert.Contains(t, out, "mbox: changes these files:")
	written, err := os.ReadFile("mbox")
	require.NoError(t, err)
	assert.Equal(t, mailbox, string(written))
	out, _ = mkp2pimg(t, exitOK, "--format", "quilt", "--json", "--output", "patches", "tree")
	assert.True(t, json.Valid([]byte(out)))
	series, err := os.ReadFile("patches/series")
	require.NoError(t, err)
	assert.Equal(t, strings.Count(mailbox, "\nSubject: "), strings.Count(string(series), "\n"))
	assert.Equal(t, stock, tree(t, "tree"))

	_, err = exec.LookPath("patch")
	if err != nil {
		t.Skip("patch is not installed")
	}
	cmd := exec.CommandContext(t.Context(), "patch", "-p1", "-s", "--fuzz=0", "-d", "tree")
	cmd.Stdin = strings.NewReader(diff)
	require.NoError(t, cmd.Run())
	out, _ = mkp2pimg(t, exitOK, "--check", "tree")
	assert.Contains(t, out, "nothing to change: the edits are in the tree already")
	_, errs = mkp2pimg(t, exitData, "--revert", "tree")
	assert.Contains(t, errs, "patch -R")
}

func TestPatchTarball(t *testing.T) {
	sourceTree(t, "c")
	tarOf(t, ".", "source.tar")
	stock := tree(t, "tree")
	fromTree, _ := mkp2pimg(t, exitOK, "--diff", "tree")
	fromTar, _ := mkp2pimg(t, exitOK, "--diff", "source.tar")
	assert.Equal(t, fromTree, fromTar)
	mkp2pimg(t, exitOK, "--check", "source.tar")
	out, _ := mkp2pimg(t, exitOK, "--output", "out", "source.tar")
	assert.Contains(t, out, "out: these files are changed:")
	assert.Contains(t, out, "mkp2pimg patch --revert out\n")
	mkp2pimg(t, exitOK, "--revert", "out")
	assert.Equal(t, stock, tree(t, "out"))
	_, errs := mkp2pimg(t, exitUsage, "--output", "out", "source.tar")
	assert.Contains(t, errs, "directory out is not empty")

	require.NoError(t, os.Truncate("source.tar", 3000))
	_, errs = mkp2pimg(t, exitData, "--output", "new", "source.tar")
	assert.Contains(t, errs, "source.tar is damaged")
	assert.NoDirExists(t, "new")
}

func TestPatchOutsideOfTheTree(t *testing.T) {
	sourceTree(t, "c")
	require.NoError(t, os.Rename("tree/src", "src"))
	require.NoError(t, os.Symlink("../src", "tree/src"))
	for _, args := range [][]string{{"tree"}, {"--check", "tree"}} {
		_, errs := mkp2pimg(t, exitData, args...)
		assert.Contains(t, errs, "src/nvidia lies outside of it, by its name or by a link: copy the tree")
	}
	require.NoError(t, os.WriteFile("tree/"+patch.UndoFile, []byte(`{"version": 1, "edits": [{"file": "../outside.c"}]}`), 0o644))
	_, errs := mkp2pimg(t, exitData, "--revert", "tree")
	assert.Contains(t, errs, ".mkp2pimg-undo.json names ../outside.c, which lies outside of the tree")
}

// What could not be written is not reported as if it were.
func TestPatchThatIsNotWritten(t *testing.T) {
	sourceTree(t, "c")
	for _, args := range [][]string{
		{"--diff", "-o", "none/p2p.diff", "tree"},
		{"--format", "quilt", "-o", "none/patches", "tree"},
		{"--format", "quilt", "--json", "-o", "tree/version.mk", "tree"},
	} {
		out, errs := mkp2pimg(t, exitIO, args...)
		assert.Empty(t, out)
		assert.Contains(t, errs, args[len(args)-2])
	}
	require.NoError(t, os.Mkdir("tree/"+patch.UndoFile, 0o755))
	out, _ := mkp2pimg(t, exitIO, "tree")
	assert.Empty(t, out)
}

func TestPatchForAKernel(t *testing.T) {
	sourceTree(t, "a1")
	require.NoError(t, os.MkdirAll("headers/include/linux", 0o755))
	require.NoError(t, os.WriteFile("headers/include/linux/pci.h",
		[]byte("int pci_resize_resource(struct pci_dev *dev, int i, int size, int exclude_bars);\n"), 0o644))
	out, _ := mkp2pimg(t, exitOK, "--kernel-headers", "headers", "--edits", "none", "tree")
	assert.Regexp(t, `COMPAT-RESIZE +applied`, out)
	assert.Contains(t, out, "tree: these files are changed:\n  kernel-open/nvidia/nv-pci.c\n\n")
	out, _ = mkp2pimg(t, exitOK, "--kernel-headers", "headers", "tree")
	assert.Regexp(t, `COMPAT-RESIZE +is there +the kernel`, out)
	mkp2pimg(t, exitOK, "--revert", "tree")
}

func TestPatchOtherTrees(t *testing.T) {
	sourceTree(t, "c")
	fork := strings.NewReplacer("BIF_P2P_NOT_OVERRIDEN", "0x11", "PMappingForBar1P2P_395e98", "PMappingForBar1P2P_GH100") //nolint:misspell // as in the source
	for name, text := range tree(t, "tree") {
		require.NoError(t, os.WriteFile("tree"+name, []byte(fork.Replace(text)), 0o644))
	}
	_, errs := mkp2pimg(t, exitData, "tree")
	assert.Contains(t, errs, "carries P2P edits already: those of a minimal P2P driver")
	require.NoError(t, os.RemoveAll("tree/src"))
	require.NoError(t, os.WriteFile("tree/kernel-open/nvidia/nv-kernel.o_binary", nil, 0o644))
	_, errs = mkp2pimg(t, exitData, "tree")
	assert.Contains(t, errs, "precompiled, as kernel-open/nvidia/nv-kernel.o_binary")
}

func TestPatchUsage(t *testing.T) {
	sourceTree(t, "c")
	tarOf(t, "tree", "source.tar")
	before := tree(t, ".")
	for _, test := range []struct {
		want string
		args []string
	}{
		{"accepts 1 arg(s), received 0", nil},
		{"none: no such file", []string{"none"}},
		{`edits "some": want one of`, []string{"--edits", "some", "tree"}},
		{`format "zip": want diff, git or quilt`, []string{"--format", "zip", "tree"}},
		{"a family is one of [turing ampere ada hopper blackwell]", []string{"--gpu", "voodoo", "tree"}},
		{"--revert changes a tree", []string{"--revert", "--check", "tree"}},
		{"--revert takes a tree that was edited", []string{"--revert", "source.tar"}},
		{"--check writes nothing", []string{"--check", "--diff", "tree"}},
		{"say where with --output, such as", []string{"--format", "quilt", "tree"}},
		{"can't both go to standard output", []string{"--diff", "--json", "tree"}},
		{"--output is for tarballs and for patches", []string{"--output", "x", "tree"}},
		{"say with --output where it is unpacked to", []string{"source.tar"}},
		{"tree holds no kernel headers", []string{"--kernel-headers", "tree", "tree"}},
	} {
		_, errs := mkp2pimg(t, exitUsage, test.args...)
		assert.Contains(t, errs, test.want)
	}
	assert.Equal(t, before, tree(t, "."))
}
