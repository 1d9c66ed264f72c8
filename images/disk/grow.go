package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/partition/gpt"
)

// Chunk is the size in bytes in which a [Grown] disk is read; the last chunk of a
// disk may be smaller.
const Chunk = mib

// TooSmallError says that a device can't hold an image.
type TooSmallError struct{ Device, Image int64 } // bytes

func (e *TooSmallError) Error() string {
	return fmt.Sprintf("it has %d bytes, the image needs %d: take a larger one", e.Device, e.Image)
}

// Grown is a disk image as it is on a device of another size, whose report
// partition takes what is left. The bytes that matter are in some of its chunks:
// what the others hold can stay.
type Grown struct {
	size   int64
	image  io.ReaderAt
	boot   region
	memory *memory // tables and the file system of the report partition
}

// Grow lays the image out on a device of size bytes.
func (d *Disk) Grow(size int64) (*Grown, error) {
	at, ok := d.at.grown(size)
	if !ok || size%sector != 0 {
		return nil, &TooSmallError{size, d.at.disk}
	}
	guid := func(name string) string {
		i := slices.IndexFunc(d.table.Partitions, func(p *gpt.Partition) bool { return p.Name == name })
		return d.table.Partitions[i].GUID // Open has found it
	}
	m := &memory{size: size, chunks: map[int64][]byte{}}
	head := make([]byte, mbrCode)
	if _, err := d.f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	if _, err := m.WriteAt(head, 0); err != nil {
		return nil, err
	}
	if err := at.table(d.table.GUID, guid(bootName), guid(reportName)).Write(m, size); err != nil {
		return nil, fmt.Errorf("partition table: %w", err)
	}
	serial, err := readSerial(d.f, d.at.report)
	if err != nil {
		return nil, err
	}
	if err := writeReports(m, m, at.report, serial, time.Unix(d.Manifest.SourceDateEpoch, 0)); err != nil {
		return nil, err
	}
	return &Grown{size, d.f, at.boot, m}, nil
}

// Size is that of the device.
func (g *Grown) Size() int64 { return g.size }

// Chunks are the offsets of what is to be written, ascending.
func (g *Grown) Chunks() []int64 {
	var list []int64
	for at := g.boot.start; at < g.boot.end(); at += Chunk {
		list = append(list, at)
	}
	list = slices.AppendSeq(list, maps.Keys(g.memory.chunks))
	slices.Sort(list)
	return slices.Compact(list)
}

// ReadAt implements [io.ReaderAt] within a chunk.
func (g *Grown) ReadAt(p []byte, off int64) (int, error) {
	if off >= g.boot.start && off < g.boot.end() {
		return g.image.ReadAt(p, off)
	}
	return g.memory.ReadAt(p, off)
}

// memory is a disk of which only the chunks that were written to take room. It is
// a [backend.Storage] for go-diskfs.
type memory struct {
	size   int64
	chunks map[int64][]byte // by offset
}

func (m *memory) each(p []byte, off int64, fn func(part []byte, chunk, at int64)) (int, error) {
	if off < 0 || off+int64(len(p)) > m.size {
		return 0, io.ErrUnexpectedEOF
	}
	for done := 0; done < len(p); {
		at := (off + int64(done)) % Chunk
		chunk := off + int64(done) - at
		n := min(int64(len(p)-done), Chunk-at)
		fn(p[done:done+int(n)], chunk, at)
		done += int(n)
	}
	return len(p), nil
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	return m.each(p, off, func(part []byte, chunk, at int64) {
		if data := m.chunks[chunk]; data != nil {
			copy(part, data[at:])
		} else {
			clear(part)
		}
	})
}

func (m *memory) WriteAt(p []byte, off int64) (int, error) {
	return m.each(p, off, func(part []byte, chunk, at int64) {
		if m.chunks[chunk] == nil {
			m.chunks[chunk] = make([]byte, Chunk)
		}
		copy(m.chunks[chunk][at:], part)
	})
}

var errNoFile = errors.New("a disk in memory is no file")

func (m *memory) Stat() (fs.FileInfo, error)              { return nil, errNoFile }
func (m *memory) Read([]byte) (int, error)                { return 0, errNoFile }
func (m *memory) Seek(int64, int) (int64, error)          { return 0, errNoFile }
func (m *memory) Sys() (*os.File, error)                  { return nil, errNoFile }
func (m *memory) Writable() (backend.WritableFile, error) { return m, nil }
func (m *memory) Path() string                            { return "" }
func (m *memory) Close() error                            { return nil }
