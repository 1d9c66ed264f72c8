// Package debian reads Debian archives: it verifies a suite's signed index,
// finds packages and what they depend on, and unpacks binary and source
// packages. It needs no Debian host and none of Debian's tools.
package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"mkp2pimg/internal/fetch"
)

// Default places of the Debian archives.
const (
	DefaultMirror         = "https://deb.debian.org/debian"
	DefaultSecurityMirror = "https://deb.debian.org/debian-security"
	DefaultSnapshot       = "https://snapshot.debian.org/archive"
)

// Suite names the part of an archive to read, as a sources.list line does.
type Suite struct {
	Name       string   // directory below dists/, such as "bookworm-security"
	Mirror     string   // base URL, such as DefaultMirror
	Snapshot   string   // base URL of the archive's history, such as DefaultSnapshot+"/debian"; may be empty
	Components []string // such as "main", "non-free-firmware"
}

// Suites returns the suites of a release (codename such as "bookworm") in
// which this program looks for its inputs: the release, its updates and its
// security fixes, with all components. Empty mirrors mean the default ones.
func Suites(codename, mirror, securityMirror string) []Suite {
	if mirror == "" {
		mirror = DefaultMirror
	}
	if securityMirror == "" {
		securityMirror = DefaultSecurityMirror
	}
	components := []string{"main", "contrib", "non-free", "non-free-firmware"}
	return []Suite{
		{codename, mirror, DefaultSnapshot + "/debian", components},
		{codename + "-updates", mirror, DefaultSnapshot + "/debian", components},
		{codename + "-security", securityMirror, DefaultSnapshot + "/debian-security", components},
	}
}

// Backports returns the suite with newer versions of some packages of a release.
func Backports(codename, mirror string) Suite {
	s := Suites(codename, mirror, "")[0]
	s.Name += "-backports"
	return s
}

// Origin is the verified index that a package or source was found in.
type Origin struct {
	Suite
	Date      time.Time // the index's Date: when the archive was in this state
	InRelease string    // SHA-256 of the InRelease document
}

// URLs returns where the file at path (below the mirror's base) can be had:
// the mirror, then the archive's snapshots around the index's date.
//
// A snapshot URL answers with the last state recorded up to its time. The
// recording follows the index within hours, so a file that came with this
// very index is only in the one of the next day.
func (o *Origin) URLs(path string) []string {
	urls := []string{join(o.Mirror, path)}
	if o.Snapshot != "" && !o.Date.IsZero() {
		for _, t := range []time.Time{o.Date, o.Date.AddDate(0, 0, 1)} {
			urls = append(urls, join(o.Snapshot, t.UTC().Format("20060102T150405Z"), path))
		}
	}
	return urls
}

func join(base string, parts ...string) string {
	return strings.TrimRight(base, "/") + "/" + path.Join(parts...)
}

// Client reads archives through a fetch client.
type Client struct {
	Fetch *fetch.Client
	Keys  openpgp.EntityList // who may sign an index; nil: ArchiveKeys()
	Now   func() time.Time   // nil: time.Now
}

// maxInRelease bounds an InRelease document: the largest of Debian's are
// below 300 kB.
const maxInRelease = 8 << 20

// release fetches and verifies the index of a suite.
func (c *Client) release(ctx context.Context, s Suite) (*Release, *Origin, error) {
	url := join(s.Mirror, "dists", s.Name, "InRelease")
	data, err := c.Fetch.Document(ctx, url, maxInRelease)
	if err != nil {
		return nil, nil, err
	}
	keys, now := c.Keys, time.Now
	if keys == nil {
		keys = ArchiveKeys()
	}
	if c.Now != nil {
		now = c.Now
	}
	rel, err := ParseInRelease(data, keys, now())
	if err == nil && s.Name != rel.Suite && s.Name != rel.Codename {
		err = fmt.Errorf("%w: it is for %s (%s)", ErrWrongSuite, rel.Codename, rel.Suite)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", url, err)
	}
	sum := sha256.Sum256(data)
	return rel, &Origin{Suite: s, Date: rel.Date, InRelease: hex.EncodeToString(sum[:])}, nil
}

// index is one Packages or Sources file to read.
type index struct {
	origin    *Origin
	component string
	name      string // for messages
	file      fetch.File
}

// indexes lists the files called names below each component of the suites.
// A name such as "binary-all/Packages" is left out where the suite says that
// it has none.
func (c *Client) indexes(ctx context.Context, suites []Suite, names ...string) ([]index, error) {
	var all []index
	for _, s := range suites {
		rel, origin, err := c.release(ctx, s)
		if err != nil {
			return nil, err
		}
		for _, component := range s.Components {
			for _, name := range names {
				if name == allPackages && !rel.separateAll() {
					continue
				}
				file, err := rel.index(path.Join(component, name), origin)
				if err != nil {
					return nil, err
				}
				all = append(all, index{origin, component, s.Name + "/" + component + "/" + name, file})
			}
		}
	}
	return all, nil
}

const allPackages = "binary-all/Packages"

// read fetches the indexes and calls fn for each paragraph of each of them.
func (c *Client) read(ctx context.Context, indexes []index, fields []string, fn func(index, paragraph) error) error {
	files := make([]fetch.File, len(indexes))
	for i, x := range indexes {
		files[i] = x.file
	}
	paths, err := c.Fetch.GetAll(ctx, files)
	if err != nil {
		return err
	}
	for i, x := range indexes {
		if err := readIndex(paths[i], fields, func(p paragraph) error { return fn(x, p) }); err != nil {
			return &DamagedError{x.name, err}
		}
	}
	return nil
}

func readIndex(path string, fields []string, fn func(paragraph) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := unzip(f)
	if err != nil {
		return err
	}
	defer r.Close()
	return readParagraphs(r, fields, fn)
}

// index returns the compressed form of an index that reads fastest. Xz files
// are a quarter smaller than gzip's, but take ten times as long to unpack.
func (r *Release) index(name string, o *Origin) (fetch.File, error) {
	for _, ext := range []string{".gz", ".xz", ""} {
		sum, ok := r.Files[name+ext]
		if !ok {
			continue
		}
		plain := path.Join("dists", o.Name, name+ext)
		urls := o.URLs(plain)
		if r.ByHash {
			urls = slices.Insert(urls, 0, join(o.Mirror, path.Dir(plain), "by-hash", "SHA256", sum.SHA256))
		}
		return fetch.File{Name: o.Name + "/" + name + ext, URLs: urls, SHA256: sum.SHA256, Size: sum.Size}, nil
	}
	return fetch.File{}, fmt.Errorf("suite %s at %s has no %s: it has the components %s for the architectures %s",
		o.Name, o.Mirror, name, strings.Join(r.Components, ", "), strings.Join(r.Architectures, ", "))
}
