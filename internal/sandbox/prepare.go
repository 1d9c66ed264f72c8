package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"mkp2pimg/internal/cachedir"
)

// merged are the directories of / that packages of Debian 12 and older still
// fill, and that an installed system has as links into /usr.
var merged = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// alternatives are the links that maintainer scripts would make. The first
// target present wins, and a link that is there stays.
var alternatives = []struct {
	link    string // below /usr/bin
	targets []string
}{
	{"awk", []string{"mawk", "gawk"}},
	{"gcc", []string{"gcc-12", "gcc-13", "gcc-14"}},
	{"cc", []string{"gcc"}},
	{"which", []string{"which.debianutils"}},
}

// Prepare does to a directory of unpacked packages what their installation
// would have done, as far as compilers and emulators need it: /bin, /lib and the
// like become links into /usr, and the links of the alternatives system are
// made. A directory that is prepared already stays as it is.
func Prepare(dir string) error {
	for _, name := range merged {
		if err := mergeIntoUsr(dir, name); err != nil {
			return fmt.Errorf("prepare %s: %w", dir, err)
		}
	}
	bin := filepath.Join(dir, "usr/bin")
	for _, a := range alternatives {
		if err := linkFirst(bin, a.link, a.targets); err != nil {
			return fmt.Errorf("prepare %s: %w", dir, err)
		}
	}
	return nil
}

func mergeIntoUsr(root, name string) error {
	dir := filepath.Join(root, name)
	info, err := os.Lstat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.IsDir():
		return nil
	}
	usr := filepath.Join(root, "usr", name)
	if err := os.MkdirAll(usr, 0o755); err != nil {
		return err
	}
	if err := move(dir, usr); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("usr", name), dir)
}

// move moves the entries of from into to, recursively where both have a
// directory, and removes from. Of a file and a link the file stays: such a link
// pointed at the file's place in the other directory.
func move(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, e := range entries {
		source, target := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		there, err := os.Lstat(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = os.Rename(source, target)
		case err != nil:
		case e.IsDir() && there.IsDir():
			err = move(source, target)
		case there.Mode()&fs.ModeSymlink != 0:
			err = errors.Join(os.Remove(target), os.Rename(source, target))
		case e.Type()&fs.ModeSymlink != 0:
			err = os.Remove(source)
		default:
			err = fmt.Errorf("both %s and %s exist", source, target)
		}
		if err != nil {
			return err
		}
	}
	return os.Remove(from)
}

func linkFirst(dir, link string, targets []string) error {
	for _, target := range targets {
		if _, err := os.Lstat(filepath.Join(dir, target)); err != nil {
			continue
		}
		err := os.Symlink(target, filepath.Join(dir, link))
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	return nil
}

// Make returns the root at dir, a path that names its contents (a digest of the
// packages). If it isn't there yet, unpack fills an empty directory with the
// packages, which is then prepared and moved to dir.
func Make(ctx context.Context, dir string, unpack func(dir string) error) (Root, error) {
	err := cachedir.Make(ctx, dir, func(partial string) error {
		if err := unpack(partial); err != nil {
			return err
		}
		return Prepare(partial)
	})
	if err != nil {
		return Root{}, err
	}
	return Root{Dir: dir}, nil
}
