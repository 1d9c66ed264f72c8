package debian

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// tree lists what is below dir: mode, path, and link target or content.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		line := info.Mode().String() + " " + name
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			line = "link " + name + " → " + target
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + string(data)
		}
		all = append(all, line)
		return nil
	}))
	return all
}

var sampleEntries = []entry{
	{name: "./", kind: tar.TypeDir, mode: 0o755},
	{name: "./lib/", kind: tar.TypeDir, mode: 0o755},
	{name: "./lib/x.so.1", content: "library"},
	{name: "./usr/bin/su", mode: 0o6755, content: "su"},
	{name: "./usr/bin/sudo", kind: tar.TypeLink, link: "./usr/bin/su"},
	{name: "./usr/bin/sh", kind: tar.TypeSymlink, link: "/bin/dash"},
	{name: "./etc/closed/", kind: tar.TypeDir, mode: 0o555},
	{name: "./etc/closed/f", mode: 0o600, content: "secret"},
}

func TestUnpack(t *testing.T) {
	for _, how := range []string{"xz", "gz", "zst", ""} {
		t.Run("data.tar."+how, func(t *testing.T) {
			dir := t.TempDir()
			deb := tempFile(t, debOf(t, how, sampleEntries...))
			for range 2 { // the second replaces the first
				require.NoError(t, Unpack(deb, dir, UnpackOptions{}))
				assert.Equal(t, []string{
					"drwxr-xr-x etc",
					"drwxr-xr-x etc/closed",
					"-rw------- etc/closed/f secret",
					"drwxr-xr-x lib",
					"-rw-r--r-- lib/x.so.1 library",
					"drwxr-xr-x usr",
					"drwxr-xr-x usr/bin",
					"link usr/bin/sh → /bin/dash",
					"-rwxr-xr-x usr/bin/su su",
					"-rwxr-xr-x usr/bin/sudo su",
				}, tree(t, dir))
			}
			info, err := os.Stat(filepath.Join(dir, "lib/x.so.1"))
			require.NoError(t, err)
			assert.True(t, info.ModTime().Equal(mtime))
		})
	}
}

func TestUnpackFollowsUsrMerge(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		require.NoError(t, UsrMerge(dir))
	}
	require.NoError(t, Unpack(tempFile(t, debOf(t, "gz", sampleEntries...)), dir, UnpackOptions{}))
	got := strings.Join(tree(t, dir), "\n")
	assert.Contains(t, got, "link lib → usr/lib\n")
	assert.Contains(t, got, "usr/lib/x.so.1 library")
}

func TestUnpackFilter(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Unpack(tempFile(t, debOf(t, "gz", sampleEntries...)), dir, UnpackOptions{
		Filter: func(name string) bool { return strings.HasPrefix(name, "usr/bin/s") && name != "usr/bin/sudo" },
	}))
	assert.Equal(t, []string{
		"drwxr-xr-x usr",
		"drwxr-xr-x usr/bin",
		"link usr/bin/sh → /bin/dash",
		"-rwxr-xr-x usr/bin/su su",
	}, tree(t, dir))
}

