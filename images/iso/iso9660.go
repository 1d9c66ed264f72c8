package iso

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"mkp2pimg/images/disk"
)

// sector is the size of a logical sector and block.
const sector = disk.CDSector

// Places of the structures, in sectors. The first 16 are left to the system
// (ECMA-119, 6.2.1), which here are the partition table's. All ends before the
// boot partition, at 1 MiB.
const (
	primaryAt    = 16 + iota // ECMA-119, 8.4
	bootRecordAt             // El Torito, figure 7: must be sector 17
	terminatorAt
	catalogAt
	pathTableAt // little-endian; the big-endian one follows
	bigPathTableAt
	rootAt
	loaderDirAt
	payloadDirAt
	firstFileAt

	limitAt = 1 << 20 / sector
)

var (
	le = binary.LittleEndian
	be = binary.BigEndian
)

// both32 is a number in both byte orders (ECMA-119, 7.3.3).
func both32(b []byte, n uint32) []byte { return be.AppendUint32(le.AppendUint32(b, n), n) }

func both16(b []byte, n uint16) []byte { return be.AppendUint16(le.AppendUint16(b, n), n) }

// file is one of a directory.
type file struct {
	name   string // as ECMA-119 level 1 has it: 8.3, upper case
	at     uint32 // sector
	size   uint32 // bytes
	data   []byte // nil if they are in the image already
	folder bool
}

// directory is a directory of at most one sector.
type directory struct {
	name   string
	at     uint32
	parent uint32 // sector
	files  []file // sorted by name
}

// record is a directory record (ECMA-119, 9.1).
func record(name string, at, size uint32, folder bool, t time.Time) []byte {
	t = t.UTC()
	b := []byte{byte(33 + len(name) + (1 - len(name)%2)), 0}
	b = both32(both32(b, at), size)
	b = append(b, byte(t.Year()-1900), byte(t.Month()), byte(t.Day()), byte(t.Hour()), byte(t.Minute()), byte(t.Second()), 0)
	flags := byte(0)
	if folder {
		flags = 2
	}
	b = append(b, flags, 0, 0)
	b = both16(b, 1) // volume of the set
	b = append(b, byte(len(name)))
	b = append(b, name...)
	return append(b, make([]byte, 1-len(name)%2)...)
}

// bytes is the directory's sector.
func (d *directory) bytes(t time.Time) ([]byte, error) {
	b := record("\x00", d.at, sector, true, t)
	b = append(b, record("\x01", d.parent, sector, true, t)...)
	for _, f := range d.files {
		name := f.name
		if !f.folder {
			name += ";1"
		}
		b = append(b, record(name, f.at, f.size, f.folder, t)...)
	}
	if len(b) > sector {
		return nil, fmt.Errorf("directory %s has %d bytes", d.name, len(b))
	}
	return b, nil
}

// pathTable lists the directories (ECMA-119, 9.4), the root first.
func pathTable(order binary.AppendByteOrder, dirs []directory) []byte {
	var b []byte
	for _, d := range dirs {
		b = append(b, byte(len(d.name)), 0)
		b = order.AppendUint32(b, d.at)
		b = order.AppendUint16(b, 1) // all are in the root, which is in itself
		b = append(b, d.name...)
		b = append(b, make([]byte, len(d.name)%2)...)
	}
	return b
}

// primary is the primary volume descriptor.
func primary(label string, sectors uint32, table int, t time.Time) []byte {
	text := func(s string, n int) string { return s + strings.Repeat(" ", n-len(s)) }
	stamp := t.UTC().Format("20060102150405") + "00\x00"
	const never = "0000000000000000\x00"
	b := []byte("\x01CD001\x01\x00")
	b = append(b, text("", 32)+text(label, 32)...)
	b = append(b, make([]byte, 8)...)
	b = both32(b, sectors)
	b = append(b, make([]byte, 32)...)
	b = both16(both16(both16(b, 1), 1), sector) // set of one volume, its number, block size
	b = both32(b, uint32(table))
	b = le.AppendUint32(le.AppendUint32(b, pathTableAt), 0)
	b = be.AppendUint32(be.AppendUint32(b, bigPathTableAt), 0)
	b = append(b, record("\x00", rootAt, sector, true, t)...)
	b = append(b, text("", 4*128+3*37)...) // set, publisher, preparer, application; three names of files
	b = append(b, stamp+stamp+never+never...)
	return append(b, 1) // version of the file structure
}

// terminator ends the volume descriptors (ECMA-119, 8.3).
func terminator() []byte { return []byte("\xffCD001\x01") }

// bootRecord leads firmware to the catalog (El Torito 1.0, figure 7).
func bootRecord() []byte {
	b := make([]byte, 71)
	copy(b, "\x00CD001\x01EL TORITO SPECIFICATION")
	return le.AppendUint32(b, catalogAt)
}

