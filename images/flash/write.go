package flash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"mkp2pimg/images/disk"
)

// Target is what is written to: an open device.
type Target interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
}

// Source is what is written: a [disk.Grown].
type Source interface {
	io.ReaderAt
	Size() int64
	Chunks() []int64 // offsets, ascending, the first is 0
}

// Progress is told how many of all bytes are written, or compared.
type Progress func(verify bool, done, total int64)

// VerifyError says that a device does not hold what was written to it.
type VerifyError struct{ Offset int64 }

func (e *VerifyError) Error() string {
	return fmt.Sprintf("what was read back differs from what was written, in the mebibyte at offset %d: "+
		"the device is worn out or smaller than it says; use another", e.Offset)
}

// DeviceError says that a device failed while it was written or read.
type DeviceError struct {
	Op     string // write, read
	Offset int64
	Err    error
}

func (e *DeviceError) Error() string {
	hint := ""
	if errors.Is(e.Err, unix.EIO) || errors.Is(e.Err, unix.ENODEV) || errors.Is(e.Err, unix.ENXIO) {
		hint = ": was it unplugged, or is it broken?"
	}
	return fmt.Sprintf("%s at offset %d: %v%s; it does not boot now, write it again", e.Op, e.Offset, e.Err, hint)
}

func (e *DeviceError) Unwrap() error { return e.Err }

// Write writes the chunks of src, reads them back and compares. The first one,
// with boot code and partition table, is cleared first and written when all others
// are there and right, so that what is not whole does not boot. buf has room for two chunks and, where the
// target asks for it, is aligned.
func Write(ctx context.Context, dst Target, src Source, buf []byte, progress Progress) error {
	chunks := src.Chunks()
	w := &writer{ctx: ctx, dst: dst, src: src, want: buf[:disk.Chunk], have: buf[disk.Chunk : 2*disk.Chunk], progress: progress}
	for _, at := range chunks {
		w.total += w.length(at)
	}
	clear(w.want)
	if err := w.put(w.want[:w.length(0)], 0); err != nil {
		return err
	}
	w.step(false, w.length(0))
	if err := w.each(w.copy, chunks[1:]); err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	w.done = 0
	if err := w.each(w.compare, chunks[1:]); err != nil {
		return err
	}
	p, err := w.load(0)
	if err != nil {
		return err
	}
	if err := w.put(p, 0); err != nil {
		return err
	}
	if err := w.sync(); err != nil {
		return err
	}
	return w.compare(0)
}

type writer struct {
	ctx         context.Context
	dst         Target
	src         Source
	want, have  []byte
	progress    Progress
	done, total int64
}

// length is that of the chunk at an offset.
func (w *writer) length(at int64) int64 { return min(disk.Chunk, w.src.Size()-at) }

// load reads a chunk of the source into want.
func (w *writer) load(at int64) ([]byte, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	p := w.want[:w.length(at)]
	if _, err := w.src.ReadAt(p, at); err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	return p, nil
}

// each does the same with some chunks.
func (w *writer) each(do func(at int64) error, chunks []int64) error {
	for _, at := range chunks {
		if err := do(at); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) sync() error {
	if err := w.dst.Sync(); err != nil {
		return &DeviceError{"write", 0, err}
	}
	return nil
}

func (w *writer) put(p []byte, at int64) error {
	if _, err := w.dst.WriteAt(p, at); err != nil {
		return &DeviceError{"write", at, err}
	}
	return nil
}

func (w *writer) copy(at int64) error {
	p, err := w.load(at)
	if err != nil {
		return err
	}
	if err := w.put(p, at); err != nil {
		return err
	}
	w.step(false, int64(len(p)))
	return nil
}

func (w *writer) compare(at int64) error {
	p, err := w.load(at)
	if err != nil {
		return err
	}
	have := w.have[:len(p)]
	if _, err := w.dst.ReadAt(have, at); err != nil {
		return &DeviceError{"read", at, err}
	}
	if !bytes.Equal(have, p) {
		return &VerifyError{at}
	}
	w.step(true, int64(len(p)))
	return nil
}

func (w *writer) step(verify bool, n int64) {
	w.done += n
	if w.progress != nil {
		w.progress(verify, w.done, w.total)
	}
}

// RefusedError says why a device is not written to.
type RefusedError struct {
	Device  string
	Reasons []string
	Forced  bool // that these reasons can be overruled
}

func (e *RefusedError) Error() string {
	text := strings.Join(append([]string{e.Device + " is not written to"}, e.Reasons...), "\n  ")
	if e.Forced {
		text += "\nunmount it or name another device; --force writes all the same"
	}
	return text
}

// Check returns a *RefusedError if the image should not be written to a device.
func Check(d *Device, force bool) error {
	switch objections := d.Objections(); {
	case d.ReadOnly:
		return &RefusedError{Device: d.Path(), Reasons: []string{"it is read-only: is there a switch on it?"}}
	case d.SectorSize != 512:
		return &RefusedError{Device: d.Path(), Reasons: []string{fmt.Sprintf("its sectors have %d bytes, the image is for 512", d.SectorSize)}}
	case len(objections) > 0 && !force:
		return &RefusedError{Device: d.Path(), Reasons: objections, Forced: true}
	}
	return nil
}

// ToDevice writes the image to a device that was checked, past the page cache, so
// that what is compared is what the device holds.
func ToDevice(ctx context.Context, d *Device, src Source, progress Progress) error {
	flags := unix.O_DIRECT
	if len(d.Uses) == 0 {
		flags |= unix.O_EXCL // nothing may begin to use it meanwhile (open(2))
	}
	f, err := os.OpenFile(d.Path(), os.O_RDWR|flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if now, err := Find("/", d.Path()); err != nil || now.Name != d.Name || now.Size != d.Size || now.Sequence != d.Sequence {
		return &RefusedError{Device: d.Path(), Reasons: []string{"it is not the device any more that it was a moment ago: look what it is and begin again"}}
	}
	buf, err := unix.Mmap(-1, 0, 2*disk.Chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("buffer: %w", err)
	}
	defer func() { _ = unix.Munmap(buf) }() // can only fail for what is not mapped
	if err := Write(ctx, f, src, buf, progress); err != nil {
		return fmt.Errorf("%s: %w", d.Path(), err)
	}
	// The kernel keeps the old partitions while one of them is in use; a stick that
	// is plugged in again has the new ones.
	_ = unix.IoctlSetInt(int(f.Fd()), unix.BLKRRPART, 0)
	return nil
}
