// Package tarpipe makes tar archives of files that a user has, to be stored by
// the digest of their bytes: they hold nothing that differs between copies.
package tarpipe

import (
	"archive/tar"
	"io"
	"io/fs"
	"time"
)

// Read returns what write writes as a tar archive, while it is written. An error
// of write is one of reading.
func Read(write func(*tar.Writer) error) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := write(t)
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return r
}

// Header describes a file of a kind (tar.TypeReg, tar.TypeSymlink) by what git
// knows of one, its name, content and whether its owner may execute it, and a
// date in whole seconds.
func Header(name string, kind byte, target string, mode fs.FileMode, size int64, date time.Time) *tar.Header {
	perm := int64(0o644)
	if mode&0o100 != 0 {
		perm = 0o755
	}
	return &tar.Header{Name: name, Typeflag: kind, Linkname: target, Mode: perm, Size: size, ModTime: date.Truncate(time.Second)}
}

// Add writes an entry.
func Add(w *tar.Writer, hdr *tar.Header, content io.Reader) error {
	if err := w.WriteHeader(hdr); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
