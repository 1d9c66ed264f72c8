package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/diskfs/go-diskfs/backend"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/filesystem/fat12"
	"github.com/diskfs/go-diskfs/filesystem/fat32"
)

// fileSystem is a FAT32 file system that is being written.
type fileSystem struct {
	*fat32.FileSystem
	out io.WriterAt
}

// format makes an empty file system in a region of zeroes.
func format(b backend.Storage, at region, label string) (*fileSystem, error) {
	out, err := b.Writable()
	if err != nil {
		return nil, err
	}
	fs, err := fat32.Create(b, at.size, at.start, sector, label, true)
	if err != nil {
		return nil, fmt.Errorf("file system %s: %w", label, err)
	}
	return &fileSystem{fs, out}, nil
}

// reopen reads a file system that another program has changed.
func reopen(b backend.Storage, at region) (*fileSystem, error) {
	out, err := b.Writable()
	if err != nil {
		return nil, err
	}
	fs, err := fat32.Read(b, at.size, at.start, sector)
	if err != nil {
		return nil, err
	}
	return &fileSystem{fs, out}, nil
}

// writeFile makes a small file.
func (fs *fileSystem) writeFile(name string, data []byte) error {
	f, err := fs.create(name, int64(len(data)))
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// copyFile makes a file with the contents of a file of the host. Its last byte is
// written by go-diskfs, which makes it allocate all clusters; they are then filled
// directly.
func (fs *fileSystem) copyFile(name, host string) error {
	from, err := os.Open(host)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return err
	}
	f, err := fs.create(name, st.Size())
	if err != nil {
		return err
	}
	if _, err := f.Seek(st.Size()-1, io.SeekStart); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := f.Write([]byte{0}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ranges, err := f.GetDiskRanges()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	left := st.Size()
	for _, r := range ranges {
		n := min(left, int64(r.Length))
		to := io.NewOffsetWriter(fs.out, fs.Start()+int64(r.Offset))
		if _, err := io.CopyBuffer(to, io.LimitReader(from, n), make([]byte, mib)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		left -= n
	}
	return nil
}

// clusterFile is what a file of go-diskfs can do besides.
type clusterFile interface {
	filesystem.File
	GetDiskRanges() ([]fat12.DiskRange, error)
}

// create opens a new file. An empty one is refused: go-diskfs v1.9.4 gives it a
// cluster, which the specification forbids.
func (fs *fileSystem) create(name string, size int64) (clusterFile, error) {
	if size == 0 {
		return nil, fmt.Errorf("%s is empty", name)
	}
	f, err := fs.OpenFile(name, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	c, ok := f.(clusterFile)
	if !ok {
		return nil, errors.New("go-diskfs: a file does not tell its clusters")
	}
	return c, nil
}
