// Package catalog knows the driver releases: where their parts come from, and what each
// generation of their source needs for peer-to-peer over BAR1.
package catalog

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gopkg.in/yaml.v3"

	"mkp2pimg/kmod/loadopt"
)

// Latest asks [Lookup] for the newest release of all.
const Latest = "latest"

//go:embed catalog.yaml
var data []byte

// Schema is the JSON schema of the catalog's data.
//
//go:embed schema.json
var Schema []byte

// Catalog is the data as a whole.
type Catalog struct {
	Version int `yaml:"version"`
	// Default is the release that is built if none is asked for.
	Default string `yaml:"default"`
	// Upstream is where releases come from that Debian does not carry.
	Upstream Upstream `yaml:"upstream"`
	// Generations are the generations of the resource manager, oldest first.
	Generations []Generation `yaml:"generations"`
	// Families are the GPU families, oldest first.
	Families []Family `yaml:"families"`
	// Branches are the release branches, oldest first.
	Branches []Branch `yaml:"branches"`
	// Traps are what to know about GPUs, by name.
	Traps map[string]string `yaml:"traps"`
	// GPUs are the known GPU models, by device id.
	GPUs []GPU `yaml:"gpus"`
	// Releases are sorted by version, oldest first.
	Releases []Release `yaml:"releases"`
}

// Upstream is where NVIDIA publishes a release. "{version}" stands for the release.
type Upstream struct {
	// Repository is the git repository with a tag per release.
	Repository string `yaml:"repository"`
	// Userspace is the archive with firmware and user space.
	Userspace string `yaml:"userspace"`
}

// Need is what it takes to get peer-to-peer over BAR1.
type Need string

const (
	// Edits means that the driver's source must be edited.
	Edits Need = "edits"
	// Options means that module options are enough.
	Options Need = "options"
)

// Generation is a stretch of releases whose resource managers are alike in what concerns BAR1.
type Generation struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// Needs tells for each GPU family how to get peer-to-peer over BAR1. A family that is
	// missing is not supported.
	Needs map[string]Need `yaml:"needs"`
	// Offers is what the generation's source lets one set.
	Offers loadopt.Offer `yaml:"offers"`
}

// Family is a family of GPUs.
type Family struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// First is the first branch that knows the family.
	First int `yaml:"first"`
	// Recommended is the branch to take: a well kept one of those that need the least for it.
	Recommended int `yaml:"recommended"`
}

// Branch is a release branch, such as 535.
type Branch struct {
	Branch     int    `yaml:"branch"`
	Generation string `yaml:"generation"`
	// HoldsBack is [loadopt.Offer.HoldsBack], which differs within a generation.
	HoldsBack bool `yaml:"holds_back"`
}

// Release is a release of the driver.
type Release struct {
	// Version is such as "535.261.03".
	Version string `yaml:"version"`
	// Commit is the commit of the release's tag in the upstream repository.
	Commit string `yaml:"commit"`
	// Tree is the hash of the git tree of that commit: the same for whoever has the release's
	// source, whether it came from git, as an archive or as a directory.
	Tree string `yaml:"tree"`
	// Debian names the Debian packages of the release, if Debian carries it whole.
	Debian *Debian `yaml:"debian"`
	// Elsewhere names those of a Debian suite that builds do not read.
	Elsewhere *Debian `yaml:"elsewhere"`
}

// Debian names the packages of a release in Debian.
type Debian struct {
	// Suite is the suite that has them all.
	Suite string `yaml:"suite"`
	// Source and SourceVersion are the source package whose orig tarball is the full source.
	Source        string `yaml:"source"`
	SourceVersion string `yaml:"source_version"`
	// Version is the version of all binary packages.
	Version string `yaml:"version"`
	// Firmware and Userspace are names of binary packages.
	Firmware  []string `yaml:"firmware"`
	Userspace []string `yaml:"userspace"`
}

// UnknownError reports a release that the catalog does not have.
type UnknownError struct {
	// Asked is what was looked up.
	Asked string
	// Near are the releases or branches that come closest.
	Near []string
}

func (e *UnknownError) Error() string {
	return fmt.Sprintf("driver %q is not known; near it are %s, or say %q", e.Asked, strings.Join(e.Near, ", "), Latest)
}

// Load returns the catalog. It panics if the data built into the program is broken.
var Load = sync.OnceValue(func() *Catalog {
	c, err := parse(data)
	if err != nil {
		panic(err)
	}
	return c
})

