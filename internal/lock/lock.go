// Package lock reads and writes mkp2pimg.lock: every input of a build, by
// digest. A build from a lock asks no index.
package lock

import (
	"errors"
	"time"

	"mkp2pimg/internal/debian"
	"mkp2pimg/internal/fetch"
)

// Version is the format version that this program writes.
const Version = 1

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
	Emulator     Role = "emulator"
)

// Lock is the content of the lock file.
type Lock struct {
	Version  int       `json:"version"`
	Driver   string    `json:"driver"` // release, such as "535.261.03"
	Kernel   string    `json:"kernel"` // release, such as "6.12.90+deb12-amd64"
	Archives []Archive `json:"archives"`
	Inputs   []Input   `json:"inputs"`
}

// Archive is where inputs come from.
type Archive struct {
	Suite     string    `json:"suite"`              // unique in the lock
	Mirror    string    `json:"mirror"`             // base URL
	Snapshot  string    `json:"snapshot,omitempty"` // base URL of the archive's history
	Date      time.Time `json:"date"`               // of the index
	InRelease string    `json:"inrelease"`          // SHA-256 of the signed index
}

// Input is one file that a build reads.
type Input struct {
	Role      Role   `json:"role"`
	Name      string `json:"name"`
	Version   string `json:"version"`
	Suite     string `json:"suite"` // of one of the Archives
	Component string `json:"component"`
	Path      string `json:"path"` // below the mirror's base
	SHA256    string `json:"sha256"`
	Size      int64  `json:"size"`
	Licence   string `json:"licence"`
}

// Read reads and validates the lock file at path.
func Read(path string) (*Lock, error) { return nil, errors.ErrUnsupported }

// Parse reads and validates the content of a lock file.
func Parse(data []byte) (*Lock, error) { return nil, errors.ErrUnsupported }

// Write writes the lock to path, whole or not at all.
func (l *Lock) Write(path string) error { return errors.ErrUnsupported }

// Validate reports every fault of the lock, by the entry that has it.
func (l *Lock) Validate() error { return errors.ErrUnsupported }

// ByRole returns the inputs of a role, in the order of the lock.
func (l *Lock) ByRole(role Role) []Input { return nil }

// File returns what to fetch for an input of the lock. mirrors overrides the
// base URL of an archive by its suite; it may be nil.
func (l *Lock) File(in Input, mirrors map[string]string) (fetch.File, error) {
	return fetch.File{}, errors.ErrUnsupported
}

// FromPackage returns the input for a binary package.
func FromPackage(role Role, p *debian.Package) Input { return Input{} }

// FromSource returns the input for a file of a source package.
func FromSource(role Role, s *debian.Source, f debian.SourceFile) Input { return Input{} }

// FromOrigin returns the archive entry for an index.
func FromOrigin(o *debian.Origin) Archive { return Archive{} }