func TestUnpackRefuses(t *testing.T) {
	link := func(name, target string) entry { return entry{name: name, kind: tar.TypeSymlink, link: target} }
	tests := map[string]struct {
		entries []entry
		want    string
	}{
		"parent":               {[]entry{{name: "../evil", content: "x"}}, "leads outside"},
		"hidden parent":        {[]entry{{name: "./a/../../evil", content: "x"}}, "leads outside"},
		"absolute":             {[]entry{{name: "/evil", content: "x"}}, "leads outside"},
		"hard link to parent":  {[]entry{{name: "a", kind: tar.TypeLink, link: "../outside"}}, "leads outside"},
		"hard link through":    {[]entry{link("a", ".."), {name: "b", kind: tar.TypeLink, link: "a/outside"}}, "escapes"},
		"through symlink":      {[]entry{link("a", ".."), {name: "a/evil", content: "x"}}, "escapes"},
		"through absolute":     {[]entry{link("a", "/tmp"), {name: "a/evil", content: "x"}}, "escapes"},
		"through two symlinks": {[]entry{link("d/a", ".."), link("b", "d/a/.."), {name: "b/evil", content: "x"}}, "escapes"},
		"directory through":    {[]entry{link("a", ".."), {name: "a/evil", kind: tar.TypeDir}}, "escapes"},
		"symlink through":      {[]entry{link("a", ".."), link("a/evil", "x")}, "escapes"},
		"device":               {[]entry{{name: "sda", kind: tar.TypeBlock}}, "refused"},
		"character device":     {[]entry{{name: "null", kind: tar.TypeChar}}, "refused"},
		"pipe":                 {[]entry{{name: "fifo", kind: tar.TypeFifo}}, "refused"},
		"link to nothing":      {[]entry{{name: "a", kind: tar.TypeLink, link: "b"}}, "no such file"},
		"file over directory":  {[]entry{{name: "a/b", content: "x"}, {name: "a", content: "x"}}, "not empty"},
		"file as directory":    {[]entry{{name: "a", content: "x"}, {name: "a/b", content: "x"}}, "file exists"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(outer, "outside"), nil, 0o644))
			deb := tempFile(t, debOf(t, "gz", tt.entries...))
			err := Unpack(deb, dir, UnpackOptions{})
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, deb)
			left, err := os.ReadDir(outer)
			require.NoError(t, err)
			assert.Len(t, left, 2, "nothing is written outside")
		})
	}
}

func TestUnpackReplacesLinks(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "in")
	require.NoError(t, os.Mkdir(dir, 0o755))
	victim := filepath.Join(outer, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o644))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, "f")))
	require.NoError(t, Unpack(tempFile(t, debOf(t, "gz", entry{name: "f", content: "new"})), dir, UnpackOptions{}))
	assert.Equal(t, []string{"-rw-r--r-- f new"}, tree(t, dir))
	data, err := os.ReadFile(victim)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(data))
}

func TestWalkRefusesBadFiles(t *testing.T) {
	random := make([]byte, 4000)
	for i := range random {
		random[i] = byte(i * i >> 3)
	}
	big := entry{name: "f", content: string(random)}
	tests := map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "not a .deb"},
		"web page":       {[]byte("<html>not found</html>"), "not a .deb"},
		"only magic":     {[]byte(arMagic), "has no data.tar"},
		"other archive":  {arOf([2]string{"x.o", "x"}), `first member is "x.o"`},
		"no data":        {arOf([2]string{"debian-binary", "2.0\n"}, [2]string{"control.tar", ""}), "has no data.tar"},
		"bad header":     {[]byte(arMagic + strings.Repeat("x", arHeader)), "bad member header"},
		"negative size":  {[]byte(arMagic + strings.Replace(string(arOf([2]string{"debian-binary", "2.0\n"})[8:]), "4   ", "-4  ", 1)), "bad member header"},
		"half a header":  {append(arOf([2]string{"debian-binary", "2.0\n"}), "data.tar"...), "cut off"},
		"not compressed": {arOf([2]string{"debian-binary", "2.0\n"}, [2]string{"data.tar.xz", strings.Repeat("x", 1000)}), "data.tar.xz"},
	}
	for _, how := range []string{"xz", "gz", "zst", ""} {
		data := debOf(t, how, big)
		tests["cut off in the middle "+how] = struct {
			data []byte
			want string
		}{data[:len(data)*2/3], "unexpected EOF"}
		tests["cut off at the end "+how] = struct {
			data []byte
			want string
		}{data[:len(data)-3], "unexpected EOF"}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := tempFile(t, tt.data)
			err := Walk(path, func(_ *tar.Header, r io.Reader) error {
				_, err := io.Copy(io.Discard, r)
				return err
			})
			require.ErrorContains(t, err, tt.want)
			assert.ErrorContains(t, err, path)
		})
	}
	require.ErrorIs(t, Walk("/nonexistent", nil), os.ErrNotExist)
}

