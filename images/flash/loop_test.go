package flash

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mkp2pimg/images/disk"
)

// loop makes a file of the source's size a loop device.
func loop(t *testing.T, file string, flags uint32) *Device {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("loop devices need root")
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no loop devices: %v", err)
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	require.NoError(t, err)
	dev, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	back, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	require.NoError(t, back.Truncate(source{}.Size()))
	config := unix.LoopConfig{Fd: uint32(back.Fd()), Info: unix.LoopInfo64{Flags: flags}}
	require.NoError(t, unix.IoctlLoopConfigure(int(dev.Fd()), &config))
	require.NoError(t, back.Close())
	t.Cleanup(func() {
		_ = unix.IoctlSetInt(int(dev.Fd()), unix.LOOP_CLR_FD, 0)
		_ = dev.Close()
	})
	d, err := Find("/", dev.Name())
	require.NoError(t, err)
	return d
}

func TestLoopDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stick")
	d := loop(t, file, 0)
	assert.Equal(t, source{}.Size(), d.Size)
	require.ErrorContains(t, Check(d, false), "is not removable")
	require.NoError(t, Check(d, true))
	require.NoError(t, ToDevice(t.Context(), d, source{}, nil))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, []byte{1, 2, 0, 4, 5}, []byte{got[0], got[disk.Chunk], got[2*disk.Chunk], got[3*disk.Chunk], got[4*disk.Chunk]})
}

func TestExchangedLoopDevice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "stick")
	d := loop(t, file, 0)
	d.Sequence += "0"
	var refused *RefusedError
	require.ErrorAs(t, ToDevice(t.Context(), d, source{}, nil), &refused)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, source{}.Size()), got, "nothing is written")
}

func TestReadOnlyLoopDevice(t *testing.T) {
	d := loop(t, filepath.Join(t.TempDir(), "stick"), unix.LO_FLAGS_READ_ONLY)
	require.ErrorContains(t, Check(d, true), "read-only")
	require.ErrorIs(t, ToDevice(t.Context(), d, source{}, nil), unix.EPERM)
}

// TestLoopDeviceFails writes to a device whose medium gives out in the middle: the
// file behind it is in a file system that is full.
func TestLoopDeviceFails(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loop devices and mounts need root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	d := loop(t, filepath.Join(dir, "stick"), 0)
	err := ToDevice(t.Context(), d, source{}, nil)
	var failed *DeviceError
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "write it again")
	assert.Positive(t, failed.Offset)
}
