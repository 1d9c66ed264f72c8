package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/lock"
)

func TestManifestNamesOrigins(t *testing.T) {
	in := &inputs{lock: &lock.Lock{
		Archives: []lock.Archive{{Suite: "bookworm", Mirror: "https://deb.debian.org/debian"}},
		Inputs: []lock.Input{
			{Role: lock.Kernel, Name: "linux-image", Suite: "bookworm", Path: "pool/linux.deb"},
			{Role: lock.Userspace, Name: "NVIDIA-Linux-x86_64", Suite: lock.Local, Path: "driver.run"},
			{Role: lock.BootLoader, Name: "syslinux", Suite: "bookworm", Path: "pool/syslinux.deb"},
			{Role: lock.BootLoader, Name: "mtools", Suite: "bookworm", Path: "pool/mtools.deb"},
			{Role: lock.Emulator, Name: "qemu", Suite: "bookworm", Path: "pool/qemu.deb"},
		},
	}}
	list, err := in.manifest((&Options{Formats: []string{FormatNetboot}}).roles())
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "https://deb.debian.org/debian/pool/linux.deb", list[0].Origin)
	assert.Equal(t, "driver.run", list[1].Origin, "a local file has no address")

	list, err = in.manifest((&Options{Formats: []string{FormatDisk, FormatNetboot}}).roles())
	require.NoError(t, err)
	require.Len(t, list, 4, "boot loaders too")
	assert.True(t, list[2].Shipped)
	assert.False(t, list[3].Shipped, "mtools only helps")
}

func TestFormats(t *testing.T) {
	o := &Options{Toolchain: ToolchainSandbox, Edits: "auto", Formats: []string{"netboot", "floppy"}}
	require.ErrorContains(t, o.checkImage(), `format "floppy": want one of [netboot split disk iso uki oci pxe]`)
	assert.Empty(t, (&Options{}).media())
	assert.Equal(t, []string{FormatDisk}, (&Options{Formats: []string{"disk", "netboot", "disk"}}).media())

	old := &lock.Lock{}
	for _, role := range buildRoles {
		old.Inputs = append(old.Inputs, lock.Input{Role: role})
	}
	require.NoError(t, complete(old, "l.lock", (&Options{}).roles()))
	require.ErrorContains(t, complete(old, "l.lock", (&Options{Formats: []string{"disk"}}).roles()), "no input with role boot-loader")
}
