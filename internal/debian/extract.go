package debian

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
)

// extractor writes archive entries below a directory. The entries of one
// directory come in a row, so it keeps that directory open: looking it up for
// each call, element by element, takes longer than writing a small file.
type extractor struct {
	root *os.Root
	name string   // of the open directory
	dir  *os.Root // nil: none
}

func newExtractor(dir string) (*extractor, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &extractor{root: root}, nil
}

func (x *extractor) close() {
	if x.dir != nil {
		_ = x.dir.Close()
	}
	_ = x.root.Close()
}

// parent makes and opens the directory of name.
func (x *extractor) parent(name string) (*os.Root, error) {
	name = path.Dir(name)
	if x.dir != nil {
		if x.name == name {
			return x.dir, nil
		}
		_ = x.dir.Close()
		x.dir = nil
	}
	if err := makeDir(x.root, name, 0o755); err != nil {
		return nil, err
	}
	dir, err := x.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	x.name, x.dir = name, dir
	return dir, nil
}

// extract writes one entry.
func (x *extractor) extract(hdr *tar.Header, r io.Reader) error {
	if hdr.Typeflag == tar.TypeDir {
		return makeDir(x.root, hdr.Name, hdr.FileInfo().Mode())
	}
	dir, err := x.parent(hdr.Name)
	if err != nil {
		return err
	}
	base := path.Base(hdr.Name)
	// What a link in the entry's place points to must not be written to. A
	// directory that isn't empty stays, and is an error.
	if err := dir.Remove(base); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch hdr.Typeflag {
	case tar.TypeReg:
		return writeFile(dir, base, hdr, r)
	case tar.TypeSymlink:
		return dir.Symlink(hdr.Linkname, base)
	case tar.TypeLink:
		return x.root.Link(hdr.Linkname, hdr.Name)
	}
	return fmt.Errorf("refused: is a device node, a pipe or of another unknown type (%q)", hdr.Typeflag)
}

// makeDir makes a directory and its parents, unless there is one or a link to
// one, which stay as they are. Its owner can always work in it.
func makeDir(root *os.Root, name string, mode fs.FileMode) error {
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if err := root.MkdirAll(name, 0o755); err != nil {
		return err
	}
	if mode = mode.Perm() | 0o700; mode == 0o755 {
		return nil
	}
	return root.Chmod(name, mode)
}

func writeFile(dir *os.Root, name string, hdr *tar.Header, r io.Reader) error {
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	err = errors.Join(err, f.Chmod(hdr.FileInfo().Mode().Perm()), f.Close()) // OpenFile's mode is cut by the umask
	if err != nil {
		return cutOff(err)
	}
	return dir.Chtimes(name, hdr.ModTime, hdr.ModTime)
}
