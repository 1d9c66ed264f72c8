package debian

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

func sourceText(field, version string) string {
	const name = "driver"
	base := name + "_" + version
	return fmt.Sprintf("%s: %s\nVersion: %s\nFormat: 3.0 (quilt)\nDirectory: pool/%[2]s\n"+
		"Files:\n 0123 5 x\nChecksums-Sha256:\n %[4]s 5 %[5]s-1.dsc\n %[4]s 6 %[5]s.orig.tar.xz\n"+
		" %[4]s 7 %[5]s.orig.tar.xz.asc\n %[4]s 8 %[5]s-1.debian.tar.xz\n",
		field, name, version, digest, base)
}

func TestSources(t *testing.T) {
	a := debiantest.NewArchive(t, now)
	a.Index(t, "stable", "contrib/source/Sources.xz", sourceText("Package", "535")+"\n"+sourceText("Package", "1:1"))
	a.Release(t, "stable")
	mirror, c := serve(t, a)
	x, err := c.Sources(t.Context(), Suite{Name: "stable", Mirror: mirror, Components: []string{"contrib"}})
	require.NoError(t, err)

	s, err := x.Lookup("driver", "")
	require.NoError(t, err)
	assert.Equal(t, "1:1", s.Version, "the newest")
	s, err = x.Lookup("driver", "535")
	require.NoError(t, err)
	assert.Equal(t, "contrib", s.Component)
	orig, err := s.Orig()
	require.NoError(t, err)
	assert.Equal(t, SourceFile{"driver_535.orig.tar.xz", digest, 6}, orig)
	f := s.File(orig)
	assert.Equal(t, mirror+"/pool/driver/driver_535.orig.tar.xz", f.URLs[0])
	assert.Equal(t, digest, f.SHA256)
	debian, err := s.Debian()
	require.NoError(t, err)
	assert.Equal(t, "driver_535-1.debian.tar.xz", debian.Name)

	_, err = x.Lookup("driver", "9")
	require.EqualError(t, err, "source package driver has no version 9 in stable: there is 535, 1:1")
	_, err = x.Lookup("nope", "")
	require.EqualError(t, err, "source package nope is in none of stable")
}

func TestParseDSC(t *testing.T) {
	text := sourceText("Source", "535")
	for name, data := range map[string][]byte{"plain": []byte(text), "signed": sign(t, text, newKey(t, debiantest.Decade))} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseDSC(data)
			require.NoError(t, err)
			assert.Equal(t, "driver", s.Name)
			assert.Equal(t, "3.0 (quilt)", s.Format)
			assert.Len(t, s.Files, 4)
		})
	}
	for name, tt := range map[string]struct{ data, want string }{
		"empty":     {"", "is empty"},
		"no name":   {"Version: 1\n", "no name"},
		"outside":   {strings.ReplaceAll(text, "driver_535.orig", "../driver"), "bad file name"},
		"directory": {strings.ReplaceAll(text, "pool/", "/"), "bad Directory"},
		"digest":    {strings.ReplaceAll(text, digest, "0"), "Checksums-Sha256"},
		"two":       {text + "\n" + text, "more than one"},
		"binary":    {"\x1f\x8b", "dsc: line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseDSC([]byte(tt.data))
			require.ErrorContains(t, err, tt.want)
		})
	}
	s := &Source{Name: "n", Version: "1", Format: "3.0 (native)"}
	_, err := s.Orig()
	require.EqualError(t, err, "source package n 1 (format 3.0 (native)) has no .orig.tar.*")
}

func FuzzParseDSC(f *testing.F) {
	f.Add([]byte(sourceText("Source", "535")))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseDSC(data)
		if err != nil {
			return
		}
		for _, file := range s.Files {
			require.True(t, filepath.IsLocal(file.Name))
		}
	})
}

const upstream = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"

