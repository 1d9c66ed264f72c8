package debian

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"pault.ag/go/debian/version"

	"mkp2pimg/internal/fetch"
)

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
func (p *Package) File() fetch.File {
	return fetch.File{
		Name:   path.Base(p.Filename),
		URLs:   p.Origin.URLs(p.Filename),
		SHA256: p.SHA256,
		Size:   p.Size,
	}
}

// Packages returns the index of the binary packages of one architecture
// (such as "amd64") and of architecture "all" in the given suites.
func (c *Client) Packages(ctx context.Context, arch string, suites ...Suite) (*Index, error) {
	indexes, err := c.indexes(ctx, suites, "binary-"+arch+"/Packages", allPackages)
	if err != nil {
		return nil, err
	}
	x := &Index{versions: make(map[string][]*Package)}
	err = c.read(ctx, indexes, packageFields, func(i index, f paragraph) error {
		p, err := newPackage(f)
		if err != nil {
			return err
		}
		p.Origin, p.Component = i.origin, i.component
		x.versions[p.Name] = append(x.versions[p.Name], p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, i := range indexes {
		if !slices.Contains(x.origins, i.origin) {
			x.origins = append(x.origins, i.origin)
		}
	}
	return x, x.finish()
}

var packageFields = []string{
	"Package", "Version", "Architecture", "Source", "Filename", "SHA256", "Size",
	"Installed-Size", "Priority", "Pre-Depends", "Depends", "Provides",
}

func newPackage(f paragraph) (*Package, error) {
	p := &Package{
		Name:         f["Package"],
		Version:      f["Version"],
		Architecture: f["Architecture"],
		Filename:     f["Filename"],
		SHA256:       f["SHA256"],
		Priority:     f["Priority"],
		PreDepends:   f["Pre-Depends"],
		Depends:      f["Depends"],
		Provides:     f["Provides"],
	}
	// "Source: name (version)": what is not said is as for the package.
	p.Source, p.SourceVersion, _ = strings.Cut(strings.TrimSuffix(f["Source"], ")"), " (")
	if p.Source == "" {
		p.Source = p.Name
	}
	if p.SourceVersion == "" {
		p.SourceVersion = p.Version
	}
	var err error
	if p.Size, err = strconv.ParseInt(f["Size"], 10, 64); err != nil || p.Size <= 0 {
		return nil, fmt.Errorf("package %q: bad Size %q", p.Name, f["Size"])
	}
	if s := f["Installed-Size"]; s != "" {
		if p.InstalledSize, err = strconv.ParseInt(s, 10, 64); err != nil {
			return nil, fmt.Errorf("package %q: bad Installed-Size %q", p.Name, s)
		}
	}
	switch {
	case p.Name == "" || p.Version == "":
		return nil, fmt.Errorf("package %q: no name or no version", p.Name)
	case !isDigest(p.SHA256):
		return nil, fmt.Errorf("package %q: bad SHA256 %q", p.Name, p.SHA256)
	case !fs.ValidPath(p.Filename):
		return nil, fmt.Errorf("package %q: bad Filename %q", p.Name, p.Filename)
	}
	return p, nil
}

// Index holds the binary packages of several suites. It may be used from
// several goroutines.
type Index struct {
	origins   []*Origin
	versions  map[string][]*Package // newest first; of equal versions that of the earlier suite
	providers map[string][]provider // by virtual package, the one to prefer first
}

// finish makes the index ready for use once all packages are in it.
func (x *Index) finish() error {
	if err := x.sort(); err != nil {
		return err
	}
	return x.provide()
}

// sort puts the newest version of each package first.
func (x *Index) sort() error {
	for name, all := range x.versions {
		if len(all) == 1 {
			continue
		}
		parsed := make(map[*Package]version.Version, len(all))
		for _, p := range all {
			v, err := version.Parse(p.Version)
			if err != nil {
				return fmt.Errorf("package %s in %s: version %q: %w", name, p.Origin.Name, p.Version, err)
			}
			parsed[p] = v
		}
		slices.SortStableFunc(all, func(a, b *Package) int { return version.Compare(parsed[b], parsed[a]) })
	}
	return nil
}

// Origins returns the indexes that were read, in the order of the suites.
func (x *Index) Origins() []*Origin { return x.origins }

// Lookup returns the newest version of a package. "name=version" asks for
// exactly that version.
func (x *Index) Lookup(name string) (*Package, bool) {
	name, want, exact := strings.Cut(name, "=")
	for _, p := range x.versions[name] {
		if !exact || p.Version == want {
			return p, true
		}
	}
	return nil, false
}

// Names returns the names of all packages that match accepts, sorted.
func (x *Index) Names(match func(name string) bool) []string {
	var names []string
	for name := range x.versions {
		if match(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
