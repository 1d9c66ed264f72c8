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

	"mkp2pimg/internal/debian/debiantest"
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
	{Name: "./", Kind: tar.TypeDir, Mode: 0o755},
	{Name: "./lib/", Kind: tar.TypeDir, Mode: 0o755},
	{Name: "./lib/x.so.1", Content: "library"},
	{Name: "./usr/bin/su", Mode: 0o6755, Content: "su"},
	{Name: "./usr/bin/sudo", Kind: tar.TypeLink, Link: "./usr/bin/su"},
	{Name: "./usr/bin/sh", Kind: tar.TypeSymlink, Link: "/bin/dash"},
	{Name: "./etc/closed/", Kind: tar.TypeDir, Mode: 0o555},
	{Name: "./etc/closed/f", Mode: 0o600, Content: "secret"},
}

func TestUnpack(t *testing.T) {
	for _, how := range []string{"xz", "gz", "zst", ""} {
		t.Run("data.tar."+how, func(t *testing.T) {
			dir := t.TempDir()
			deb := tempFile(t, debiantest.Deb(t, how, sampleEntries...))
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
			assert.True(t, info.ModTime().Equal(debiantest.Mtime))
		})
	}
}

func TestUnpackFollowsUsrMerge(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		require.NoError(t, UsrMerge(dir))
	}
	require.NoError(t, Unpack(tempFile(t, debiantest.Deb(t, "gz", sampleEntries...)), dir, UnpackOptions{}))
	got := strings.Join(tree(t, dir), "\n")
	assert.Contains(t, got, "link lib → usr/lib\n")
	assert.Contains(t, got, "usr/lib/x.so.1 library")
}

func TestUnpackFilter(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Unpack(tempFile(t, debiantest.Deb(t, "gz", sampleEntries...)), dir, UnpackOptions{
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
	link := func(name, target string) entry { return entry{Name: name, Kind: tar.TypeSymlink, Link: target} }
	tests := map[string]struct {
		entries []entry
		want    string
	}{
		"parent":               {[]entry{{Name: "../evil", Content: "x"}}, "leads outside"},
		"hidden parent":        {[]entry{{Name: "./a/../../evil", Content: "x"}}, "leads outside"},
		"absolute":             {[]entry{{Name: "/evil", Content: "x"}}, "leads outside"},
		"hard link to parent":  {[]entry{{Name: "a", Kind: tar.TypeLink, Link: "../outside"}}, "leads outside"},
		"hard link through":    {[]entry{link("a", ".."), {Name: "b", Kind: tar.TypeLink, Link: "a/outside"}}, "escapes"},
		"through symlink":      {[]entry{link("a", ".."), {Name: "a/evil", Content: "x"}}, "escapes"},
		"through absolute":     {[]entry{link("a", "/tmp"), {Name: "a/evil", Content: "x"}}, "escapes"},
		"through two symlinks": {[]entry{link("d/a", ".."), link("b", "d/a/.."), {Name: "b/evil", Content: "x"}}, "escapes"},
		"directory through":    {[]entry{link("a", ".."), {Name: "a/evil", Kind: tar.TypeDir}}, "escapes"},
		"symlink through":      {[]entry{link("a", ".."), link("a/evil", "x")}, "escapes"},
		"device":               {[]entry{{Name: "sda", Kind: tar.TypeBlock}}, "refused"},
		"character device":     {[]entry{{Name: "null", Kind: tar.TypeChar}}, "refused"},
		"pipe":                 {[]entry{{Name: "fifo", Kind: tar.TypeFifo}}, "refused"},
		"link to nothing":      {[]entry{{Name: "a", Kind: tar.TypeLink, Link: "b"}}, "no such file"},
		"file over directory":  {[]entry{{Name: "a/b", Content: "x"}, {Name: "a", Content: "x"}}, "not empty"},
		"file as directory":    {[]entry{{Name: "a", Content: "x"}, {Name: "a/b", Content: "x"}}, "file exists"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			outer := t.TempDir()
			dir := filepath.Join(outer, "in")
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(outer, "outside"), nil, 0o644))
			deb := tempFile(t, debiantest.Deb(t, "gz", tt.entries...))
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
	require.NoError(t, Unpack(tempFile(t, debiantest.Deb(t, "gz", entry{Name: "f", Content: "new"})), dir, UnpackOptions{}))
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
	big := entry{Name: "f", Content: string(random)}
	tests := map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "not a .deb"},
		"web page":       {[]byte("<html>not found</html>"), "not a .deb"},
		"only magic":     {[]byte(arMagic), "has no data.tar"},
		"other archive":  {debiantest.Ar([2]string{"x.o", "x"}), `first member is "x.o"`},
		"no data":        {debiantest.Ar([2]string{"debian-binary", "2.0\n"}, [2]string{"control.tar", ""}), "has no data.tar"},
		"bad header":     {[]byte(arMagic + strings.Repeat("x", arHeader)), "bad member header"},
		"negative size":  {[]byte(arMagic + strings.Replace(string(debiantest.Ar([2]string{"debian-binary", "2.0\n"})[8:]), "4   ", "-4  ", 1)), "bad member header"},
		"half a header":  {append(debiantest.Ar([2]string{"debian-binary", "2.0\n"}), "data.tar"...), "cut off"},
		"not compressed": {debiantest.Ar([2]string{"debian-binary", "2.0\n"}, [2]string{"data.tar.xz", strings.Repeat("x", 1000)}), "data.tar.xz"},
	}
	for _, how := range []string{"xz", "gz", "zst", ""} {
		data := debiantest.Deb(t, how, big)
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
		data := debiantest.Deb(t, how, entry{Name: "f", Content: strings.Repeat("some text ", 1000)})
		data[len(data)-40] ^= 0x10
		require.Error(t, Walk(tempFile(t, data), func(_ *tar.Header, r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		}), how)
	}
}