// Platforms of the boot catalog; UEFI specification 2.10, 13.3.2.1.
const (
	platformBIOS = 0
	platformUEFI = 0xef
)

// catalog has an entry for BIOS, which loads the first 2048 bytes of isolinux, and
// one for UEFI, whose file system reaches from a sector to the end of the volume:
// a length of 0 says so, since 16 bits are too few for it.
func catalog(isolinux, esp uint32) []byte {
	validation := make([]byte, 32)
	validation[0], validation[1] = 1, platformBIOS
	copy(validation[4:28], "mkp2pimg")
	validation[30], validation[31] = 0x55, 0xaa
	var sum uint16
	for i := 0; i < len(validation); i += 2 {
		sum += le.Uint16(validation[i:])
	}
	le.PutUint16(validation[28:], -sum) // all words sum up to 0

	entry := func(sectors uint16, at uint32) []byte {
		b := make([]byte, 32)
		b[0] = 0x88 // bootable, without emulation
		le.PutUint16(b[6:], sectors)
		le.PutUint32(b[8:], at)
		return b
	}
	header := make([]byte, 32)
	header[0], header[1] = 0x91, platformUEFI // the last header
	le.PutUint16(header[2:], 1)               // entries
	return append(append(append(validation, entry(4, isolinux)...), header...), entry(0, esp)...)
}

// bootInfo writes into isolinux where on the CD it is (mkisofs(8), "EL TORITO BOOT
// INFORMATION TABLE").
func bootInfo(program []byte, at uint32) error {
	const table, summed = 8, 64
	if len(program) < summed {
		return errors.New("isolinux.bin is too short")
	}
	var sum uint32
	padded := append(program[summed:len(program):len(program)], make([]byte, -len(program)&3)...)
	for i := 0; i < len(padded); i += 4 {
		sum += le.Uint32(padded[i:])
	}
	b := le.AppendUint32(nil, primaryAt)
	b = le.AppendUint32(le.AppendUint32(b, at), uint32(len(program)))
	b = le.AppendUint32(b, sum)
	copy(program[table:summed], append(b, make([]byte, 40)...))
	return nil
}

// volume is what is written over the first mebibyte of a disk image.
type volume struct {
	label   string
	sectors uint32    // of the whole image
	esp     uint32    // sector of the boot partition
	time    time.Time // of all files
	loader  []file    // the directory ISOLINUX, placed; isolinux.bin is among them
	payload []file    // the directory MKP2PIMG
}

// place gives the loader's files their sectors.
func place(loader []file) error {
	at := uint32(firstFileAt)
	for i := range loader {
		f := &loader[i]
		f.at, f.size = at, uint32(len(f.data))
		at += (f.size + sector - 1) / sector
		if f.name == bootProgram {
			if err := bootInfo(f.data, f.at); err != nil {
				return err
			}
		}
	}
	if at > limitAt {
		return fmt.Errorf("the boot loader ends at sector %d of %d", at, limitAt)
	}
	return nil
}

// areaStart is where in an image the structures begin; they reach to its first
// partition.
const (
	areaStart = primaryAt * sector
	areaSize  = limitAt*sector - areaStart
)

// area is what lies there.
func (v *volume) area() ([]byte, error) {
	dirs := []directory{
		{"\x00", rootAt, rootAt, []file{
			{name: loaderDir, at: loaderDirAt, size: sector, folder: true},
			{name: payloadDir, at: payloadDirAt, size: sector, folder: true},
		}},
		{loaderDir, loaderDirAt, rootAt, v.loader},
		{payloadDir, payloadDirAt, rootAt, v.payload},
	}
	area := make([]byte, areaSize)
	put := func(at uint32, data []byte) { copy(area[(at-primaryAt)*sector:], data) }
	for _, d := range dirs {
		data, err := d.bytes(v.time)
		if err != nil {
			return nil, err
		}
		put(d.at, data)
	}
	for _, f := range v.loader {
		put(f.at, f.data)
		if f.name == bootProgram {
			put(catalogAt, catalog(f.at, v.esp))
		}
	}
	little := pathTable(le, dirs)
	put(pathTableAt, little)
	put(bigPathTableAt, pathTable(be, dirs))
	put(primaryAt, primary(v.label, v.sectors, len(little), v.time))
	put(bootRecordAt, bootRecord())
	put(terminatorAt, terminator())
	copy(area[digestAt:], areaDigest(area))
	return area, nil
}

// digestAt is the place in the primary volume descriptor that is left to
// applications (ECMA-119, 8.4.32). Here it holds a digest of all the structures.
const digestAt = 883

// areaDigest is the digest of an area, without that which it holds.
func areaDigest(area []byte) []byte {
	h := sha256.New()
	h.Write(area[:digestAt])
	h.Write(area[digestAt+len("sha256 ")+2*sha256.Size:])
	return fmt.Appendf(nil, "sha256 %x", h.Sum(nil))
}
