package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mkp2pimg/images"
)

// Change is one thing in which two images differ.
type Change struct {
	What string `json:"what"`           // driver, input, file …
	Name string `json:"name,omitempty"` // of the input or file
	Old  string `json:"old"`            // "" if only the second image has it
	New  string `json:"new"`            // "" if only the first image has it
}

// Diff compares two images by their manifests: versions, edits, options, inputs,
// and the files of the initramfs. The order is fixed.
func Diff(a, b *images.Manifest) []Change {
	var list []Change
	one := func(what, before, after string) {
		if before != after {
			list = append(list, Change{What: what, Old: before, New: after})
		}
	}
	one("program", a.Product.Version, b.Product.Version)
	one("driver", a.Driver, b.Driver)
	one("kernel", a.Kernel, b.Kernel)
	one("gpus", strings.Join(a.GPUs, ", "), strings.Join(b.GPUs, ", "))
	one("profile", string(a.Profile), string(b.Profile))
	one("kernel parameters", strings.Join(a.CommandLine, " "), strings.Join(b.CommandLine, " "))
	one("go", a.Go, b.Go)
	list = append(list, each("module option", lines(a.Options), lines(b.Options))...)
	list = append(list, each("edits", edits(a), edits(b))...)
	list = append(list, each("input", inputs(a), inputs(b))...)
	list = append(list, each("go module", goModules(a), goModules(b))...)
	return append(list, each("file", files(a), files(b))...)
}

// each compares two maps of values by name.
func each(what string, a, b map[string]string) []Change {
	var list []Change
	all := maps.Clone(a)
	maps.Copy(all, b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if a[name] != b[name] {
			list = append(list, Change{what, name, a[name], b[name]})
		}
	}
	return list
}

func lines(list []string) map[string]string {
	m := map[string]string{}
	for _, line := range list {
		m[line] = "set"
	}
	return m
}

func edits(m *images.Manifest) map[string]string {
	sets := map[string]string{}
	for _, s := range m.ModuleSets {
		sets[s.Name] = "none"
		if len(s.Edits) > 0 {
			sets[s.Name] = strings.Join(s.Edits, " ")
		}
	}
	return sets
}

func inputs(m *images.Manifest) map[string]string {
	list := map[string]string{}
	for _, in := range m.Inputs {
		list[in.Role+" "+in.Name] = fmt.Sprintf("%s (sha256 %.12s)", in.Version, in.SHA256)
	}
	return list
}

func goModules(m *images.Manifest) map[string]string {
	list := map[string]string{}
	for _, mod := range m.GoModules {
		list[mod.Path] = mod.Version
	}
	return list
}

func files(m *images.Manifest) map[string]string {
	list := map[string]string{}
	for _, f := range m.Files {
		value := fmt.Sprintf("%d bytes, mode %s, sha256 %.12s", f.Size, f.Mode, f.SHA256)
		if f.Link != "" {
			value = "link to " + f.Link
		}
		list[f.Path] = value
	}
	return list
}
