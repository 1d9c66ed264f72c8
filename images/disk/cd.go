package disk

import (
	"errors"
	"fmt"
	"strings"

	"mkp2pimg/images"
)

// CDSector is the size in bytes of a sector of a CD.
const CDSector = 2048

// Extent is where in an image the bytes of a file lie, in one piece.
type Extent struct {
	Path        string // in the boot partition
	Start, Size int64  // bytes
}

// align makes the next file begin at a sector of a CD: what is free before that
// goes to a file of its own. The data of the file system begin at such a sector.
func (w *image) align(fs *fileSystem) error {
	if !w.cd {
		return nil
	}
	v, err := openVolume(w.f, w.at.boot)
	if err != nil {
		return err
	}
	free := uint32(2)
	for free < v.clusters() && v.next(free) != 0 {
		free++
	}
	gap := -(v.start + v.data + int64(free-2)*v.cluster) & (CDSector - 1)
	if gap == 0 {
		return nil
	}
	return fs.writeFile(fmt.Sprintf("/loader/gap-%d", free), []byte(strings.Repeat(" ", int(gap))))
}

// BootPartition is the offset of the boot partition.
func (d *Disk) BootPartition() int64 { return d.at.boot.start }

// Big are the kernel and the initramfs. The error says which of them is in
// pieces.
func (d *Disk) Big() ([]Extent, error) {
	var list []Extent
	for _, e := range d.files {
		if e.path != kernelPath && e.path != initrdPath {
			continue
		}
		runs, err := d.boot.runs(e.first)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.path, err)
		}
		if len(runs) != 1 {
			return nil, fmt.Errorf("%s is in %d pieces", e.path, len(runs))
		}
		list = append(list, Extent{e.path, runs[0].start, e.size})
	}
	if len(list) != 2 {
		return nil, errors.New("there is no kernel or no initramfs")
	}
	return list, nil
}

// Menu is the boot menu for syslinux and its kind.
func Menu(m *images.Manifest) []byte { return syslinuxConf(m) }

// Size is that of the disk in bytes.
func (d *Disk) Size() int64 { return d.at.disk }
