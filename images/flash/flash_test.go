package flash

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mkp2pimg/images/disk"
)

// machine is a root directory with a system disk, one with LVM, a USB stick, a
// mounted card and an empty reader.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	numbered := func(dir, number string) {
		write(dir+"/dev", number)
		require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/dev/block"), 0o755))
		require.NoError(t, os.Symlink("../../../"+dir, filepath.Join(root, "sys/dev/block", number)))
	}
	device := func(name, place, sectors, number, removable string) {
		dir := "sys/devices/" + place + "/block/" + name
		write(dir+"/size", sectors)
		numbered(dir, number)
		write(dir+"/removable", removable)
		write(dir+"/ro", "0")
		write(dir+"/queue/logical_block_size", "512")
		require.NoError(t, os.MkdirAll(filepath.Join(root, "sys/block"), 0o755))
		require.NoError(t, os.Symlink("../"+dir[len("sys/"):], filepath.Join(root, "sys/block", name)))
	}
	part := func(name, part, number string) {
		write("sys/block/"+name+"/"+part+"/partition", "1")
		numbered("sys/block/"+name+"/"+part, number)
	}
	device("nvme0n1", "pci0000:00/0000:00:01.0/nvme/nvme0", "2000000", "259:0", "0")
	part("nvme0n1", "nvme0n1p1", "259:1")
	part("nvme0n1", "nvme0n1p2", "259:2")
	device("sda", "pci0000:00/ata1/host0", "2000000", "8:0", "0")
	part("sda", "sda1", "8:1")
	write("sys/block/sda/sda1/holders/dm-0", "")
	device("sdb", "pci0000:00/0000:00:14.0/usb2/2-1/host6", "60062500", "8:16", "1")
	part("sdb", "sdb1", "8:17")
	write("sys/block/sdb/diskseq", "9")
	write("sys/block/sdb/device/vendor", "SanDisk ")
	write("sys/block/sdb/device/model", "Ultra Fit  ")
	device("sdc", "pci0000:00/0000:00:14.0/usb2/2-2/host7", "0", "8:32", "1")
	device("mmcblk0", "pci0000:00/mmc0", "60062500", "179:0", "0")
	part("mmcblk0", "mmcblk0p1", "179:1")
	write("sys/block/mmcblk0/ro", "1")
	write("proc/self/mountinfo", `22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw
23 22 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw
24 22 0:30 / /home\040of\040ann rw - btrfs /dev/mmcblk0p1 rw
damaged line`)
	write("proc/swaps", "Filename Type Size Used Priority\n/dev/sda partition 1 0 -2")
	return root
}

func TestDevices(t *testing.T) {
	list, err := Devices(machine(t))
	require.NoError(t, err)
	got := map[string]*Device{}
	for _, d := range list {
		got[d.Name] = d
	}
	assert.Len(t, got, 4, "without the empty reader")
	stick := got["sdb"]
	assert.Equal(t, &Device{Name: "sdb", Size: 60062500 * 512, Model: "SanDisk Ultra Fit", Removable: true, SectorSize: 512, Partitions: []string{"sdb1"}, Sequence: "9"}, stick)
	require.NoError(t, Check(stick, false))

	for name, want := range map[string][]string{
		"nvme0n1": {"nvme0n1p1 is mounted on /boot/efi", "nvme0n1p2 is mounted on /", "nvme0n1 is not removable: it may be a disk of this machine"},
		"sda":     {"sda is swap space", "sda1 is part of dm-0", "sda is not removable: it may be a disk of this machine"},
		"mmcblk0": {"mmcblk0p1 is mounted on /home of ann"},
	} {
		assert.Equal(t, want, got[name].Objections(), name)
		var refused *RefusedError
		require.ErrorAs(t, Check(got[name], false), &refused)
	}
	require.NoError(t, Check(got["sda"], true))
	require.ErrorContains(t, Check(got["mmcblk0"], true), "read-only", "no force helps")
	large := *stick
	large.SectorSize = 4096
	require.ErrorContains(t, Check(&large, true), "its sectors have 4096 bytes")
}

