package layout

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const helloSum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

func sample(t *testing.T) (*Image, string) {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, "etc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "etc/motd"), []byte("hello"), 0o600))
	require.NoError(t, os.Symlink("etc/motd", filepath.Join(root, "motd")))
	return &Image{Version: 1, Driver: "535.261.03", Kernel: "6.12", Files: []File{
		{Path: "/etc/motd", Size: 5, SHA256: helloSum, Mode: "0600"},
		{Path: "/motd", Link: "etc/motd", Mode: "0777"},
	}}, root
}

func TestVerify(t *testing.T) {
	tests := map[string]struct {
		spoil func(root string) error
		quick []string // what the quick check says
		full  []string // what hashing says as well
	}{
		"whole":        {func(string) error { return nil }, nil, nil},
		"truncated":    {func(root string) error { return os.Truncate(root+"/etc/motd", 3) }, []string{"/etc/motd: has 3 bytes, not 5"}, nil},
		"changed":      {func(root string) error { return os.WriteFile(root+"/etc/motd", []byte("HELLO"), 0o600) }, nil, []string{"/etc/motd: has sha256 3733cd97"}},
		"gone":         {func(root string) error { return os.RemoveAll(root + "/etc") }, []string{"/etc/motd: no such file"}, nil},
		"other target": {func(root string) error { return relink(root+"/motd", "/dev/null") }, []string{"/motd: links to /dev/null, not to etc/motd"}, nil},
		"no link":      {func(root string) error { return refile(root + "/motd") }, []string{"/motd: not a symbolic link to etc/motd"}, nil},
		"no file":      {func(root string) error { return relink(root+"/etc/motd", "x") }, []string{"/etc/motd: is L---------, not a regular file"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			img, root := sample(t)
			require.NoError(t, tt.spoil(root))
			check(t, img.Verify(os.DirFS(root), false), tt.quick)
			check(t, img.Verify(os.DirFS(root), true), append(tt.full, tt.quick...))
		})
	}
}

func check(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		assert.NoError(t, err)
	}
	for _, w := range want {
		assert.ErrorContains(t, err, w)
	}
}

func relink(name, target string) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	return os.Symlink(target, name)
}

func refile(name string) error {
	if err := os.Remove(name); err != nil {
		return err
	}
	return os.WriteFile(name, nil, 0o600)
}

func TestRead(t *testing.T) {
	img, _ := sample(t)
	data, err := json.Marshal(img)
	require.NoError(t, err)
	got, err := Read(strings.NewReader(string(data)))
	require.NoError(t, err)
	assert.Equal(t, img, got)

	_, err = Read(strings.NewReader(`{"version":1,"files":`))
	require.ErrorContains(t, err, "image description: unexpected EOF")
	_, err = Read(strings.NewReader(`{"version":7}`))
	assert.ErrorContains(t, err, "has version 7, this program reads version 1")
}

func TestPaths(t *testing.T) {
	assert.Equal(t, "/lib/modules/6.12/updates/mkp2pimg/p2p/nvidia-uvm.ko", DriverModule("6.12", "p2p", "nvidia-uvm"))
	assert.Equal(t, "0755", FormatMode(fs.ModeDir|0o755))
	assert.Equal(t, "00", FormatMode(0))
}

func FuzzRead(f *testing.F) {
	f.Add(`{"version":1,"files":[{"path":"/x/../../y","size":-1,"link":"z"},{"path":""}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if img, err := Read(strings.NewReader(text)); err == nil && len(img.Files) > 0 {
			_ = img.Verify(os.DirFS(t.TempDir()), true)
		}
	})
}
