// Package gittree names the content of a directory as git does: by the hash of
// its tree object. A source tree can be compared with a release's commit that
// way wherever it comes from, be it a clone, a tarball or a copy, and without
// the repository.
package gittree

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // git's object names are SHA-1
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Modes of tree entries (gitformat-pack(5) and fsck.c in git: those it writes).
const (
	modeDir        = "40000"
	modeFile       = "100644"
	modeExecutable = "100755"
	modeLink       = "120000"
)

// Hash returns the name, 40 hex digits, of the tree object with the content of
// dir. As in a commit, empty directories and .git count for nothing, and of a
// file's mode only whether its owner may execute it. A file that git can't
// store, such as a device node, is an error.
func Hash(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	sum, _, err := tree(root, ".")
	if err != nil {
		return "", fmt.Errorf("git tree of %s: %w", dir, err)
	}
	return hex.EncodeToString(sum), nil
}

// entry is one line of a tree object.
type entry struct {
	mode, name string
	sum        []byte
}

// key is what git sorts entries by: directories as if they ended in a slash.
func (e entry) key() string {
	if e.mode == modeDir {
		return e.name + "/"
	}
	return e.name
}

// tree hashes a directory and says whether it has anything in it.
func tree(root *os.Root, dir string) (sum []byte, full bool, err error) {
	list, err := fs.ReadDir(root.FS(), dir)
	if err != nil {
		return nil, false, err
	}
	var entries []entry
	for _, f := range list {
		if f.Name() == ".git" {
			continue
		}
		e, ok, err := hashEntry(root, path.Join(dir, f.Name()), f)
		if err != nil {
			return nil, false, err
		}
		if ok {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key(), b.key()) })
	var b bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %s\x00%s", e.mode, e.name, e.sum)
	}
	sum, err = object("tree", int64(b.Len()), &b)
	return sum, len(entries) > 0, err
}

func hashEntry(root *os.Root, name string, f fs.DirEntry) (e entry, ok bool, err error) {
	e.name = f.Name()
	switch {
	case f.IsDir():
		e.mode = modeDir
		e.sum, ok, err = tree(root, name)
		return e, ok, err
	case f.Type() == fs.ModeSymlink:
		target, err := root.Readlink(name)
		if err != nil {
			return e, false, err
		}
		e.mode = modeLink
		e.sum, err = object("blob", int64(len(target)), strings.NewReader(target))
		return e, true, err
	case !f.Type().IsRegular():
		return e, false, fmt.Errorf("%s: is neither a file, a directory nor a symbolic link", name)
	}
	file, err := root.Open(name)
	if err != nil {
		return e, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return e, false, err
	}
	e.mode = modeFile
	if info.Mode()&0o100 != 0 {
		e.mode = modeExecutable
	}
	e.sum, err = object("blob", info.Size(), file)
	return e, true, err
}

// object hashes a git object: its kind and size, a zero byte, its content.
func object(kind string, size int64, content io.Reader) ([]byte, error) {
	h := sha1.New() //nolint:gosec // as above
	fmt.Fprintf(h, "%s %d\x00", kind, size)
	n, err := io.Copy(h, content)
	if err == nil && n != size {
		err = fmt.Errorf("a file changed while it was read: it had %d bytes, then %d", size, n)
	}
	return h.Sum(nil), err
}
