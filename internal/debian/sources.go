package debian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"pault.ag/go/debian/version"

	"mkp2pimg/internal/fetch"
)

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
func (s *Source) Orig() (SourceFile, error) { return s.tarball(".orig.tar.") }

// Debian returns the tarball of the debian/ folder (name_version.debian.tar.*).
func (s *Source) Debian() (SourceFile, error) { return s.tarball(".debian.tar.") }

func (s *Source) tarball(part string) (SourceFile, error) {
	i := slices.IndexFunc(s.Files, func(f SourceFile) bool {
		return strings.Contains(f.Name, part) && !strings.HasSuffix(f.Name, ".asc")
	})
	if i < 0 {
		return SourceFile{}, fmt.Errorf("source package %s %s (format %s) has no %s*", s.Name, s.Version, s.Format, part)
	}
	return s.Files[i], nil
}

// File returns what to fetch for one of the source package's files. The
// source must be from an index.
func (s *Source) File(f SourceFile) fetch.File {
	return fetch.File{
		Name:   f.Name,
		URLs:   s.Origin.URLs(path.Join(s.Directory, f.Name)),
		SHA256: f.SHA256,
		Size:   f.Size,
	}
}

// Sources returns the index of the source packages in the given suites.
func (c *Client) Sources(ctx context.Context, suites ...Suite) (*SourceIndex, error) {
	indexes, err := c.indexes(ctx, suites, "source/Sources")
	if err != nil {
		return nil, err
	}
	x := &SourceIndex{sources: make(map[string][]*Source)}
	err = c.read(ctx, indexes, sourceFields, func(i index, f paragraph) error {
		s, err := newSource(f["Package"], f)
		if err != nil {
			return err
		}
		s.Origin, s.Component = i.origin, i.component
		x.sources[s.Name] = append(x.sources[s.Name], s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, s := range suites {
		x.suites = append(x.suites, s.Name)
	}
	return x, nil
}

var sourceFields = []string{"Package", "Source", "Version", "Format", "Directory", "Checksums-Sha256"}

// ParseDSC reads a .dsc. Its signature, if any, is not verified: the digests
// that count are those of the signed Sources index.
func ParseDSC(data []byte) (*Source, error) {
	if block, _ := clearsign.Decode(data); block != nil {
		data = block.Plaintext
	}
	var s *Source
	err := readParagraphs(bytes.NewReader(data), sourceFields, func(f paragraph) (err error) {
		if s != nil {
			return errOnce
		}
		s, err = newSource(f["Source"], f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dsc: %w", err)
	}
	if s == nil {
		return nil, errors.New("dsc: is empty")
	}
	return s, nil
}

func newSource(name string, f paragraph) (*Source, error) {
	s := &Source{Name: name, Version: f["Version"], Format: f["Format"], Directory: f["Directory"]}
	if s.Name == "" || s.Version == "" {
		return nil, fmt.Errorf("source package %q: no name or no version", s.Name)
	}
	if s.Directory != "" && !fs.ValidPath(s.Directory) {
		return nil, fmt.Errorf("source package %q: bad Directory %q", s.Name, s.Directory)
	}
	files, err := sums(f["Checksums-Sha256"])
	if err != nil {
		return nil, fmt.Errorf("source package %q: Checksums-Sha256: %w", s.Name, err)
	}
	for _, file := range files {
		if strings.Contains(file.name, "/") || !fs.ValidPath(file.name) {
			return nil, fmt.Errorf("source package %q: bad file name %q", s.Name, file.name)
		}
		s.Files = append(s.Files, SourceFile{file.name, file.sha256, file.size})
	}
	return s, nil
}

// SourceIndex holds the source packages of several suites.
type SourceIndex struct {
	sources map[string][]*Source
	suites  []string
}

// Lookup returns a source package; an empty version asks for the newest.
func (x *SourceIndex) Lookup(name, wanted string) (*Source, error) {
	var best *Source
	var newest version.Version
	var have []string
	for _, s := range x.sources[name] {
		if s.Version == wanted {
			return s, nil
		}
		v, err := version.Parse(s.Version)
		if err != nil {
			return nil, fmt.Errorf("source package %s: version %q: %w", name, s.Version, err)
		}
		if best == nil || version.Compare(v, newest) > 0 {
			best, newest = s, v
		}
		have = append(have, s.Version)
	}
	suites := strings.Join(x.suites, ", ")
	switch {
	case best == nil:
		return nil, fmt.Errorf("source package %s is in none of %s", name, suites)
	case wanted != "":
		return nil, fmt.Errorf("source package %s has no version %s in %s: there is %s",
			name, wanted, suites, strings.Join(have, ", "))
	}
	return best, nil
}
