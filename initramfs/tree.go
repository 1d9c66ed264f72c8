// Package initramfs assembles the root file system of the image on the build
// host: the u-root command set and this project's programs, kernel modules,
// the driver's modules, firmware and libraries, and the few files of /etc. The
// result is a Tree, which Pack writes as a zstd-compressed newc archive. The
// same inputs give the same bytes.
//
// Build does it all; the parts are exported for those who need only one.
package initramfs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"mkp2pimg/initramfs/layout"
)

// Origin says where a file of the image came from.
type Origin struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name,omitempty"`    // package, Go package or generator
	Version string `json:"version,omitempty"` // of the package or Go module
}

// Kind is the kind of an Origin.
type Kind string

// The kinds of origins.
const (
	FromPackage Kind = "package"   // taken unchanged (or decompressed) from a distribution package
	BuiltHere   Kind = "built"     // compiled by this build
	Generated   Kind = "generated" // written by this build
)

func (o Origin) String() string {
	return strings.TrimSpace(strings.Join([]string{string(o.Kind), o.Name, o.Version}, " "))
}

// parent is the origin of directories that nobody asked for by name.
var parent = Origin{Kind: Generated, Name: "parent"}

// Entry is one file, symbolic link or directory of a Tree.
type Entry struct {
	Path   string      // absolute and clean
	Mode   fs.FileMode // type and permission bits
	Size   int64       // bytes of a regular file
	SHA256 string      // of a regular file, in hex
	Link   string      // target of a symbolic link
	Origin Origin

	host string // host file that holds the content, if data doesn't
	data []byte
}

// Open opens the content of a regular file.
func (e *Entry) Open() (io.ReadCloser, error) {
	if e.host == "" {
		return io.NopCloser(bytes.NewReader(e.data)), nil
	}
	return os.Open(e.host)
}

// Tree describes a file system in memory. Content of host files stays on disk
// until the tree is packed. The zero value is an empty tree.
type Tree struct {
	entries map[string]*Entry
}

// ConflictError reports two different contents for one path.
type ConflictError struct {
	Path     string
	Old, New Origin
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: %s and %s disagree about this file of the image", e.Path, e.Old, e.New)
}

// AddBytes adds a regular file with the given content and permissions.
func (t *Tree) AddBytes(name string, perm fs.FileMode, data []byte, o Origin) error {
	sum := sha256.Sum256(data)
	return t.add(&Entry{Path: name, Mode: perm.Perm(), Size: int64(len(data)),
		SHA256: hex.EncodeToString(sum[:]), Origin: o, data: data})
}

// AddFile adds a regular file whose content is that of a host file, which must
// not change until the tree is packed.
func (t *Tree) AddFile(name string, perm fs.FileMode, host string, o Origin) error {
	f, err := os.Open(host)
	if err != nil {
		return fmt.Errorf("add %s to the image: %w", name, err)
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return fmt.Errorf("add %s to the image: %w", name, err)
	}
	return t.add(&Entry{Path: name, Mode: perm.Perm(), Size: n,
		SHA256: hex.EncodeToString(h.Sum(nil)), Origin: o, host: host})
}

// AddLink adds a symbolic link.
func (t *Tree) AddLink(name, target string, o Origin) error {
	return t.add(&Entry{Path: name, Mode: fs.ModeSymlink | 0o777, Link: target, Origin: o})
}

// AddDir adds a directory. Parents of other entries need not be added: they
// are made with permissions 0755.
func (t *Tree) AddDir(name string, perm fs.FileMode, o Origin) error {
	return t.add(&Entry{Path: name, Mode: fs.ModeDir | perm.Perm(), Origin: o})
}

func (t *Tree) add(e *Entry) error {
	if !path.IsAbs(e.Path) || path.Clean(e.Path) != e.Path || e.Path == "/" {
		return fmt.Errorf("%q is not a clean absolute path of a file", e.Path)
	}
	if strings.ContainsRune(e.Path+e.Link, 0) {
		return fmt.Errorf("%q holds a zero byte", e.Path+e.Link)
	}
	if e.Mode&fs.ModeSymlink != 0 && e.Link == "" {
		return fmt.Errorf("%s: symbolic link without target", e.Path)
	}
	if old := t.entries[e.Path]; old != nil {
		switch {
		case same(old, e):
			return nil
		case old.Origin == parent && e.Mode.IsDir():
			t.put(e)
			return nil
		}
		return &ConflictError{e.Path, old.Origin, e.Origin}
	}
	for dir := path.Dir(e.Path); dir != "/"; dir = path.Dir(dir) {
		if old := t.entries[dir]; old == nil {
			t.put(&Entry{Path: dir, Mode: fs.ModeDir | 0o755, Origin: parent})
		} else if !old.Mode.IsDir() {
			return fmt.Errorf("%s: its parent %s is no directory: %w", e.Path, dir, &ConflictError{dir, old.Origin, e.Origin})
		}
	}
	t.put(e)
	return nil
}

func (t *Tree) put(e *Entry) {
	if t.entries == nil {
		t.entries = map[string]*Entry{}
	}
	t.entries[e.Path] = e
}

// same reports whether a and b are the same file whatever their origin.
func same(a, b *Entry) bool {
	return a.Mode == b.Mode && a.SHA256 == b.SHA256 && a.Link == b.Link
}

// Lookup returns the entry of a path, or nil.
func (t *Tree) Lookup(name string) *Entry { return t.entries[name] }

// Entries returns all entries sorted by path, so that a directory comes before
// what is in it.
func (t *Tree) Entries() []*Entry {
	list := make([]*Entry, 0, len(t.entries))
	for _, e := range t.entries {
		list = append(list, e)
	}
	slices.SortFunc(list, func(a, b *Entry) int { return cmp.Compare(a.Path, b.Path) })
	return list
}

// Files describes the regular files and links of the tree, sorted by path.
func (t *Tree) Files() []layout.File {
	var files []layout.File
	for _, e := range t.Entries() {
		if !e.Mode.IsDir() {
			files = append(files, layout.File{Path: e.Path, Size: e.Size, SHA256: e.SHA256, Mode: layout.FormatMode(e.Mode), Link: e.Link})
		}
	}
	return files
}
