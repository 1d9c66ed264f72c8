package lab

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hbollon/go-edlib"
	"gopkg.in/yaml.v3"
)

// Error is a mistake in a line of a lab.yaml.
type Error struct {
	Path string
	Line int
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Text) }

// decoder reads values out of YAML nodes and collects what is wrong with them.
type decoder struct {
	path string
	errs []*Error
	seen map[string]int // what may be there once, and the line where it is
}

func (d *decoder) fail(n *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, &Error{d.path, n.Line, fmt.Sprintf(format, args...)})
}

// err is all that was wrong, in the order of lines.
func (d *decoder) err() error {
	slices.SortStableFunc(d.errs, func(a, b *Error) int { return a.Line - b.Line })
	var all []error
	for _, e := range d.errs {
		all = append(all, e)
	}
	return errors.Join(all...)
}

// once makes sure that no two things share an identity.
func (d *decoder) once(n *yaml.Node, kind, value string) {
	key := kind + "\x00" + value
	if line, ok := d.seen[key]; ok {
		d.fail(n, "%s %s is already in line %d", kind, value, line)
		return
	}
	d.seen[key] = n.Line
}

// fields are the keys of a mapping and what to do with their values.
type fields map[string]func(*yaml.Node)

// mapping reads a mapping. Keys that begin with x- are for anchors, and "<<" merges
// one such mapping into another.
func (d *decoder) mapping(n *yaml.Node, what string, known fields) {
	entries, ok := d.entries(n, what)
	if !ok {
		return
	}
	for _, e := range entries {
		switch set := known[e.key.Value]; {
		case set != nil:
			set(e.value)
		case strings.HasPrefix(e.key.Value, "x-"):
		default:
			d.fail(e.key, "%s has no key %q%s", what, e.key.Value, meant(e.key.Value, slices.Collect(maps.Keys(known))))
		}
	}
}

// entry is a key of a mapping with its value.
type entry struct{ key, value *yaml.Node }

// entries are those of a mapping, without those that are empty.
func (d *decoder) entries(n *yaml.Node, what string) ([]entry, bool) {
	n = follow(n)
	if n.Kind != yaml.MappingNode {
		d.fail(n, "%s: want keys with values", what)
		return nil, false
	}
	own, merged := d.pairs(n, what), []entry(nil)
	for _, e := range own {
		if e.key.Value != "<<" {
			continue
		}
		if from := follow(e.value); from.Kind == yaml.MappingNode {
			merged = append(merged, d.pairs(from, what)...)
		} else {
			d.fail(e.key, "<< takes one mapping, *name")
		}
	}
	has := func(list []entry, key string) bool {
		return slices.ContainsFunc(list, func(e entry) bool { return e.key.Value == key })
	}
	for _, e := range merged {
		if !has(own, e.key.Value) {
			own = append(own, e)
		}
	}
	return slices.DeleteFunc(own, func(e entry) bool {
		return e.key.Value == "<<" || follow(e.value).Tag == "!!null"
	}), true
}

// pairs are the entries of a mapping as they are written.
func (d *decoder) pairs(n *yaml.Node, what string) []entry {
	var list []entry
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, ok := lines[key.Value]; ok {
			d.fail(key, "%s: key %q is already in line %d", what, key.Value, line)
			continue
		}
		lines[key.Value] = key.Line
		list = append(list, entry{key, n.Content[i+1]})
	}
	return list
}

// scalar reads one value.
func scalar[T any](d *decoder, dst *T, parse func(string) (T, error)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		n = follow(n)
		if n.Kind != yaml.ScalarNode {
			d.fail(n, "want one value")
			return
		}
		v, err := parse(n.Value)
		if err != nil {
			d.fail(n, "%v", err)
			return
		}
		*dst = v
	}
}

// list reads a list, or a single value as a list of one.
func list[T any](d *decoder, dst *[]T, parse func(string) (T, error)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		n = follow(n)
		nodes := n.Content
		if n.Kind == yaml.ScalarNode {
			nodes = []*yaml.Node{n}
		} else if n.Kind != yaml.SequenceNode {
			d.fail(n, "want a list")
			return
		}
		*dst = nil
		for _, item := range nodes {
			var v T
			before := len(d.errs)
			if scalar(d, &v, parse)(item); len(d.errs) == before {
				*dst = append(*dst, v)
			}
		}
	}
}

// file is a path in the description, which is relative to its directory.
func (d *decoder) file(v string) (string, error) {
	if v == "" || filepath.IsAbs(v) {
		return v, nil
	}
	return filepath.Join(filepath.Dir(d.path), v), nil
}

// follow is what an alias stands for.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// meant is a hint at the known name nearest to a mistyped one, or at all of them.
func meant(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	slices.Sort(known)
	distance := func(k string) int { return edlib.OSADamerauLevenshteinDistance(strings.ToLower(name), k) }
	best := slices.MinFunc(known, func(a, b string) int { return distance(a) - distance(b) })
	if distance(best) <= max(1, len(best)/3) {
		return fmt.Sprintf(" (did you mean %s?)", best)
	}
	return fmt.Sprintf(" (it knows %s)", strings.Join(known, ", "))
}
