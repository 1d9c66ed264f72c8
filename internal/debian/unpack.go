package debian

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"mkp2pimg/internal/escape"
)

// UnpackOptions selects what to take from an archive.
type UnpackOptions struct {
	// Filter says whether to take the file at name, a clean path such as
	// "usr/lib/x". Nil takes all. Directories are made as needed.
	Filter func(name string) bool
	// Strip is the number of leading path elements to drop, before Filter.
	Strip int
}

// Unpack writes the files of a .deb below dir, which must exist.
//
// Nothing is written outside dir, whatever the archive says: symbolic links
// inside dir are followed as far as they stay in it, so that /lib may be a
// link to usr/lib. Files keep their permission bits and times; owners, setuid
// and setgid bits are dropped, device nodes refused. Files that exist are
// replaced. After an error dir holds a part of the package. A *DamagedError
// blames the archive, other errors the file system.
func Unpack(deb, dir string, opt UnpackOptions) error {
	return unpack(deb, dir, opt, walkDeb)
}

// UnpackTar writes the files of a tar archive, plain or compressed with xz,
// gzip, zstd or bzip2, below dir, as Unpack does.
func UnpackTar(tarball, dir string, opt UnpackOptions) error {
	return unpack(tarball, dir, opt, walkTar)
}

// UnpackSource writes the files of a source tarball below dir, without the
// tarball's first directory.
func UnpackSource(tarball, dir string) error {
	return UnpackTar(tarball, dir, UnpackOptions{Strip: 1})
}

// Walk calls fn for each entry of a .deb, with a clean name such as
// "usr/lib/x". fn may return fs.SkipAll to stop.
func Walk(deb string, fn func(hdr *tar.Header, r io.Reader) error) error {
	return walk(deb, walkDeb, fn)
}

type visit func(hdr *tar.Header, r io.Reader) error

func walk(file string, entries func(io.Reader, visit) error, fn visit) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	err = entries(bufio.NewReader(f), fn)
	switch {
	case err == nil, errors.Is(err, fs.SkipAll):
		return nil
	case (is[*fs.PathError](err) || is[*os.LinkError](err)) && !escape.Is(err):
		return fmt.Errorf("%s: %w", file, err)
	}
	return &DamagedError{File: file, Err: err}
}

// DamagedError says that the content of a file is not what its kind has. If
// the file's digest is right, the archive itself published it so.
type DamagedError struct {
	File string
	Err  error
}

func (e *DamagedError) Error() string { return fmt.Sprintf("%s is damaged: %v", e.File, e.Err) }

func (e *DamagedError) Unwrap() error { return e.Err }

func is[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

func unpack(file, dir string, opt UnpackOptions, entries func(io.Reader, visit) error) error {
	x, err := newExtractor(dir)
	if err != nil {
		return err
	}
	defer x.close()
	return walk(file, entries, func(hdr *tar.Header, r io.Reader) error {
		ok, err := opt.apply(hdr)
		if !ok || err != nil {
			return err
		}
		if err := x.extract(hdr, r); err != nil {
			return fmt.Errorf("unpack %s below %s: %w", hdr.Name, dir, err)
		}
		return nil
	})
}

// apply strips the entry's names and reports whether to take it.
func (o UnpackOptions) apply(hdr *tar.Header) (bool, error) {
	var ok bool
	if hdr.Name, ok = strip(hdr.Name, o.Strip); !ok {
		return false, nil
	}
	if hdr.Typeflag == tar.TypeLink {
		name, err := cleanName(hdr.Linkname)
		if err != nil {
			return false, err
		}
		if hdr.Linkname, ok = strip(name, o.Strip); !ok {
			return false, fmt.Errorf("entry %s: is a link to %s, which is outside", hdr.Name, name)
		}
	}
	if o.Filter == nil {
		return true, nil
	}
	return hdr.Typeflag != tar.TypeDir && o.Filter(hdr.Name), nil
}

// strip drops the first n elements of name.
func strip(name string, n int) (string, bool) {
	for range n {
		var ok bool
		if _, name, ok = strings.Cut(name, "/"); !ok {
			return "", false
		}
	}
	return name, true
}

// walkDeb calls fn for each entry of the .deb's data archive.
func walkDeb(r io.Reader, fn visit) error {
	a, err := newArReader(r)
	if err != nil {
		return err
	}
	// deb(5): debian-binary, control.tar.*, data.tar.*, in this order.
	name, err := a.next()
	if err == nil && name != "debian-binary" {
		err = fmt.Errorf("not a .deb: its first member is %q", name)
	}
	for err == nil && !strings.HasPrefix(name, "data.tar") {
		name, err = a.next()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("not a whole .deb: has no data.tar")
	}
	if err != nil {
		return err
	}
	if err := walkTar(a, fn); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// walkTar calls fn for each entry of a tar archive, compressed or not.
func walkTar(r io.Reader, fn visit) error {
	z, err := unzip(r)
	if err != nil {
		return err
	}
	defer z.Close()
	t := tar.NewReader(z)
	for {
		hdr, err := t.Next()
		if errors.Is(err, io.EOF) {
			_, err = io.Copy(io.Discard, z) // the checks are at the end of a stream
			return err
		}
		if err != nil {
			return cutOff(err)
		}
		if hdr.Typeflag == tar.TypeXGlobalHeader {
			continue // git's commit id
		}
		if hdr.Name, err = cleanName(hdr.Name); err != nil {
			return err
		}
		if hdr.Name == "." {
			continue
		}
		if err := fn(hdr, t); err != nil {
			return err
		}
	}
}

// cleanName makes "./usr//lib/" to "usr/lib". A name that leads outside is an
// error.
func cleanName(name string) (string, error) {
	clean := path.Clean(name)
	if !fs.ValidPath(clean) || name == "" || strings.ContainsRune(clean, 0) {
		return "", fmt.Errorf("entry %q: its name leads outside of the archive", name)
	}
	return clean, nil
}

// UsrMerge makes /bin, /sbin, /lib and /lib64 below dir links into /usr, as
// in a Debian system since bookworm. Packages are unpacked into it afterwards.
func UsrMerge(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := root.MkdirAll("usr/"+name, 0o755); err != nil {
			return err
		}
		if err := root.Symlink("usr/"+name, name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}