func parse(text []byte) (*Catalog, error) {
	c := &Catalog{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil {
		return nil, fmt.Errorf("read the driver catalog: %w", err)
	}
	return c, nil
}

// Lookup finds a release by its version ("535.261.03"), the newest known of a branch ("535"), the
// newest of all ("latest") or the default (""). The error is an [*UnknownError].
func Lookup(driver string) (*Release, error) {
	return Load().Lookup(driver)
}

// Lookup is [Lookup] in this catalog.
func (c *Catalog) Lookup(driver string) (*Release, error) {
	if driver == "" {
		driver = c.Default
	}
	for i := range slices.Backward(c.Releases) {
		r := &c.Releases[i]
		if driver == Latest || driver == r.Version || driver == strconv.Itoa(r.Branch()) {
			return r, nil
		}
	}
	return nil, &UnknownError{Asked: driver, Near: c.near(driver)}
}

// nearby is how many releases an error suggests.
const nearby = 4

// near returns what comes closest to an unknown release: releases of its branch, or branches.
func (c *Catalog) near(driver string) []string {
	asked, err := parseVersion(driver)
	if err != nil {
		return c.branchNames()
	}
	var below, above []string
	for _, r := range c.Releases {
		if r.Branch() != asked[0] {
			continue
		}
		if compare(r.Version, driver) < 0 {
			below = append(below, r.Version)
		} else {
			above = append(above, r.Version)
		}
	}
	if below == nil && above == nil {
		return c.branchNames()
	}
	above = above[:min(len(above), nearby/2)]
	below = below[max(0, len(below)-(nearby-len(above))):]
	return slices.Concat(below, above)
}

func (c *Catalog) branchNames() []string {
	var names []string
	for _, b := range c.Branches {
		names = append(names, strconv.Itoa(b.Branch))
	}
	return names
}

// Generation returns the generation of a release's resource manager.
func (c *Catalog) Generation(r *Release) (*Generation, error) {
	g, _ := c.generation(r.Branch())
	if g == nil {
		return nil, fmt.Errorf("driver %s: no generation is known for branch %d", r.Version, r.Branch())
	}
	return g, nil
}

// generation returns the generation of a branch and the branch, or nil if they are not known.
func (c *Catalog) generation(branch int) (*Generation, *Branch) {
	i := slices.IndexFunc(c.Branches, func(b Branch) bool { return b.Branch == branch })
	if i < 0 {
		return nil, nil
	}
	b := &c.Branches[i]
	i = slices.IndexFunc(c.Generations, func(g Generation) bool { return g.Name == b.Generation })
	if i < 0 {
		return nil, nil
	}
	return &c.Generations[i], b
}

// Need returns what BAR1 peer-to-peer needs on a GPU family with a release, and whether the release
// knows the family.
func (c *Catalog) Need(r *Release, family string) (Need, bool) {
	f := c.Family(family)
	g, _ := c.generation(r.Branch())
	if f == nil || g == nil || r.Branch() < f.First {
		return "", false
	}
	need, ok := g.Needs[family]
	return need, ok
}

// Offer returns what a release lets one set.
func (c *Catalog) Offer(r *Release) (loadopt.Offer, error) {
	g, b := c.generation(r.Branch())
	if g == nil {
		return loadopt.Offer{}, fmt.Errorf("driver %s: what branch %d offers is not known", r.Version, r.Branch())
	}
	o := g.Offers
	o.HoldsBack = b.HoldsBack
	return o, nil
}

// Newest returns the newest release of a branch, or nil if the catalog has none.
func (c *Catalog) Newest(branch int) *Release {
	for i := range slices.Backward(c.Releases) {
		if c.Releases[i].Branch() == branch {
			return &c.Releases[i]
		}
	}
	return nil
}

// Branch returns the branch of the release, such as 535.
func (r *Release) Branch() int {
	v, err := parseVersion(r.Version)
	if err != nil {
		return 0
	}
	return v[0]
}

// Origin says in words where the parts of a release come from.
func (c *Catalog) Origin(r *Release) string {
	if r.Debian != nil {
		return r.Debian.String()
	}
	s := fmt.Sprintf("source: commit %s (tag %s) of %s; firmware and user space: %s", r.Commit, r.Version,
		c.Upstream.Repository, strings.ReplaceAll(c.Upstream.Userspace, "{version}", r.Version))
	if r.Elsewhere != nil {
		s += "; all of it to fetch by hand: " + r.Elsewhere.String()
	}
	return s
}

// String names the packages and their suite.
func (d *Debian) String() string {
	return fmt.Sprintf("Debian %s: source package %s %s, %s in version %s", d.Suite, d.Source, d.SourceVersion,
		strings.Join(slices.Concat(d.Firmware, d.Userspace), ", "), d.Version)
}

func parseVersion(s string) ([]int, error) {
	var v []int
	for part := range strings.SplitSeq(s, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("driver version %q: %w", s, err)
		}
		v = append(v, n)
	}
	return v, nil
}

// compare orders versions by their numbers. Broken ones come first.
func compare(a, b string) int {
	va, _ := parseVersion(a)
	vb, _ := parseVersion(b)
	return cmp.Or(slices.Compare(va, vb), cmp.Compare(len(va), len(vb)))
}