func TestFind(t *testing.T) {
	root := machine(t)
	file := filepath.Join(t.TempDir(), "sdb")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{file: "is no block device", "/dev/null": "is no block device", file + "x": "no such file"} {
		_, err := Find(root, path)
		assert.ErrorContains(t, err, want)
	}

	// Each file has the name of another device.
	node := func(name string, major, minor uint32) string {
		path := filepath.Join(t.TempDir(), name)
		if err := unix.Mknod(path, unix.S_IFBLK|0o600, int(unix.Mkdev(major, minor))); err != nil {
			t.Skipf("device nodes need root: %v", err)
		}
		return path
	}
	d, err := Find(root, node("sda", 8, 16))
	require.NoError(t, err)
	assert.Equal(t, "/dev/sdb", d.Path())
	for path, want := range map[string]string{
		node("sda", 8, 17):  "is a partition: name the whole device, /dev/sdb",
		node("sda", 8, 32):  "has no medium",
		node("sda", 99, 99): "is no device that the kernel lists",
	} {
		_, err := Find(root, path)
		assert.ErrorContains(t, err, want)
	}
}

// source is five chunks of a disk, the last one short; the third is not written.
type source struct{}

func (source) Size() int64     { return 4*disk.Chunk + 512 }
func (source) Chunks() []int64 { return []int64{0, disk.Chunk, 3 * disk.Chunk, 4 * disk.Chunk} }

func (source) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		p[i] = byte(off/disk.Chunk + 1)
	}
	return len(p), nil
}

// target is a device in memory that remembers and fails.
type target struct {
	data   []byte
	order  []int64
	failAt int64 // offset of the write that fails, -1: none
	fail   error
	lose   int64 // offset of a write that does not last, -1: none
}

func newTarget() *target {
	return &target{data: make([]byte, source{}.Size()), failAt: -1, lose: -1}
}

func (d *target) WriteAt(p []byte, off int64) (int, error) {
	d.order = append(d.order, off)
	if off == d.failAt {
		return 0, &os.PathError{Op: "write", Path: "/dev/sdb", Err: d.fail}
	}
	if off == d.lose {
		return len(p), nil
	}
	return copy(d.data[off:], p), nil
}

func (d *target) ReadAt(p []byte, off int64) (int, error) { return copy(p, d.data[off:]), nil }
func (d *target) Sync() error                             { return nil }

func TestWrite(t *testing.T) {
	d := newTarget()
	for i := range d.data {
		d.data[i] = 0xee
	}
	var last [2]int64
	progress := func(verify bool, done, total int64) {
		assert.Equal(t, int64(3*disk.Chunk+512), total)
		if verify {
			last[1] = done
		} else {
			last[0] = done
		}
	}
	require.NoError(t, Write(t.Context(), d, source{}, make([]byte, 2*disk.Chunk), progress))
	assert.Equal(t, []int64{0, disk.Chunk, 3 * disk.Chunk, 4 * disk.Chunk, 0}, d.order)
	assert.Equal(t, [2]int64{3*disk.Chunk + 512, 3*disk.Chunk + 512}, last)
	assert.Equal(t, []byte{1, 2, 0xee, 4, 5}, []byte{d.data[0], d.data[disk.Chunk], d.data[2*disk.Chunk], d.data[3*disk.Chunk], d.data[4*disk.Chunk+511]})
}

func TestWriteFails(t *testing.T) {
	buf := make([]byte, 2*disk.Chunk)
	d := newTarget()
	d.failAt, d.fail = 3*disk.Chunk, unix.ENODEV
	err := Write(t.Context(), d, source{}, buf, nil)
	require.ErrorIs(t, err, unix.ENODEV)
	require.ErrorContains(t, err, "was it unplugged")
	assert.Zero(t, d.data[0], "a stick that is not whole must not boot")

	d = newTarget()
	d.lose = 3 * disk.Chunk
	var wrong *VerifyError
	require.ErrorAs(t, Write(t.Context(), d, source{}, buf, nil), &wrong)
	assert.Equal(t, int64(3*disk.Chunk), wrong.Offset)
	assert.Zero(t, d.data[0], "a stick that is not right must not boot")

	ctx, cancel := context.WithCancel(t.Context())
	d = newTarget()
	err = Write(ctx, d, source{}, buf, func(bool, int64, int64) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, d.data[0])

	d = newTarget()
	err = Write(t.Context(), d, broken{}, buf, nil)
	require.ErrorContains(t, err, "read the image: unexpected EOF")
}

type broken struct{ source }

func (broken) ReadAt([]byte, int64) (int, error) { return 0, io.ErrUnexpectedEOF }
