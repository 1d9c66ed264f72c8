package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"mkp2pimg/internal/cachedir"
)

// NotOursError says that an output directory holds something that this program
// did not write.
type NotOursError struct {
	Dir string
}

func (e *NotOursError) Error() string {
	return fmt.Sprintf("%s is not empty and holds no %s of %s: choose another directory or empty it", e.Dir, ManifestName, ProductName)
}

// CheckTarget returns an error if Write could not make or replace dir: a
// *NotOursError, or why it or the directory around it can't be read or written.
func CheckTarget(dir string) error {
	dir, err := follow(dir)
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	if err := checkWritable(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("output directory %s is made under another name and then renamed, but: %w", dir, err)
	}
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	if len(list) == 0 {
		return nil
	}
	f, err := os.Open(filepath.Join(dir, ManifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return &NotOursError{dir}
	}
	if err != nil {
		return fmt.Errorf("output directory: %w", err)
	}
	defer f.Close()
	if p, err := readProduct(f); err != nil || p.Name != ProductName {
		return &NotOursError{dir}
	}
	return nil
}

// follow returns the absolute path of dir without symbolic links, since a link
// can't be replaced by a directory. What dir names need not exist.
func follow(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	target, err := filepath.EvalSymlinks(dir)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return target, err
	}
	if _, exists := os.Lstat(dir); exists == nil {
		return "", err // a link to nothing
	}
	return dir, nil
}

// checkWritable says whether files can be made in dir or, where it does not
// exist yet, in the nearest of its parents that does.
func checkWritable(dir string) error {
	for {
		err := unix.Access(dir, unix.W_OK|unix.X_OK)
		parent := filepath.Dir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist) && parent != dir:
			dir = parent
		case err != nil:
			return &fs.PathError{Op: "write to", Path: dir, Err: err}
		default:
			return nil
		}
	}
}

// replaceDir makes dir a directory with what fill writes into it. Until fill
// has succeeded and all is on disk, dir stays as it was.
func replaceDir(dir string, fill func(tmp string) error) error {
	parent := filepath.Dir(dir)
	tmp, remove, err := cachedir.Temp(parent, "."+filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer remove()
	if err := fill(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := syncDir(tmp); err != nil {
		return err
	}
	if err := exchange(tmp, dir); err != nil {
		return err
	}
	return syncDir(parent)
}

// exchange puts tmp in the place of dir and what dir was, if anything, in that
// of tmp. File systems that can't swap two names (NFS) have no dir for a moment.
func exchange(tmp, dir string) error {
	err := os.Rename(tmp, dir) // works if dir is absent or empty
	if err == nil || !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	err = unix.Renameat2(unix.AT_FDCWD, tmp, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	old := tmp + "-old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
