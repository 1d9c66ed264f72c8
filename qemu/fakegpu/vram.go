package fakegpu

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// VRAM is a board's memory: sparse, so that only pages that were written take
// space. This process and every client that mapped it see the same bytes.
type VRAM struct {
	file *os.File
	size Size
}

// NewVRAM makes zeroed memory of size bytes.
func NewVRAM(size Size) (*VRAM, error) {
	fd, err := unix.MemfdCreate("vram", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create the memory of a GPU: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "vram")
	if err := f.Truncate(int64(size)); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("create the memory of a GPU of %v: %w", size, err)
	}
	return &VRAM{f, size}, nil
}

// Size is the length of the memory.
func (v *VRAM) Size() Size { return v.size }

// ReadAt reads memory, as [io.ReaderAt].
func (v *VRAM) ReadAt(p []byte, off int64) (int, error) { return v.file.ReadAt(p, off) }

// WriteAt writes memory, as [io.WriterAt], but never beyond its end.
func (v *VRAM) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || uint64(off)+uint64(len(p)) > uint64(v.size) {
		return 0, fmt.Errorf("write of %d bytes at %#x is outside the GPU's memory of %v", len(p), off, v.size)
	}
	return v.file.WriteAt(p, off)
}

// Close releases the memory; clients that mapped it keep it.
func (v *VRAM) Close() error { return v.file.Close() }
