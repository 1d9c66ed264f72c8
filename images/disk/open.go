package disk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/partition/gpt"

	"mkp2pimg/images"
)

// Disk is a disk image, or a disk that one was written to.
type Disk struct {
	Manifest *images.Manifest

	f     *os.File
	at    partitions
	table *gpt.Table
	boot  *volume
	files []entry           // of the boot partition, without directories and label
	docs  map[string][]byte // by name
}

// Open reads a disk image or a disk. The error is [images.ErrOtherFormat] if
// there is no partition table, a *[images.DamagedError], or that of reading.
func Open(name string) (*Disk, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	d := &Disk{f: f}
	err = d.read()
	var failed *os.PathError
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, images.ErrOtherFormat):
		err = fmt.Errorf("%s is no disk image: %w", name, err)
	case errors.As(err, &failed):
	default:
		err = &images.DamagedError{Path: name, Err: err}
	}
	return nil, errors.Join(err, f.Close())
}

// Close closes the image's file.
func (d *Disk) Close() error { return d.f.Close() }

func (d *Disk) read() (err error) {
	if d.at.disk, err = d.f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	if err := checkTable(d.f, d.at.disk); err != nil {
		return err
	}
	if d.table, err = gpt.Read(file.New(d.f, true), sector, sector); err != nil {
		return fmt.Errorf("partition table: %w", err)
	}
	for _, p := range d.table.Partitions {
		r := region{int64(p.Start) * sector, int64(p.End-p.Start+1) * sector}
		if p.End < p.Start || p.End >= uint64(d.at.disk/sector) {
			return fmt.Errorf("partition %d is from sector %d to %d, the disk has %d", p.Index, p.Start, p.End, d.at.disk/sector)
		}
		switch p.Name {
		case bootName:
			d.at.boot = r
		case reportName:
			d.at.report = r
		}
	}
	switch {
	case d.at.boot.size == 0 || d.at.report.size == 0:
		return fmt.Errorf("there are no partitions %s and %s: not a disk of %s", bootName, reportName, images.ProductName)
	case d.at.boot.start != mib || d.at.boot.size%mib != 0 || d.at.report.start != d.at.boot.end():
		return fmt.Errorf("partitions %s and %s are not where this program has them", bootName, reportName)
	}
	if d.boot, err = openVolume(d.f, d.at.boot); err != nil {
		return fmt.Errorf("boot partition: %w", err)
	}
	if err := d.readFiles(); err != nil {
		return fmt.Errorf("boot partition: %w", err)
	}
	return nil
}

// checkTable checks header and entries of the partition table (UEFI specification
// 2.10, 5.3.2) before they are given to go-diskfs, which believes the number of
// entries, and takes the backup without a word where the first copy is damaged.
func checkTable(r io.ReaderAt, size int64) error {
	var h [sector]byte
	if _, err := r.ReadAt(h[:], sector); err != nil || string(h[:8]) != "EFI PART" {
		return images.ErrOtherFormat
	}
	const header, entries, entrySize = 92, 128, 128
	le := binary.LittleEndian
	if le.Uint32(h[12:]) != header || le.Uint32(h[80:]) != entries || le.Uint32(h[84:]) != entrySize || le.Uint64(h[72:]) != 2 {
		return errors.New("partition table: not of the form that this program writes")
	}
	// It may be for a smaller disk, where another program copied the image to a stick.
	if last := int64(le.Uint64(h[32:])+1) * sector; last > size {
		return fmt.Errorf("it has %d bytes, its partition table is for a disk of %d: a copy may have been cut short", size, last)
	}
	want := le.Uint32(h[16:])
	clear(h[16:20])
	table := make([]byte, entries*entrySize)
	if _, err := r.ReadAt(table, 2*sector); err != nil {
		return fmt.Errorf("partition table: %w", err)
	}
	if crc32.ChecksumIEEE(h[:header]) != want || crc32.ChecksumIEEE(table) != le.Uint32(h[88:]) {
		return errors.New("partition table: its checksum is wrong")
	}
	return nil
}

// maxDocument bounds the files that are read as a whole.
const maxDocument = 64 * mib

const documentDir = "/mkp2pimg"

func (d *Disk) readFiles() error {
	d.docs = map[string][]byte{}
	err := d.boot.walk(func(e entry) error {
		if e.dir || e.label {
			return nil
		}
		d.files = append(d.files, e)
		if path.Dir(e.path) != documentDir || e.path == kernelPath || e.path == initrdPath {
			return nil
		}
		r, err := d.boot.open(e)
		if err != nil {
			return err
		}
		if e.size > maxDocument {
			return fmt.Errorf("%s has %d bytes", e.path, e.size)
		}
		data, err := io.ReadAll(r)
		d.docs[path.Base(e.path)] = data
		return err
	})
	if err != nil {
		return err
	}
	text, ok := d.docs[images.ManifestName]
	if !ok {
		return fmt.Errorf("there is no %s/%s", documentDir, images.ManifestName)
	}
	d.Manifest, err = images.ReadManifest(bytes.NewReader(text))
	return err
}

// Verify compares the files of the boot partition with their checksums.
func (d *Disk) Verify(ctx context.Context) error {
	err := images.CheckFiles(ctx, d.docs[images.SumsName], func(name string) (io.Reader, error) {
		i := slices.IndexFunc(d.files, func(e entry) bool { return e.path == path.Join(documentDir, name) })
		if i < 0 {
			return nil, errors.New("it is missing")
		}
		return d.boot.open(d.files[i])
	})
	if err != nil && ctx.Err() == nil {
		return &images.DamagedError{Path: d.f.Name(), Err: err}
	}
	return err
}

// Contents describes the disk.
func (d *Disk) Contents() *images.Contents {
	c := &images.Contents{Format: "disk", Size: d.at.disk, Manifest: d.Manifest, Documents: d.docs}
	var loaders, documents int64
	for _, e := range d.files {
		switch {
		case e.path == kernelPath || e.path == initrdPath:
			c.Parts = append(c.Parts, images.Part{Name: path.Base(e.path), Size: e.size})
		case strings.HasPrefix(e.path, documentDir):
			documents += e.size
		default:
			loaders += e.size
		}
	}
	used := loaders + documents
	for _, p := range c.Parts {
		used += p.Size
	}
	c.Parts = append(c.Parts,
		images.Part{Name: "manifest and other documents", Size: documents},
		images.Part{Name: "boot loaders and menus", Size: loaders},
		images.Part{Name: "file system and room of the boot partition", Size: d.at.boot.size - used},
		images.Part{Name: "report partition", Size: d.at.report.size},
		images.Part{Name: "partition tables and gaps", Size: d.at.disk - d.at.boot.size - d.at.report.size})
	return c
}

// OpenContents reads, verifies and describes the disk image at a path.
func OpenContents(ctx context.Context, name string) (*images.Contents, error) {
	d, err := Open(name)
	if err != nil {
		return nil, err
	}
	if err := d.Verify(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d.Contents(), d.Close()
}
