package patch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mkp2pimg/internal/debian"
)

// WriteQuilt writes the series as a directory for quilt: a patch per edit, and the file series.
// The directory must not exist, or be empty; if it can't be written whole, there is none.
func (r *Result) WriteQuilt(dir string) error {
	if err := r.refused(); err != nil {
		return err
	}
	return makeDir(dir, func(temp string) (string, error) {
		var names strings.Builder
		for _, p := range r.Series() {
			if err := os.WriteFile(filepath.Join(temp, p.Name), []byte(p.DEP3()), 0o644); err != nil {
				return "", err
			}
			names.WriteString(p.Name + "\n")
		}
		return temp, os.WriteFile(filepath.Join(temp, "series"), []byte(names.String()), 0o644)
	})
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
		return err
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
