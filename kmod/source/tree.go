package source

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mkp2pimg/internal/tarpipe"
	"mkp2pimg/kmod/patch"
)

// packed returns the files of a tree as a tar archive. All carry the time of
// version.mk: those of the others differ from one checkout to the next.
func packed(dir string) (io.ReadCloser, error) {
	info, err := os.Stat(filepath.Join(dir, versionFile))
	if err != nil {
		return nil, err
	}
	return tarpipe.Read(func(w *tar.Writer) error { return packTree(w, dir, info.ModTime()) }), nil
}

func packTree(w *tar.Writer, dir string, date time.Time) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, f fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case f.IsDir() && leftOut(name, true):
			return fs.SkipDir
		case f.IsDir() || leftOut(name, false):
			return nil
		}
		return packFile(w, root, name, date)
	})
	if err != nil {
		return fmt.Errorf("driver source %s: %w", dir, err)
	}
	return nil
}

// leftOut says whether a path is not source: a repository, or what quilt, "patch"
// or a build of the driver leave in its tree.
func leftOut(name string, dir bool) bool {
	base := path.Base(name)
	if dir {
		return base == ".git" || base == ".pc" || base == "_out" || name == "kernel-open/conftest"
	}
	if slices.Contains([]string{"modules.order", "Module.symvers", ".git", patch.UndoFile}, base) || strings.HasPrefix(base, ".") && strings.HasSuffix(base, ".cmd") {
		return true
	}
	for _, suffix := range []string{".o", ".ko", ".a", ".mod", ".mod.c", ".o_binary"} {
		if strings.HasSuffix(base, suffix) {
			return true
		}
	}
	return false
}

func packFile(w *tar.Writer, root *os.Root, name string, date time.Time) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if info.Mode().Type() == fs.ModeSymlink {
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		return w.WriteHeader(tarpipe.Header(name, tar.TypeSymlink, target, 0o777, 0, date))
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: is neither a file, a directory nor a symbolic link", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return tarpipe.Add(w, tarpipe.Header(name, tar.TypeReg, "", info.Mode(), info.Size(), date), f)
}
