package initramfs

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs/layout"
)

var (
	fromA = Origin{Kind: FromPackage, Name: "a", Version: "1"}
	fromB = Origin{Kind: Generated, Name: "b"}
)

func TestTree(t *testing.T) {
	host := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(host, []byte("on disk"), 0o600))
	tree := &Tree{}
	require.NoError(t, tree.AddLink("/usr/bin/sh", "bb", fromA))
	require.NoError(t, tree.AddFile("/usr/bin/bb", 0o755, host, fromA))
	require.NoError(t, tree.AddBytes("/etc/motd", 0o644, []byte("hello"), fromB))
	require.NoError(t, tree.AddDir("/usr", 0o700, fromB), "a directory named after it became a parent")
	require.NoError(t, tree.AddDir("/run", 0o755, fromB))

	type row struct {
		path, mode, link string
		size             int64
		origin           Origin
	}
	var got []row
	for _, e := range tree.Entries() {
		got = append(got, row{e.Path, e.Mode.String(), e.Link, e.Size, e.Origin})
	}
	assert.Equal(t, []row{
		{"/etc", "drwxr-xr-x", "", 0, parent},
		{"/etc/motd", "-rw-r--r--", "", 5, fromB},
		{"/run", "drwxr-xr-x", "", 0, fromB},
		{"/usr", "drwx------", "", 0, fromB},
		{"/usr/bin", "drwxr-xr-x", "", 0, parent},
		{"/usr/bin/bb", "-rwxr-xr-x", "", 7, fromA},
		{"/usr/bin/sh", "Lrwxrwxrwx", "bb", 0, fromA},
	}, got)
	assert.Equal(t, []layout.File{
		{Path: "/etc/motd", Size: 5, Mode: "0644", SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},
		{Path: "/usr/bin/bb", Size: 7, Mode: "0755", SHA256: "d714a8234a61d7e2110f37e672c5b237707590e086dd6c4424c82d8a840496b8"},
		{Path: "/usr/bin/sh", Mode: "0777", Link: "bb"},
	}, tree.Files())

	r, err := tree.Lookup("/usr/bin/bb").Open()
	require.NoError(t, err)
	data, err := io.ReadAll(r)
	require.NoError(t, err)
	assert.Equal(t, "on disk", string(data))
}

func TestTreeErrors(t *testing.T) {
	tests := map[string]struct {
		add  func(*Tree) error
		want string
	}{
		"same file twice":        {func(t *Tree) error { return t.AddBytes("/f", 0o644, []byte("1"), fromB) }, ""},
		"same directory twice":   {func(t *Tree) error { return t.AddDir("/d", 0o755, fromB) }, ""},
		"other content":          {func(t *Tree) error { return t.AddBytes("/f", 0o644, []byte("2"), fromB) }, "/f: package a 1 and generated b disagree"},
		"other mode":             {func(t *Tree) error { return t.AddBytes("/f", 0o755, []byte("1"), fromB) }, "disagree"},
		"other kind":             {func(t *Tree) error { return t.AddLink("/f", "x", fromB) }, "disagree"},
		"file for a directory":   {func(t *Tree) error { return t.AddBytes("/d", 0o755, nil, fromB) }, "disagree"},
		"below a file":           {func(t *Tree) error { return t.AddBytes("/f/x", 0o644, nil, fromB) }, "/f/x: its parent /f is no directory"},
		"far below a file":       {func(t *Tree) error { return t.AddBytes("/f/x/y", 0o644, nil, fromB) }, "its parent /f is no directory"},
		"relative":               {func(t *Tree) error { return t.AddDir("x", 0o755, fromB) }, `"x" is not a clean absolute path`},
		"not clean":              {func(t *Tree) error { return t.AddDir("/x/../y", 0o755, fromB) }, "not a clean absolute path"},
		"root":                   {func(t *Tree) error { return t.AddDir("/", 0o755, fromB) }, "not a clean absolute path"},
		"zero byte":              {func(t *Tree) error { return t.AddLink("/x", "a\x00b", fromB) }, "zero byte"},
		"link without target":    {func(t *Tree) error { return t.AddLink("/x", "", fromB) }, "/x: symbolic link without target"},
		"host file that is gone": {func(t *Tree) error { return t.AddFile("/x", 0o644, "/nowhere/x", fromB) }, "add /x to the image: open /nowhere/x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tree := &Tree{}
			require.NoError(t, tree.AddBytes("/f", 0o644, []byte("1"), fromA))
			require.NoError(t, tree.AddDir("/d", 0o755, fromA))
			before := tree.Files()
			err := tt.add(tree)
			if tt.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tt.want)
			}
			assert.Equal(t, before, tree.Files())
			assert.Equal(t, fromA, tree.Lookup("/f").Origin, "the first origin stays")
		})
	}
}

func TestConflictError(t *testing.T) {
	tree := &Tree{}
	require.NoError(t, tree.AddBytes("/f", 0o644, []byte("1"), fromA))
	var conflict *ConflictError
	require.ErrorAs(t, tree.AddBytes("/f/g", 0o644, nil, fromB), &conflict)
	assert.Equal(t, &ConflictError{"/f", fromA, fromB}, conflict)
	assert.Equal(t, fs.FileMode(0o644), tree.Lookup("/f").Mode)
}
