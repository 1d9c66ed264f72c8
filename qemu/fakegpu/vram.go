package fakegpu

import (
	"errors"
	"os"
)

// VRAM is a board's memory: sparse, so that only pages that were written take
// space. It is visible to this process and to every client that mapped it.
type VRAM struct {
	file *os.File
	size Size
}

// NewVRAM makes zeroed memory of size bytes, a multiple of the page size.
func NewVRAM(size Size) (*VRAM, error) { return nil, errors.ErrUnsupported }

// ReadAt and WriteAt access the memory as a file.
func (v *VRAM) ReadAt(p []byte, off int64) (int, error)  { return v.file.ReadAt(p, off) }
func (v *VRAM) WriteAt(p []byte, off int64) (int, error) { return v.file.WriteAt(p, off) }

// Close releases the memory.
func (v *VRAM) Close() error { return v.file.Close() }
