package iso

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	backend "github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
	"mkp2pimg/images/imagestest"
	"mkp2pimg/internal/sandbox"
)

// medium makes images whose boot loaders are not Debian's.
func medium(t testing.TB) Medium {
	t.Helper()
	root := t.TempDir()
	loaders := []string{"usr/lib/systemd/boot/efi/systemd-bootx64.efi", "usr/lib/syslinux/mbr/gptmbr.bin"}
	for _, l := range loaderFiles {
		if l.path != "" {
			loaders = append(loaders, l.path)
		}
	}
	for _, name := range loaders {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		data := append([]byte("loader "+filepath.Base(name)), make([]byte, 100)...)
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	return Medium{disk.Medium{
		Loaders: sandbox.Root{Dir: root},
		Install: func(context.Context, string, int64) error { return nil },
	}}
}

// TestMake has another implementation read the CD.
func TestMake(t *testing.T) {
	path := imagestest.Write(t, medium(t))
	image, err := os.Open(path)
	require.NoError(t, err)
	defer image.Close()
	st, err := image.Stat()
	require.NoError(t, err)
	fs, err := iso9660.Read(backend.New(image, true), st.Size(), 0, sector)
	require.NoError(t, err)
	assert.Equal(t, label, strings.TrimSpace(fs.Label()))
	read := func(name string) []byte {
		f, err := fs.OpenFile(name, os.O_RDONLY)
		require.NoError(t, err, name)
		data, err := io.ReadAll(f)
		require.NoError(t, err, name)
		return data
	}
	dir := filepath.Dir(path)
	for on, host := range map[string]string{"/MKP2PIMG/VMLINUZ": images.KernelName, "/MKP2PIMG/INITRD.ZST": images.InitrdName} {
		want, err := os.ReadFile(filepath.Join(dir, host))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, read(on)), on)
	}
	assert.Contains(t, string(read("/ISOLINUX/ISOLINUX.CFG")), "LINUX /mkp2pimg/vmlinuz")
	assert.Contains(t, string(read("/ISOLINUX/MENU.C32")), "loader menu.c32")
	program := read("/ISOLINUX/ISOLINUX.BIN")
	assert.Equal(t, uint32(16), binary.LittleEndian.Uint32(program[8:]))

	c, err := OpenContents(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "iso", c.Format)
	_, err = disk.OpenContents(t.Context(), path)
	require.NoError(t, err, "it is a disk image as well")
	checkCatalog(t, path)
}

// checkCatalog reads the boot catalog as firmware does.
func checkCatalog(t *testing.T, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	at := binary.LittleEndian.Uint32(data[17*sector+0x47:])
	entries := data[at*sector:][:4*32]
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += binary.LittleEndian.Uint16(entries[i:])
	}
	assert.Zero(t, sum)
	assert.Equal(t, []byte{0x55, 0xaa}, entries[30:32])
	bios, uefi := entries[32:64], entries[96:128]
	assert.Equal(t, byte(0x88), bios[0])
	program := binary.LittleEndian.Uint32(bios[8:]) * sector
	assert.Equal(t, "loader i", string(data[program:program+8]))
	assert.Equal(t, byte(0xef), entries[65])
	esp := int(binary.LittleEndian.Uint32(uefi[8:])) * sector
	assert.Equal(t, "FAT32   ", string(data[esp+82:esp+90]))
	d, err := disk.Open(path)
	require.NoError(t, err)
	defer d.Close()
	assert.Equal(t, int64(esp), d.BootPartition())
}

func TestReproducible(t *testing.T) { imagestest.Reproducible(t, medium(t)) }

func TestDamaged(t *testing.T) {
	path := imagestest.Write(t, medium(t))
	for _, at := range []int64{16*sector + 100, 16*sector + digestAt + 10, rootAt*sector + 3, firstFileAt*sector + 70} {
		imagestest.Flip(t, path, at)
		_, err := OpenContents(t.Context(), path)
		var damaged *images.DamagedError
		require.ErrorAs(t, err, &damaged, "byte %d", at)
		imagestest.Flip(t, path, at)
	}
	require.NoError(t, os.Truncate(path, 3<<20))
	_, err := OpenContents(t.Context(), path)
	require.ErrorContains(t, err, "cut short")
	_, err = OpenContents(t.Context(), filepath.Join(filepath.Dir(path), images.KernelName))
	require.ErrorIs(t, err, images.ErrOtherFormat)
}

func TestTooLarge(t *testing.T) {
	m := medium(t)
	program := filepath.Join(m.Disk.Loaders.Dir, loaderFiles[0].path)
	require.NoError(t, os.WriteFile(program, make([]byte, 1<<20), 0o600))
	dir := filepath.Join(t.TempDir(), "out")
	_, err := imagestest.Netboot(t, m).Write(t.Context(), dir)
	require.ErrorContains(t, err, "the boot loader ends at sector")
	require.NoError(t, os.WriteFile(program, make([]byte, 10), 0o600))
	_, err = imagestest.Netboot(t, m).Write(t.Context(), dir)
	require.ErrorContains(t, err, "too short")
	require.NoError(t, os.Remove(program))
	_, err = imagestest.Netboot(t, m).Write(t.Context(), dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	assert.NoDirExists(t, dir)
}
