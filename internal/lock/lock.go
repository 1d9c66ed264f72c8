// Package lock reads and writes mkp2pimg.lock: every input of a build, by
// digest. A build from a lock asks no index.
package lock

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/fetch"
)

// Version is the format version that this program writes. schema.json
// describes it. Version 1, which knew neither local files nor git trees, is
// still read.
const Version = 2

// Role says what an input is for.
type Role string

// The roles of inputs.
const (
	Toolchain    Role = "toolchain"
	Kernel       Role = "kernel"
	DriverSource Role = "driver-source"
	Firmware     Role = "firmware"
	Userspace    Role = "userspace"
	Libc         Role = "libc"
	BootLoader   Role = "boot-loader"
	Emulator     Role = "emulator"
)

// Roles are all roles, in the order in which Sort puts their inputs.
var Roles = []Role{DriverSource, Kernel, Toolchain, Firmware, Userspace, Libc, BootLoader, Emulator}

// Lock is the content of the lock file. Only one that has nothing but an emulator
// is of no driver and no kernel.
type Lock struct {
	Version  int       `json:"version"`
	Driver   string    `json:"driver"` // release, such as "535.261.03"
	Kernel   string    `json:"kernel"` // release, such as "6.12.90+deb12-amd64"
	Archives []Archive `json:"archives"`
	Inputs   []Input   `json:"inputs"`
}

// Local is the suite of inputs that were given as local files. They have no
// archive: only the cache has them.
const Local = "local"

// Archive is where inputs come from.
type Archive struct {
	Suite     string    `json:"suite"`               // unique in the lock
	Mirror    string    `json:"mirror"`              // base URL
	Snapshot  string    `json:"snapshot,omitempty"`  // base URL of the archive's history
	Date      time.Time `json:"date,omitzero"`       // of the index, UTC; zero if there is none
	InRelease string    `json:"inrelease,omitempty"` // SHA-256 of the signed index; empty if there is none
}

// Input is one file that a build reads.
type Input struct {
	Role      Role   `json:"role"`
	Name      string `json:"name"` // unique in the role
	Version   string `json:"version"`
	Suite     string `json:"suite"`               // of one of the Archives, or Local
	Component string `json:"component,omitempty"` // such as "non-free-firmware"
	Path      string `json:"path"`                // below the mirror's base; a local file's name
	SHA256    string `json:"sha256"`
	Size      int64  `json:"size"`              // bytes
	Tree      string `json:"tree,omitempty"`    // git tree of what a source unpacks to
	Licence   string `json:"licence,omitempty"` // short names, or where to read it
}

// FromPackage returns the input for a binary package. Its licence is not
// known before the package is: see debian.Licence.
func FromPackage(role Role, p *debian.Package) Input {
	return Input{
		Role:      role,
		Name:      p.Name,
		Version:   p.Version,
		Suite:     p.Origin.Name,
		Component: p.Component,
		Path:      p.Filename,
		SHA256:    p.SHA256,
		Size:      p.Size,
	}
}

// FromSource returns the input for a file of a source package.
func FromSource(role Role, s *debian.Source, f debian.SourceFile) Input {
	return Input{
		Role:      role,
		Name:      s.Name,
		Version:   s.Version,
		Suite:     s.Origin.Name,
		Component: s.Component,
		Path:      path.Join(s.Directory, f.Name),
		SHA256:    f.SHA256,
		Size:      f.Size,
	}
}

// FromOrigin returns the archive entry for an index.
func FromOrigin(o *debian.Origin) Archive {
	return Archive{Suite: o.Name, Mirror: o.Mirror, Snapshot: o.Snapshot, Date: o.Date, InRelease: o.InRelease}
}

// ByRole returns the inputs of a role, in the order of the lock.
func (l *Lock) ByRole(role Role) []Input {
	var all []Input
	for _, in := range l.Inputs {
		if in.Role == role {
			all = append(all, in)
		}
	}
	return all
}

// File returns what to fetch for an input of the lock. mirrors overrides the
// base URL of an archive by its suite; it may be nil. A local file has no URL.
func (l *Lock) File(in Input, mirrors map[string]string) (fetch.File, error) {
	if in.Suite == Local {
		return fetch.File{Name: in.Path, SHA256: in.SHA256, Size: in.Size}, nil
	}
	i := slices.IndexFunc(l.Archives, func(a Archive) bool { return a.Suite == in.Suite })
	if i < 0 {
		return fetch.File{}, fmt.Errorf("lock: %s: its suite %q is not among the archives", in.name(), in.Suite)
	}
	a := l.Archives[i]
	if m := mirrors[a.Suite]; m != "" {
		a.Mirror = m
	}
	o := debian.Origin{Suite: debian.Suite{Name: a.Suite, Mirror: a.Mirror, Snapshot: a.Snapshot}, Date: a.Date}
	return fetch.File{Name: path.Base(in.Path), URLs: o.URLs(in.Path), SHA256: in.SHA256, Size: in.Size}, nil
}

func (in Input) name() string { return fmt.Sprintf("input %s %q", in.Role, in.Name) }

// Sort gives the lock its canonical order: archives by suite, inputs by role,
// then by name.
func (l *Lock) Sort() {
	slices.SortFunc(l.Archives, func(a, b Archive) int { return strings.Compare(a.Suite, b.Suite) })
	slices.SortFunc(l.Inputs, func(a, b Input) int {
		if d := slices.Index(Roles, a.Role) - slices.Index(Roles, b.Role); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
}

// FileError says that a lock file can't be used.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("lock file %s: %v", e.Path, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// Read reads and validates the lock file at path. The error is that of
// os.ReadFile, or a *FileError.
func Read(path string) (*Lock, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := Parse(data)
	if err != nil {
		return nil, &FileError{path, err}
	}
	return l, nil
}

// Parse reads and validates the content of a lock file.
func Parse(data []byte) (*Lock, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("not a lock file: %w", err)
	}
	if head.Version > Version {
		return nil, fmt.Errorf("lock format %d is newer than the %d that this mkp2pimg knows: "+
			"use a newer mkp2pimg, or make a new lock", head.Version, Version)
	}
	l := new(Lock)
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if l.Version == 1 {
		l.Version = Version // which only added to it
	}
	return l, l.Validate()
}

// Marshal returns the bytes that Write writes: the lock in its canonical
// order, always the same for the same content.
func (l *Lock) Marshal() ([]byte, error) {
	c := *l
	c.Archives = append([]Archive{}, l.Archives...)
	c.Inputs = append([]Input{}, l.Inputs...)
	c.Sort()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(c); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// Write writes the lock to path, whole or not at all.
func (l *Lock) Write(path string) error {
	data, err := l.Marshal()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return renameio.WriteFile(path, data, 0o644)
}