// patches are those of a small package: each changes what the one before left.
var patches = map[string]string{
	"git.patch": "Description: made by git\n\ndiff --git a/num b/num\nindex 0719398..b1e6722 100644\n" +
		"--- a/num\n+++ b/num\n@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n" +
		"diff --git a/run b/run\nnew file mode 100755\nindex 0000000..1a2485c\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+#!/bin/sh\n",
	"moved.patch": "Description: made before the first one\nForwarded: no\n---\n num | 2 +-\n" +
		"--- a/num\n+++ b/num\n@@ -4,3 +4,3 @@\n 4\n-5\n+five\n 6\n@@ -9 +9,2 @@\n 9\n+10\n",
	"tree.patch": "Index: pkg-1.0/new/dir/file\n===================================================================\n" +
		"--- /dev/null\n+++ pkg-1.0/new/dir/file\n@@ -0,0 +1 @@\n+hello\n" +
		"--- pkg-1.0.orig/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n" +
		"--- pkg-1.0.orig/num\n+++ pkg-1.0/num\n@@ -1,2 +1,2 @@\n-0\n+zero\n 1\n",
	"zero.patch": "--- num\n+++ num\n@@ -1 +1 @@\n-zero\n+0\n",
}

func debianTar(t testing.TB, series string, patches map[string]string) string {
	entries := []entry{{Name: "debian/patches/series", Content: series}}
	for _, name := range keys(patches) {
		entries = append(entries, entry{Name: "debian/patches/" + name, Content: patches[name]})
	}
	return tempFile(t, debiantest.Compress(t, "xz", debiantest.Tar(t, entries...)))
}

func upstreamTree(t testing.TB) string {
	dir := t.TempDir()
	for name, content := range map[string]string{"num": upstream, "gone": "bye\n", "debian/upstreams-own": "x"} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}

func TestAddDebian(t *testing.T) {
	dir := upstreamTree(t)
	applied, err := AddDebian(debianTar(t, "# a comment\ngit.patch\n\nmoved.patch -p1 # why\ntree.patch\nzero.patch -p0\n", patches), dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"git.patch", "moved.patch", "tree.patch", "zero.patch"}, applied)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "debian/patches")))
	assert.Equal(t, []string{
		"drwxr-xr-x debian",
		"drwxr-xr-x new",
		"drwxr-xr-x new/dir",
		"-rw-r--r-- new/dir/file hello\n",
		"-rw-r--r-- num 0\n1\n2\n3\n4\nfive\n6\n7\n8\n9\n10\n",
		"-rwxr-xr-x run #!/bin/sh\n",
	}, tree(t, dir))
}

func TestAddDebianWithoutPatches(t *testing.T) {
	dir := upstreamTree(t)
	applied, err := AddDebian(tempFile(t, debiantest.Tar(t, entry{Name: "debian/control", Content: "Source: x"})), dir)
	require.NoError(t, err)
	assert.Empty(t, applied)
	assert.FileExists(t, filepath.Join(dir, "debian/control"))
}

func TestAddDebianRefuses(t *testing.T) {
	hunk := "@@ -1 +1 @@\n-1\n+one\n"
	tests := map[string]struct{ series, patch, want string }{
		"missing patch":   {"nope", "", "debian/patches/nope"},
		"options":         {"p -p2 --fuzz=3", "", `options ["-p2" "--fuzz=3"]`},
		"outside series":  {"../../p", "", "bad patch name"},
		"conflict":        {"p", "--- a/num\n+++ b/num\n@@ -1 +1 @@\n-x\n+one\n", "patch p: num: hunk 1 (@@ -1,1 +1,1 @@) fits nowhere"},
		"missing file":    {"p", "--- a/nope\n+++ b/nope\n" + hunk, "nope: no such file"},
		"outside file":    {"p", "--- a/../../x\n+++ b/../../x\n" + hunk, "escapes"},
		"new over old":    {"p", "--- /dev/null\n+++ b/debian/../../x\n@@ -0,0 +1 @@\n+x\n", "escapes"},
		"short name":      {"p", "--- num\n+++ num\n" + hunk, "too short for -p1"},
		"cut off":         {"p", "--- a/num\n+++ b/num\n@@ -1,3 +1,3 @@\n-1\n", "patch p"},
		"hunks out order": {"p", "--- a/num\n+++ b/num\n@@ -5 +5 @@\n-5\n+five\n@@ -1 +1 @@\n-1\n+one\n", "hunk 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := AddDebian(debianTar(t, tt.series, map[string]string{"p": tt.patch}), upstreamTree(t))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzApplyPatch(f *testing.F) {
	for _, p := range patches {
		f.Add([]byte(p), 1)
	}
	f.Fuzz(func(t *testing.T, patch []byte, n int) {
		if n < 0 || n > 1 {
			return
		}
		root, err := os.OpenRoot(upstreamTree(t))
		require.NoError(t, err)
		defer root.Close()
		_ = applyPatch(root, patch, n)
	})
}
