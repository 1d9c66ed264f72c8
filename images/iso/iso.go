// Package iso makes and reads an image for the virtual drive of a BMC (IPMI,
// Redfish), which boots as a CD by legacy BIOS and by UEFI, and as a disk when it
// is written to a stick.
//
// It is the disk image of package disk with the directory of a CD (ISO 9660,
// ECMA-119) laid into the gap before its first partition. That directory leads to
// kernel and initramfs where they lie in the file system of the boot partition,
// and the CD's boot catalog (El Torito) leads UEFI to that partition: nothing is
// there twice, and every way to boot reads the same bytes.
package iso

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/images"
	"mkp2pimg/images/disk"
)

// Name is the name of an ISO image in the directory of an image.
const Name = "mkp2pimg.iso"

// Packages are the Debian packages that the boot loader comes from, besides those
// of package disk.
var Packages = []string{"isolinux"}

// label is the volume's name.
const label = "MKP2PIMG"

// Names on the CD; those of directories are where isolinux looks for its menu.
const (
	loaderDir   = "ISOLINUX"
	payloadDir  = "MKP2PIMG"
	bootProgram = "ISOLINUX.BIN"
)

// loaderFiles are the files of the loader by their names on the CD, sorted; the
// menu is added to them.
var loaderFiles = []struct{ name, path string }{
	{bootProgram, "usr/lib/ISOLINUX/isolinux.bin"},
	{"ISOLINUX.CFG", ""},
	{"LDLINUX.C32", "usr/lib/syslinux/modules/bios/ldlinux.c32"},
	{"LIBUTIL.C32", "usr/lib/syslinux/modules/bios/libutil.c32"},
	{"MENU.C32", "usr/lib/syslinux/modules/bios/menu.c32"},
}

// Medium makes ISO images.
type Medium struct {
	Disk disk.Medium
}

// Name implements [images.Medium].
func (Medium) Name() string { return Name }

// Make implements [images.Medium].
func (m Medium) Make(ctx context.Context, path string, p *images.Payload) error {
	loader, err := m.loader(p.Manifest)
	if err != nil {
		return err
	}
	d := m.Disk
	d.CD = true
	if err := d.Make(ctx, path, p); err != nil {
		return err
	}
	v, err := describe(path)
	if err != nil {
		return err
	}
	v.loader, v.time = loader, time.Unix(p.Manifest.SourceDateEpoch, 0)
	area, err := v.area()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(area, areaStart)
	return errors.Join(err, f.Close())
}

// loader are the files of the boot loader, placed.
func (m Medium) loader(manifest *images.Manifest) ([]file, error) {
	var list []file
	for _, l := range loaderFiles {
		data := disk.Menu(manifest)
		if l.path != "" {
			var err error
			if data, err = os.ReadFile(filepath.Join("/", m.Disk.Loaders.Dir, l.path)); err != nil {
				return nil, err
			}
		}
		list = append(list, file{name: l.name, data: data})
	}
	return list, place(list)
}

// describe finds out where in a disk image the files of the CD are.
func describe(name string) (*volume, error) {
	d, err := disk.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	big, err := d.Big()
	if err != nil {
		return nil, err
	}
	v := &volume{label: label, sectors: uint32(d.Size() / sector), esp: uint32(d.BootPartition() / sector)}
	for _, e := range big {
		if e.Start%sector != 0 || e.Size > math.MaxUint32 {
			return nil, errors.New(e.Path + " is not where a CD can have it")
		}
		v.payload = append(v.payload, file{
			name: strings.ToUpper(path.Base(e.Path)), at: uint32(e.Start / sector), size: uint32(e.Size),
		})
	}
	slices.SortFunc(v.payload, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return v, nil
}

// OpenContents reads, verifies and describes the ISO image at a path. The error is
// [images.ErrOtherFormat] if it is none, or as of [disk.OpenContents].
func OpenContents(ctx context.Context, name string) (*images.Contents, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	id := make([]byte, 6)
	if _, err := f.ReadAt(id, primaryAt*sector); err != nil || string(id) != "\x01CD001" {
		return nil, images.ErrOtherFormat
	}
	area := make([]byte, areaSize)
	if _, err := f.ReadAt(area, areaStart); err != nil || !bytes.HasPrefix(area[digestAt:], areaDigest(area)) {
		return nil, &images.DamagedError{Path: name, Err: errors.New("the checksum of its CD directory is wrong")}
	}
	c, err := disk.OpenContents(ctx, name)
	if err != nil {
		return nil, err
	}
	c.Format = "iso"
	return c, nil
}
