package patch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/internal/debian"
)

// quiltSeries is the file in a directory of patches that names them in order.
const quiltSeries = "series"

// WriteQuilt writes the series for quilt: a patch per edit, and their names in the file series. Where
// the directory has a series, they come after the patches there; else it must not exist, or be empty.
// All of it is written, or nothing.
func (r *Result) WriteQuilt(dir string) error {
	if err := r.refused(); err != nil {
		return err
	}
	others, err := os.ReadFile(filepath.Join(dir, quiltSeries))
	if errors.Is(err, fs.ErrNotExist) {
		return makeDir(dir, func(temp string) (string, error) { return temp, replace(temp, r.quilt(nil)) })
	}
	if err != nil {
		return err
	}
	for _, p := range r.Series() {
		if _, err := os.Lstat(filepath.Join(dir, p.Name)); err == nil {
			return &OutputError{fmt.Sprintf("directory %s has %s already: take out the edits that are there (quilt delete -r), "+
				"or name another directory", dir, p.Name)}
		}
	}
	return replace(dir, r.quilt(others))
}

// quilt returns the patches as files of a directory whose series is others; nil if it has none.
func (r *Result) quilt(others []byte) []change {
	names := bytes.Clone(others)
	if n := len(names); n > 0 && names[n-1] != '\n' {
		names = append(names, '\n')
	}
	var files []change
	for _, p := range r.Series() {
		files = append(files, change{p.Name, nil, []byte(p.DEP3())})
		names = append(names, p.Name+"\n"...)
	}
	// The series comes last: it must not name what is not there.
	return append(files, change{quiltSeries, others, names})
}

// UnpackTo unpacks a tarball of a driver's source into dir, which must not exist, or be empty,
// without the directory that the tarball may have everything in. Before dir appears, edit is called
// with the place where the tree is; if it fails there is no dir.
func UnpackTo(tarball, dir string, edit func(tree string) error) error {
	return makeDir(dir, func(temp string) (string, error) {
		tree, err := Unpack(tarball, temp)
		if err != nil {
			return "", err
		}
		return tree, edit(tree)
	})
}

// Unpack unpacks a tarball of a driver's source below dir, which must exist, and returns the
// directory of the tree. The tarball may be plain or compressed with gzip, xz, zstd or bzip2. A
// [*debian.DamagedError] blames the tarball.
func Unpack(tarball, dir string) (tree string, err error) {
	if err := debian.UnpackTar(tarball, dir, debian.UnpackOptions{}); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(entries) == 1 && entries[0].IsDir() {
		return filepath.Join(dir, entries[0].Name()), nil
	}
	return dir, nil
}

// makeDir makes a directory whole or not at all. fill gets a new directory beside it, and
// returns which directory there is to become dir.
func makeDir(dir string, fill func(temp string) (string, error)) (err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(entries) > 0:
		return &OutputError{fmt.Sprintf("directory %s is not empty; name one that does not exist yet", dir)}
	}
	temp, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), ".mkp2pimg-*")
	if err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Chmod(temp, 0o755); err != nil { //nolint:gosec // as mkdir makes one
		return err
	}
	made, err := fill(temp)
	if err != nil {
		return err
	}
	// os.Rename does not replace a directory, not even an empty one.
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(made, dir)
}

// OutputError says why something can't be written where it was asked for.
type OutputError struct{ Reason string }

func (e *OutputError) Error() string { return e.Reason }
