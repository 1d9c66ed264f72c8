package patch

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian"
)

// tarball is a tar archive of a tree, its names below prefix.
func tarball(t testing.TB, tree fstest.MapFS, prefix string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		f := tree[name]
		require.NoError(t, w.WriteHeader(&tar.Header{Name: prefix + name, Size: int64(len(f.Data)), Mode: 0o644}))
		_, err := w.Write(f.Data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestUnpackTo(t *testing.T) {
	tree := loadTree(t, "c")
	for name, prefix := range map[string]string{"top directory": "open-gpu-kernel-modules-580.1/", "none": "", "dot": "./"} {
		for _, tool := range []string{"", "gzip", "xz", "zstd"} {
			t.Run(name+" "+tool, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, "source.tar")
				require.NoError(t, os.WriteFile(file, tarball(t, tree, prefix), 0o644))
				if tool != "" {
					if _, err := exec.LookPath(tool); err != nil {
						t.Skipf("%s is not installed", tool)
					}
					packed, err := exec.CommandContext(t.Context(), tool, "-c", file).Output()
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(file, packed, 0o644))
				}
				out := filepath.Join(dir, "out")
				require.NoError(t, UnpackTo(file, out, func(tree string) error {
					r, err := Plan(os.DirFS(tree), P2P(Auto))
					require.NoError(t, err)
					return r.WriteUndo(tree)
				}))
				info, err := os.Stat(out)
				require.NoError(t, err)
				assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm())
				_, err = Revert(out)
				require.NoError(t, err)
				assert.Equal(t, snapshot(t, writeTree(t, tree)), snapshot(t, out))
			})
		}
	}
}

// planned plans edits over a tree that must not be left.
func planned(tree string) (err error) {
	root, err := os.OpenRoot(tree)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	_, err = Plan(root.FS(), P2P(Auto))
	return err
}

// links is a tar archive of links and of empty files, those without a target.
func links(t testing.TB, entries ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: e[0], Linkname: e[1], Mode: 0o777}
		if e[1] == "" {
			h.Typeflag, h.Mode = tar.TypeReg, 0o644
		}
		require.NoError(t, w.WriteHeader(h))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func leadingOut(t testing.TB) []byte {
	return links(t, [2]string{"x/version.mk", ""}, [2]string{"x/src", "/usr/src"})
}

func intoLink(t testing.TB) []byte {
	return links(t, [2]string{"x/src", "/usr/src"}, [2]string{"x/src/file", ""})
}

func TestUnpackToIsWholeOrNothing(t *testing.T) {
	whole := gzipped(t, tarball(t, loadTree(t, "c"), "x/"))
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		data []byte
		edit func(string) error
		want any
	}{
		"edit fails":  {whole, func(string) error { return refused }, nil},
		"cut off":     {whole[:len(whole)/2], func(string) error { return nil }, new(*debian.DamagedError)},
		"leads out":   {tarball(t, smallTree(""), "../x/"), func(string) error { return nil }, new(*debian.DamagedError)},
		"by a link":   {leadingOut(t), planned, new(*TreeError)},
		"into a link": {intoLink(t), func(string) error { return nil }, new(*debian.DamagedError)},
		"no tarball":  {[]byte("#!/bin/sh\nexit\n"), func(string) error { return nil }, new(*debian.DamagedError)},
		"output kept": {whole, func(string) error { return nil }, new(*OutputError)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "source.tar")
			require.NoError(t, os.WriteFile(file, test.data, 0o644))
			out := filepath.Join(dir, "out")
			if name == "output kept" {
				require.NoError(t, os.MkdirAll(filepath.Join(out, "mine"), 0o755))
			}
			before := snapshot(t, dir)
			err := UnpackTo(file, out, test.edit)
			if test.want == nil {
				require.ErrorIs(t, err, refused)
			} else {
				require.ErrorAs(t, err, test.want)
			}
			assert.Equal(t, before, snapshot(t, dir))
		})
	}
}

func TestHeaders(t *testing.T) {
	with := func(t *testing.T, name, text string) string {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return dir
	}
	common := with(t, pciHeader, "")
	for name, dir := range map[string]string{
		"plain":   common,
		"source":  with(t, "source/"+pciHeader, ""),
		"Debian":  with(t, "Makefile", "include "+common+"/Makefile\n"),
		"nothing": t.TempDir(),
		"another": with(t, "Makefile", "all:\n"),
	} {
		t.Run(name, func(t *testing.T) {
			headers, err := Headers(dir)
			if name == "nothing" || name == "another" {
				var none *HeadersError
				require.ErrorAs(t, err, &none)
				assert.ErrorContains(t, err, dir+" holds no kernel headers")
				return
			}
			require.NoError(t, err)
			_, err = fs.Stat(headers, pciHeader)
			assert.NoError(t, err)
		})
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(tarball(f, smallTree(two), "x/"))
	f.Add(gzipped(f, tarball(f, smallTree(two), "")))
	f.Add(tarball(f, smallTree(two), "../"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "source.tar")
		require.NoError(t, os.WriteFile(file, data, 0o644))
		out := filepath.Join(dir, "out")
		err := UnpackTo(file, out, func(tree string) error {
			r, err := Plan(os.DirFS(tree), []Edit{smallEdit()})
			if err != nil {
				return err
			}
			return r.WriteUndo(tree)
		})
		entries, readErr := os.ReadDir(dir)
		require.NoError(t, readErr)
		if err != nil {
			assert.Len(t, entries, 1, "something is left: %v", err)
		} else {
			assert.Len(t, entries, 2)
		}
	})
}
