package debian

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pault.ag/go/debian/dependency"
	"pault.ag/go/debian/version"
)

// ResolveOptions changes what Resolve returns.
type ResolveOptions struct {
	Exclude []string // packages to take as installed, with what only they need
}

// MissingError says that a package which is needed is in no index.
type MissingError struct {
	Need   string   // relation, such as "libfoo (>= 2) | libbar"
	Chain  []string // who needs it: the package, who needs that one, … up to a package asked for
	Newest string   // newest version there is of the first name in Need; may be empty
	Chosen string   // version of it that another package asked for; may be empty
	Suites []string // where it was looked for
}

func (e *MissingError) Error() string {
	var b strings.Builder
	b.WriteString("package " + e.Need)
	for _, who := range e.Chain {
		b.WriteString(", needed by " + who)
	}
	if len(e.Chain) > 0 {
		b.WriteString(",")
	}
	switch {
	case e.Chosen != "":
		b.WriteString(" can't be had: version " + e.Chosen + " is needed by another package")
	case e.Newest != "":
		b.WriteString(" is in none of " + strings.Join(e.Suites, ", ") + ": the newest there is " + e.Newest)
	default:
		b.WriteString(" is in none of " + strings.Join(e.Suites, ", "))
	}
	return b.String()
}

// Resolve returns the named packages ("name" or "name=version") and all that
// they need through Pre-Depends and Depends, sorted by name. Of alternatives
// it takes one that is needed anyway, else the first that there is; of the
// providers of a virtual package the most important, then the first by name.
// Conflicts don't matter here: packages are unpacked, not installed.
func (x *Index) Resolve(names []string, opt ResolveOptions) ([]*Package, error) {
	r := resolver{
		Index:    x,
		excluded: make(map[string]bool),
		chosen:   make(map[string]*Package),
		needer:   make(map[string]*Package),
	}
	for _, name := range opt.Exclude {
		r.excluded[name] = true
	}
	for _, name := range names {
		p, ok := x.Lookup(name)
		if !ok {
			p, ok = r.best(dependency.Possibility{Name: name})
		}
		if !ok {
			return nil, r.missing(name, nil, name)
		}
		r.choose(p, nil)
	}
	// First come, first served: packages asked for decide before those that
	// they need, so the outcome doesn't hang on the order of the index.
	for len(r.queue) > 0 {
		p := r.queue[0]
		r.queue = r.queue[1:]
		for _, field := range []string{p.PreDepends, p.Depends} {
			if err := r.satisfy(p, field); err != nil {
				return nil, err
			}
		}
	}
	return slices.SortedFunc(maps.Values(r.chosen), func(a, b *Package) int { return strings.Compare(a.Name, b.Name) }), nil
}

type resolver struct {
	*Index
	excluded map[string]bool
	chosen   map[string]*Package
	needer   map[string]*Package // who needs a chosen package; nil for those asked for
	queue    []*Package
}

func (r *resolver) choose(p, needer *Package) {
	if r.chosen[p.Name] == nil {
		r.chosen[p.Name] = p
		r.needer[p.Name] = needer
		r.queue = append(r.queue, p)
	}
}

// satisfy chooses what the dependency field of p asks for.
func (r *resolver) satisfy(p *Package, field string) error {
	dep, err := dependency.Parse(field)
	if err != nil {
		return fmt.Errorf("package %s %s: dependencies %q: %w", p.Name, p.Version, field, err)
	}
	for _, rel := range dep.Relations {
		if len(rel.Possibilities) == 0 || slices.ContainsFunc(rel.Possibilities, r.satisfied) {
			continue
		}
		found := false
		for _, want := range rel.Possibilities {
			var q *Package
			if q, found = r.best(want); found {
				r.choose(q, p)
				break
			}
		}
		if !found {
			return r.missing(rel.String(), p, rel.Possibilities[0].Name)
		}
	}
	return nil
}

// satisfied reports whether the packages chosen so far have what is wanted.
func (r *resolver) satisfied(want dependency.Possibility) bool {
	if r.excluded[want.Name] {
		return true
	}
	if p := r.chosen[want.Name]; p != nil && meets(p.Version, want) {
		return true
	}
	return slices.ContainsFunc(r.providers[want.Name], func(v provider) bool {
		return r.chosen[v.Name] == v.Package && v.meets(want)
	})
}

// best returns the package to take for what is wanted.
func (r *resolver) best(want dependency.Possibility) (*Package, bool) {
	if r.chosen[want.Name] == nil {
		for _, p := range r.versions[want.Name] {
			if meets(p.Version, want) {
				return p, true
			}
		}
	}
	for _, v := range r.providers[want.Name] {
		if r.chosen[v.Name] == nil && v.meets(want) {
			return v.Package, true
		}
	}
	return nil, false
}

// meets reports whether a version is what is wanted.
func meets(v string, want dependency.Possibility) bool {
	if want.Version == nil {
		return true
	}
	parsed, err := version.Parse(v)
	return err == nil && want.Version.SatisfiedBy(parsed)
}

func (r *resolver) missing(need string, needer *Package, first string) error {
	e := &MissingError{Need: need}
	for p := needer; p != nil; p = r.needer[p.Name] {
		e.Chain = append(e.Chain, p.Name+" "+p.Version)
	}
	if p := r.chosen[first]; p != nil {
		e.Chosen = p.Version
	}
	first, _, _ = strings.Cut(first, "=")
	if all := r.versions[first]; len(all) > 0 {
		e.Newest = all[0].Version
	}
	for _, o := range r.origins {
		e.Suites = append(e.Suites, o.Name)
	}
	return e
}

// provider is a package that provides a virtual one.
type provider struct {
	*Package
	version string // of what it provides; may be empty
}

// meets reports whether the provider is what is wanted: only a versioned
// Provides satisfies a versioned dependency (Debian policy, section 7.5).
func (v provider) meets(want dependency.Possibility) bool {
	return want.Version == nil || v.version != "" && meets(v.version, want)
}

// provide indexes the Provides of the newest version of each package.
func (x *Index) provide() error {
	providers := make(map[string][]provider)
	for _, all := range x.versions {
		p := all[0]
		if p.Provides == "" {
			continue
		}
		dep, err := dependency.Parse(p.Provides)
		if err != nil {
			return fmt.Errorf("package %s %s: provides %q: %w", p.Name, p.Version, p.Provides, err)
		}
		for _, rel := range dep.Relations {
			for _, name := range rel.Possibilities {
				v := provider{Package: p}
				if name.Version != nil {
					v.version = name.Version.Number
				}
				providers[name.Name] = append(providers[name.Name], v)
			}
		}
	}
	for _, all := range providers {
		slices.SortFunc(all, func(a, b provider) int {
			if d := rank(a.Priority) - rank(b.Priority); d != 0 {
				return d
			}
			return strings.Compare(a.Name, b.Name)
		})
	}
	x.providers = providers
	return nil
}

// rank orders priorities (Debian policy, section 2.5), most important first.
func rank(priority string) int {
	order := []string{"required", "important", "standard", "optional"}
	if i := slices.Index(order, priority); i >= 0 {
		return i
	}
	return len(order)
}
