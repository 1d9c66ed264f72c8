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
			{Role: lock.Emulator, Name: "qemu", Suite: "bookworm", Path: "pool/qemu.deb"},
		},
	}}
	list, err := in.manifest()
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, "https://deb.debian.org/debian/pool/linux.deb", list[0].Origin)
	assert.Equal(t, "driver.run", list[1].Origin, "a local file has no address")
}
