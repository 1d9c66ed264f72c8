// Package debian reads Debian archives: it verifies a suite's signed index,
// finds packages and what they depend on, and unpacks binary and source
// packages. It needs no Debian host and none of Debian's tools.
package debian

import (
	"context"
	"errors"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"mkp2pimg/internal/fetch"
)

// Suite names the part of an archive to read, as a sources.list line does.
type Suite struct {
	Name       string   // directory below dists/, such as "bookworm-security"
	Mirror     string   // base URL, such as DefaultMirror
	Snapshot   string   // base URL of the archive's history, such as DefaultSnapshot+"/debian"; may be empty
	Components []string // such as "main", "non-free-firmware"
}

// Default places of the Debian archives.
const (
	DefaultMirror         = "https://deb.debian.org/debian"
	DefaultSecurityMirror = "https://deb.debian.org/debian-security"
	DefaultSnapshot       = "https://snapshot.debian.org/archive"
)

// Suites returns the suites of a release (codename such as "bookworm") in
// which this program looks for its inputs: the release, its updates and its
// security fixes, with all components. Empty mirrors mean the default ones.
func Suites(codename, mirror, securityMirror string) []Suite { return nil }

// Origin is the verified index that a package or source was found in.
type Origin struct {
	Suite
	Date      time.Time // the index's Date: when the archive was in this state
	InRelease string    // SHA-256 of the InRelease document
}

// URLs returns where the file at path (below the mirror's base) can be had:
// the mirror, then the archive's snapshot of the index's date.
func (o *Origin) URLs(path string) []string { return nil }

// Package is one binary package of an index.
type Package struct {
	Name, Version, Architecture string
	Source, SourceVersion       string
	Component                   string
	Filename                    string // path below the mirror's base
	SHA256                      string
	Size                        int64  // bytes of the .deb
	InstalledSize               int64  // KiB
	Priority                    string // "required" … "optional"
	PreDepends, Depends         string // as written in the index
	Provides                    string
	Origin                      *Origin
}

// File returns what to fetch for the package.
func (p *Package) File() fetch.File { return fetch.File{} }

// Source is one source package, from a Sources index or a .dsc.
type Source struct {
	Name, Version, Format string
	Component             string
	Directory             string // path below the mirror's base; empty from a .dsc
	Files                 []SourceFile
	Origin                *Origin // nil from a .dsc
}

// SourceFile is one file of a source package.
type SourceFile struct {
	Name   string
	SHA256 string
	Size   int64
}

// Orig returns the upstream tarball (name_version.orig.tar.*).
func (s *Source) Orig() (SourceFile, error) { return SourceFile{}, errors.ErrUnsupported }

// File returns what to fetch for one of the source package's files.
func (s *Source) File(f SourceFile) fetch.File { return fetch.File{} }

// Client reads archives through a fetch client.
type Client struct {
	Fetch *fetch.Client
	Keys  openpgp.EntityList // who may sign an index; nil: ArchiveKeys()
	Now   func() time.Time   // nil: time.Now
}

// Packages returns the index of the binary packages of one architecture
// (such as "amd64") and of architecture "all" in the given suites.
func (c *Client) Packages(ctx context.Context, arch string, suites ...Suite) (*Index, error) {
	return nil, errors.ErrUnsupported
}

// Sources returns the index of the source packages in the given suites.
func (c *Client) Sources(ctx context.Context, suites ...Suite) (*SourceIndex, error) {
	return nil, errors.ErrUnsupported
}

// Index holds the binary packages of several suites.
type Index struct{}

// Origins returns the indexes that were read, in the order of the suites.
func (x *Index) Origins() []*Origin { return nil }

// Lookup returns the newest version of a package. "name=version" asks for
// exactly that version.
func (x *Index) Lookup(name string) (*Package, bool) { return nil, false }

// Names returns the names of all packages that match accepts, sorted.
func (x *Index) Names(match func(name string) bool) []string { return nil }

// ResolveOptions changes what Resolve returns.
type ResolveOptions struct {
	Exclude []string // packages to take as installed, with what only they need
}

// Resolve returns the named packages ("name" or "name=version") and all that
// they need through Pre-Depends and Depends, sorted by name.
func (x *Index) Resolve(names []string, opt ResolveOptions) ([]*Package, error) {
	return nil, errors.ErrUnsupported
}

// SourceIndex holds the source packages of several suites.
type SourceIndex struct{}

// Lookup returns a source package; an empty version asks for the newest.
func (x *SourceIndex) Lookup(name, version string) (*Source, error) {
	return nil, errors.ErrUnsupported
}
