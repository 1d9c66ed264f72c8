package inspect

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
	"mkp2pimg/initramfs/layout"
)

func file(path string, size int64, sum string, origin initramfs.Origin) images.File {
	return images.File{File: layout.File{Path: path, Size: size, SHA256: sum, Mode: "0644"}, Origin: origin}
}

var (
	gsp   = initramfs.Origin{Kind: initramfs.FromPackage, Name: "firmware-nvidia-gsp", Version: "535.261.03-1"}
	built = initramfs.Origin{Kind: initramfs.BuiltHere, Name: "mkp2pimg"}
)

func manifest() *images.Manifest {
	return &images.Manifest{
		Product: images.Product{Name: "mkp2pimg", Version: "0.1.0"}, Driver: "535.261.03", Kernel: "6.12.117+deb12-amd64", GPUs: []string{"all"}, Profile: initramfs.Lab,
		CommandLine: []string{"panic=30"}, Go: "go1.26.8", Options: []string{"options nvidia a=1"},
		ModuleSets: []images.ModuleSet{{Name: "stock"}, {Name: "p2p", Edits: []string{"A", "B"}}},
		Inputs:     []images.Input{{Role: "libc", Name: "libc6", Version: "2.36-9", SHA256: "0123456789abcdef"}},
		GoModules:  []images.GoModule{{Path: "github.com/u-root/u-root", Version: "v0.16.0"}},
		Files: []images.File{
			file("/bin/p2pinit", 10, "aa", built), file("/lib/firmware/gsp_ga10x.bin", 30, "bb", gsp), file("/lib/firmware/gsp_tu10x.bin", 20, "cc", gsp),
		},
	}
}

func TestComponents(t *testing.T) {
	assert.Equal(t, []Component{
		{Kind: "package", Name: "firmware-nvidia-gsp", Version: "535.261.03-1", Files: 2, Size: 50},
		{Kind: "built", Name: "mkp2pimg", Files: 1, Size: 10},
	}, Components(manifest()))
	assert.Empty(t, Components(&images.Manifest{}))
}

func TestDiff(t *testing.T) {
	assert.Empty(t, Diff(manifest(), manifest()))
	other := manifest()
	other.Driver = "550.163.01"
	other.GPUs = []string{"ada", "hopper"}
	other.Profile = initramfs.Minimal
	other.Options = nil
	other.ModuleSets[1].Edits = nil
	other.Inputs[0].Version = "2.36-10"
	other.Files = append(other.Files[:2:2], file("/lib/firmware/gsp_new.bin", 7, "dd", gsp))
	other.Files[0].Size = 11
	assert.Equal(t, []Change{
		{"driver", "", "535.261.03", "550.163.01"},
		{"gpus", "", "all", "ada, hopper"},
		{"profile", "", "lab", "minimal"},
		{"module option", "options nvidia a=1", "set", ""},
		{"edits", "p2p", "A B", "none"},
		{"input", "libc libc6", "2.36-9 (sha256 0123456789ab)", "2.36-10 (sha256 0123456789ab)"},
		{"file", "/bin/p2pinit", "10 bytes, mode 0644, sha256 aa", "11 bytes, mode 0644, sha256 aa"},
		{"file", "/lib/firmware/gsp_new.bin", "", "7 bytes, mode 0644, sha256 dd"},
		{"file", "/lib/firmware/gsp_tu10x.bin", "20 bytes, mode 0644, sha256 cc", ""},
	}, Diff(manifest(), other))
}

func TestOpenNothing(t *testing.T) {
	_, err := Open(t.Context(), filepath.Join(t.TempDir(), "absent"))
	require.ErrorContains(t, err, "no such file")
	_, err = Open(t.Context(), "inspect_test.go")
	var wrong *images.DirError
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, "want a netboot directory or a disk, ISO, UKI or OCI image")
	_, err = Open(t.Context(), t.TempDir())
	assert.ErrorContains(t, err, "not a netboot directory")
}