func TestWalkFindsDamage(t *testing.T) {
	for _, how := range []string{"xz", "gz", "zst"} {
		data := debOf(t, how, entry{name: "f", content: strings.Repeat("some text ", 1000)})
		data[len(data)-40] ^= 0x10
		require.Error(t, Walk(tempFile(t, data), func(_ *tar.Header, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		}), how)
	}
}

func TestWalk(t *testing.T) {
	deb := tempFile(t, debOf(t, "xz", sampleEntries...))
	var seen []string
	err := Walk(deb, func(hdr *tar.Header, r io.Reader) error {
		seen = append(seen, hdr.Name)
		if hdr.Name == "lib/x.so.1" {
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			assert.Equal(t, "library", string(data))
		}
		if hdr.Name == "usr/bin/su" {
			return fs.SkipAll
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"lib", "lib/x.so.1", "usr/bin/su"}, seen)
	mine := errors.New("mine")
	require.ErrorIs(t, Walk(deb, func(*tar.Header, io.Reader) error { return mine }), mine)
}

func TestUnpackSource(t *testing.T) {
	data := tarOf(t,
		entry{name: "pax_global_header", kind: tar.TypeXGlobalHeader},
		entry{name: "driver-1.0/", kind: tar.TypeDir, mode: 0o755},
		entry{name: "driver-1.0/Makefile", content: "all:"},
		entry{name: "driver-1.0/src/a.c", content: "int a;"},
		entry{name: "driver-1.0/src/b.c", kind: tar.TypeLink, link: "driver-1.0/src/a.c"},
	)
	for _, how := range []string{"xz", "gz", "zst", ""} {
		dir := t.TempDir()
		require.NoError(t, UnpackSource(tempFile(t, compress(t, how, data)), dir))
		assert.Equal(t, []string{
			"-rw-r--r-- Makefile all:", "drwxr-xr-x src", "-rw-r--r-- src/a.c int a;", "-rw-r--r-- src/b.c int a;",
		}, tree(t, dir))
	}
	bad := tarOf(t, entry{name: "d/a", kind: tar.TypeLink, link: "b"})
	require.ErrorContains(t, UnpackSource(tempFile(t, bad), t.TempDir()), "outside")
}

func TestLicence(t *testing.T) {
	dep5 := "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n" +
		"Files: *\nCopyright: x\nLicense: GPL-2+\n\nFiles: a\nLicense: Expat\n Permission is\n .\n granted\n\n" +
		"License: GPL-2+\n On Debian systems\n"
	tests := map[string]struct {
		entry entry
		want  string
	}{
		"machine-readable": {entry{name: "./usr/share/doc/x/copyright", content: dep5}, "GPL-2+, Expat"},
		"free text":        {entry{name: "./usr/share/doc/x/copyright", content: "This is free\nsoftware.\n"}, "see copyright file"},
		"empty":            {entry{name: "./usr/share/doc/x/copyright"}, "see copyright file"},
		"other package's": {
			entry{name: "./usr/share/doc/x-dev", kind: tar.TypeSymlink, link: "x-base"}, "see copyright file of x-base",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Licence(tempFile(t, debOf(t, "gz", entry{name: "./usr/share/doc/x/NEWS"}, tt.entry)))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	_, err := Licence(tempFile(t, debOf(t, "gz", entry{name: "f"})))
	require.ErrorContains(t, err, "no copyright file")
}

func FuzzWalkDeb(f *testing.F) {
	for _, how := range []string{"xz", "gz", "zst", ""} {
		f.Add(debOf(f, how, sampleEntries...))
	}
	f.Add([]byte(arMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		n := 0
		err := walkDeb(bytes.NewReader(data), func(hdr *tar.Header, _ io.Reader) error {
			require.True(t, fs.ValidPath(hdr.Name))
			if n++; n > 100 {
				return fs.SkipAll
			}
			return nil
		})
		if err == nil {
			_ = Unpack(tempFile(t, data), dir, UnpackOptions{})
		}
	})
}
