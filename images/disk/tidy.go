package disk

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
)

// readWriterAt is what an image is written to.
type readWriterAt interface {
	io.ReaderAt
	io.WriterAt
}

// serialAt is the offset of the serial number, BS_VolID.
const serialAt = 67

// backup is the sector where, as go-diskfs has it, the backups begin: of the boot
// sector and the information sector behind it.
const backup = 6

// tidy completes a file system that go-diskfs and perhaps syslinux wrote: the
// links of directories to their parent, the count of free clusters, the times of
// all entries, the serial number, and the backups of the first two sectors.
func tidy(f readWriterAt, at region, serial uint32, t time.Time) error {
	v, err := openVolume(f, at)
	if err != nil {
		return err
	}
	stamp := dosTime(t)
	err = v.walk(func(e entry) error {
		if err := setTimes(f, e, stamp); err != nil || !e.dir {
			return err
		}
		return v.list(e.path, e.first, func(sub entry) error {
			var parent uint32
			switch sub.path {
			case e.path + "/.":
				return setTimes(f, sub, stamp)
			case e.path + "/..":
				if sub.first != v.root {
					parent = sub.first
				}
				if err := setCluster(f, sub, parent); err != nil {
					return err
				}
				return setTimes(f, sub, stamp)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return v.finish(f, serial)
}

// finish writes the first sectors: the serial number into the boot sector, the
// free clusters into the information sector, and both once more.
func (v *volume) finish(f readWriterAt, serial uint32) error {
	head := make([]byte, 2*sector)
	if _, err := f.ReadAt(head, v.start); err != nil {
		return err
	}
	boot, info := head[:sector], head[sector:]
	binary.LittleEndian.PutUint32(boot[serialAt:], serial)
	var free, last uint32
	for c := uint32(2); c < v.clusters(); c++ {
		if v.next(c) == 0 {
			free++
		} else {
			last = c
		}
	}
	binary.LittleEndian.PutUint32(info[488:], free) // FSI_Free_Count
	binary.LittleEndian.PutUint32(info[492:], last) // FSI_Nxt_Free: where to begin to look
	for _, at := range []int64{0, backup * sector} {
		if _, err := f.WriteAt(head, v.start+at); err != nil {
			return fmt.Errorf("first sectors: %w", err)
		}
	}
	return nil
}

// readSerial reads the serial number of a file system.
func readSerial(r io.ReaderAt, at region) (uint32, error) {
	var b [4]byte
	_, err := r.ReadAt(b[:], at.start+serialAt)
	return binary.LittleEndian.Uint32(b[:]), err
}

// setTimes sets the times that a directory entry has: creation, access, change.
// A label has only the last.
func setTimes(f readWriterAt, e entry, stamp [4]byte) error {
	times := make([]byte, 26-13)
	if !e.label {
		copy(times[14-13:], stamp[:])  // DIR_CrtTime, DIR_CrtDate
		copy(times[18-13:], stamp[2:]) // DIR_LstAccDate
	}
	var high [2]byte // the cluster's upper half lies between the dates
	if _, err := f.ReadAt(high[:], e.at+20); err != nil {
		return err
	}
	copy(times[20-13:], high[:])
	copy(times[22-13:], stamp[:]) // DIR_WrtTime, DIR_WrtDate
	_, err := f.WriteAt(times, e.at+13)
	return err
}

func setCluster(f readWriterAt, e entry, cluster uint32) error {
	var b [2]byte
	binary.LittleEndian.PutUint16(b[:], uint16(cluster>>16))
	if _, err := f.WriteAt(b[:], e.at+20); err != nil {
		return err
	}
	binary.LittleEndian.PutUint16(b[:], uint16(cluster))
	_, err := f.WriteAt(b[:], e.at+26)
	return err
}

// dosTime is a time in UTC as FAT has it: two bytes of time with steps of two
// seconds, two of date from 1980 to 2107.
func dosTime(t time.Time) (b [4]byte) {
	t = t.UTC()
	year := min(max(t.Year(), 1980), 2107) - 1980
	binary.LittleEndian.PutUint16(b[:], uint16(t.Hour()<<11|t.Minute()<<5|t.Second()/2))
	binary.LittleEndian.PutUint16(b[2:], uint16(year<<9|int(t.Month())<<5|t.Day()))
	return b
}
