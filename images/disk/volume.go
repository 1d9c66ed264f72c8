package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf16"
)

// volume is a FAT32 file system in a file, to be read with suspicion: every
// number in it may be wrong. Names of sections are those of Microsoft's FAT
// specification, version 1.03.
type volume struct {
	r       io.ReaderAt
	start   int64  // of the file system in r
	data    int64  // of cluster 2, from start
	cluster int64  // bytes of a cluster
	root    uint32 // first cluster of the root directory
	fat     []byte // the first FAT: an entry for each cluster, the reserved two included
}

const (
	maxFAT     = 64 * mib   // bytes, twice what a partition of maxReportSize takes
	slot       = 32         // bytes of a directory entry
	endOfChain = 0x0ffffff8 // and above
	fatMask    = 0x0fffffff

	attrDirectory = 0x10
	attrVolumeID  = 0x08
	attrLongName  = 0x0f
)

// openVolume reads the geometry and the first FAT of the file system in a region.
func openVolume(r io.ReaderAt, at region) (*volume, error) {
	var b [sector]byte
	if _, err := r.ReadAt(b[:], at.start); err != nil {
		return nil, fmt.Errorf("boot sector: %w", err)
	}
	var (
		perSector  = int64(binary.LittleEndian.Uint16(b[11:])) // BPB_BytsPerSec
		perCluster = int64(b[13])                              // BPB_SecPerClus
		reserved   = int64(binary.LittleEndian.Uint16(b[14:])) // BPB_RsvdSecCnt
		fats       = int64(b[16])                              // BPB_NumFATs
		total      = int64(binary.LittleEndian.Uint32(b[32:])) // BPB_TotSec32
		perFAT     = int64(binary.LittleEndian.Uint32(b[36:])) // BPB_FATSz32
		rootAt     = binary.LittleEndian.Uint32(b[44:])        // BPB_RootClus
	)
	first := reserved + fats*perFAT
	switch {
	case b[510] != 0x55 || b[511] != 0xaa || string(b[82:90]) != "FAT32   ":
		return nil, errors.New("there is no FAT32 file system")
	case perSector != sector || perCluster == 0 || perCluster&(perCluster-1) != 0 || reserved < 8 || fats != 2:
		return nil, fmt.Errorf("%d bytes per sector, %d sectors per cluster, %d reserved, %d FATs: not a file system of this program",
			perSector, perCluster, reserved, fats)
	case total*sector > at.size || first >= total:
		return nil, fmt.Errorf("%d sectors in a partition of %d, data from sector %d on", total, at.size/sector, first)
	}
	clusters := (total - first) / perCluster
	if (clusters+2)*4 > min(perFAT*sector, maxFAT) {
		return nil, fmt.Errorf("%d clusters, but a FAT of %d sectors", clusters, perFAT)
	}
	v := &volume{
		r: r, start: at.start, data: first * sector, cluster: perCluster * sector, root: rootAt,
		fat: make([]byte, (clusters+2)*4),
	}
	if _, err := r.ReadAt(v.fat, at.start+reserved*sector); err != nil {
		return nil, fmt.Errorf("FAT: %w", err)
	}
	return v, nil
}

// next is the FAT's entry of a cluster.
func (v *volume) next(cluster uint32) uint32 {
	return binary.LittleEndian.Uint32(v.fat[4*cluster:]) & fatMask
}

// clusters is one more than the last cluster's number.
func (v *volume) clusters() uint32 { return uint32(len(v.fat) / 4) }

// runs are the parts of the file, in order, of a chain of clusters; neighbours
// are one part.
func (v *volume) runs(first uint32) ([]region, error) {
	var list []region
	for c, n := first, uint32(0); c < endOfChain; c, n = v.next(c), n+1 {
		if c < 2 || c >= v.clusters() || n > v.clusters() {
			return nil, fmt.Errorf("the chain of cluster %d leads to %d after %d clusters", first, c, n)
		}
		at := v.start + v.data + int64(c-2)*v.cluster
		if last := len(list) - 1; last >= 0 && list[last].end() == at {
			list[last].size += v.cluster
		} else {
			list = append(list, region{at, v.cluster})
		}
	}
	return list, nil
}