func TestWalk(t *testing.T) {
	deb := tempFile(t, debiantest.Deb(t, "xz", sampleEntries...))
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
	data := debiantest.Tar(t,
		entry{Name: "pax_global_header", Kind: tar.TypeXGlobalHeader},
		entry{Name: "driver-1.0/", Kind: tar.TypeDir, Mode: 0o755},
		entry{Name: "driver-1.0/Makefile", Content: "all:"},
		entry{Name: "driver-1.0/src/a.c", Content: "int a;"},
		entry{Name: "driver-1.0/src/b.c", Kind: tar.TypeLink, Link: "driver-1.0/src/a.c"},
	)
	for _, how := range []string{"xz", "gz", "zst", ""} {
		dir := t.TempDir()
		require.NoError(t, UnpackSource(tempFile(t, debiantest.Compress(t, how, data)), dir))
		assert.Equal(t, []string{
			"-rw-r--r-- Makefile all:", "drwxr-xr-x src", "-rw-r--r-- src/a.c int a;", "-rw-r--r-- src/b.c int a;",
		}, tree(t, dir))
	}
	bad := debiantest.Tar(t, entry{Name: "d/a", Kind: tar.TypeLink, Link: "b"})
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
		"machine-readable": {entry{Name: "./usr/share/doc/x/copyright", Content: dep5}, "GPL-2+, Expat"},
		"free text":        {entry{Name: "./usr/share/doc/x/copyright", Content: "This is free\nsoftware.\n"}, "see copyright file"},
		"empty":            {entry{Name: "./usr/share/doc/x/copyright"}, "see copyright file"},
		"other package's": {
			entry{Name: "./usr/share/doc/x-dev", Kind: tar.TypeSymlink, Link: "x-base"}, "see copyright file of x-base",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Licence(tempFile(t, debiantest.Deb(t, "gz", entry{Name: "./usr/share/doc/x/NEWS"}, tt.entry)))
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
	_, err := Licence(tempFile(t, debiantest.Deb(t, "gz", entry{Name: "f"})))
	require.ErrorContains(t, err, "no copyright file")
}

func FuzzWalkDeb(f *testing.F) {
	for _, how := range []string{"xz", "gz", "zst", ""} {
		f.Add(debiantest.Deb(f, how, sampleEntries...))
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
