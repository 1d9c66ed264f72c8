package debian

import (
	"archive/tar"
	"errors"
	"io"
)

// UnpackOptions selects what to take from an archive.
type UnpackOptions struct {
	// Filter says whether to take the file at name, a clean path such as
	// "usr/lib/x". Nil takes all. Directories are made as needed.
	Filter func(name string) bool
	// Strip is the number of leading path elements to drop.
	Strip int
}

// Unpack writes the files of a .deb below dir.
func Unpack(deb, dir string, opt UnpackOptions) error { return errors.ErrUnsupported }

// UnpackSource writes the files of a source tarball below dir, without the
// tarball's first directory.
func UnpackSource(tarball, dir string) error { return errors.ErrUnsupported }

// Walk calls fn for each entry of a .deb, with a clean name such as
// "usr/lib/x". fn may return fs.SkipAll to stop.
func Walk(deb string, fn func(hdr *tar.Header, r io.Reader) error) error {
	return errors.ErrUnsupported
}

// Licence returns the licences that the package's copyright file names, or
// where to read them.
func Licence(deb string) (string, error) { return "", errors.ErrUnsupported }