// entry is a file or directory.
type entry struct {
	path  string // from the root, with a leading slash
	dir   bool
	label bool // the volume's name, which is an entry of the root
	first uint32
	size  int64
	at    int64 // of its 32 bytes in the volume's file
}

// open reads a file.
func (v *volume) open(e entry) (io.Reader, error) {
	if e.size == 0 {
		return strings.NewReader(""), nil
	}
	runs, err := v.runs(e.first)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.path, err)
	}
	var parts []io.Reader
	left := e.size
	for _, r := range runs {
		n := min(left, r.size)
		parts = append(parts, io.NewSectionReader(v.r, r.start, n))
		left -= n
	}
	if left > 0 {
		return nil, fmt.Errorf("%s: has %d bytes, but clusters for %d", e.path, e.size, e.size-left)
	}
	return io.MultiReader(parts...), nil
}

// maxEntries bounds a walk: a damaged file system may have directories in a ring.
const maxEntries = 10000

// walk calls fn for every entry but "." and "..", directories before what they
// hold.
func (v *volume) walk(fn func(entry) error) error {
	type dir struct {
		path  string
		first uint32
	}
	seen := 0
	for queue := []dir{{"/", v.root}}; len(queue) > 0; queue = queue[1:] {
		err := v.list(queue[0].path, queue[0].first, func(e entry) error {
			if seen++; seen > maxEntries {
				return fmt.Errorf("more than %d files", maxEntries)
			}
			base := path.Base(e.path)
			if base == "." || base == ".." {
				return nil
			}
			if e.dir {
				queue = append(queue, dir{e.path, e.first})
			}
			return fn(e)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", queue[0].path, err)
		}
	}
	return nil
}

// list calls fn for the entries of one directory, "." and ".." included.
func (v *volume) list(dir string, first uint32, fn func(entry) error) error {
	runs, err := v.runs(first)
	if err != nil {
		return err
	}
	var long []uint16
	for _, r := range runs {
		data := make([]byte, min(r.size, maxEntries*slot))
		if _, err := v.r.ReadAt(data, r.start); err != nil {
			return err
		}
		for i := 0; i+slot <= len(data); i += slot {
			b := data[i : i+slot]
			switch {
			case b[0] == 0: // nor is there anything after it
				return nil
			case b[0] == 0xe5: // removed
				long = nil
				continue
			case b[11] == attrLongName:
				long = append(longPart(b), long...) // the last part comes first
				if len(long) > 260 {
					return errors.New("a name of more than 255 characters")
				}
				continue
			}
			name := shortName(b)
			if long != nil {
				name = string(utf16.Decode(long))
			}
			long = nil
			if strings.ContainsAny(name, "/\x00") || name == "" {
				return fmt.Errorf("%q is not a name", name)
			}
			err := fn(entry{
				path: strings.TrimSuffix(dir, "/") + "/" + name, dir: b[11]&attrDirectory != 0, label: b[11]&attrVolumeID != 0,
				first: uint32(binary.LittleEndian.Uint16(b[20:]))<<16 | uint32(binary.LittleEndian.Uint16(b[26:])),
				size:  int64(binary.LittleEndian.Uint32(b[28:])), at: r.start + int64(i),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// longPart is up to 13 characters of a long name, from one of its entries.
func longPart(b []byte) []uint16 {
	part := make([]uint16, 0, 13)
	for _, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
		c := binary.LittleEndian.Uint16(b[at:])
		if c == 0 {
			break
		}
		part = append(part, c)
	}
	return part
}

// shortName is the name of an entry without a long one. Bits 3 and 4 of byte 12
// say that name and extension are in lower case, as Windows NT and Linux have it.
func shortName(b []byte) string {
	name, ext := strings.TrimRight(string(b[:8]), " "), strings.TrimRight(string(b[8:11]), " ")
	if b[12]&0x08 != 0 {
		name = strings.ToLower(name)
	}
	if b[12]&0x10 != 0 {
		ext = strings.ToLower(ext)
	}
	if ext != "" {
		name += "." + ext
	}
	return name
}
