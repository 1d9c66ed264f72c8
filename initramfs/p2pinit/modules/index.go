// Package modules loads the kernel modules that the machine's hardware asks for,
// from the index that depmod made of the image's modules.
package modules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Index knows the modules of one kernel release. Module names use underscores,
// as the kernel's do.
type Index struct {
	dir     string
	modules map[string]module
	builtin map[string]bool
	aliases []alias
}

type module struct {
	path  string   // of the file, below dir
	needs []string // names of modules to load before
}

// alias says which module drives the devices whose modalias matches a pattern.
type alias struct {
	prefix  string // of pattern, up to its first wildcard
	pattern string
	module  string
}

// ReadIndex reads modules.dep, and modules.alias and modules.builtin if they are
// there, from dir of root (lib/modules/<release>).
func ReadIndex(root fs.FS, dir string) (*Index, error) {
	x := &Index{dir: dir, modules: map[string]module{}, builtin: map[string]bool{}}
	for _, f := range []struct {
		name     string
		optional bool
		read     func(io.Reader) error
	}{
		{"modules.dep", false, x.readDep},
		{"modules.alias", true, x.readAlias},
		{"modules.builtin", true, x.readBuiltin},
	} {
		r, err := root.Open(path.Join(dir, f.name))
		if f.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("index of kernel modules: %w", err)
		}
		err = f.read(r)
		_ = r.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("index of kernel modules: %s: %w", path.Join(dir, f.name), err)
		}
	}
	if err := x.acyclic(); err != nil {
		return nil, fmt.Errorf("index of kernel modules: %s: %w", path.Join(dir, "modules.dep"), err)
	}
	return x, nil
}

// readDep reads lines "kernel/a/b.ko: kernel/c.ko kernel/d.ko".
func (x *Index) readDep(r io.Reader) error {
	return lines(r, func(line string) error {
		file, deps, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("no colon in %q", line)
		}
		m := module{path: file}
		for dep := range strings.FieldsSeq(deps) {
			m.needs = append(m.needs, nameOf(dep))
		}
		x.modules[nameOf(file)] = m
		return nil
	})
}

// readAlias reads lines "alias pci:v00001AF4d*sv*sd*bc*sc*i* virtio_pci".
func (x *Index) readAlias(r io.Reader) error {
	return lines(r, func(line string) error {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "alias" {
			return nil // a comment, or a kind of line of a later depmod
		}
		prefix := f[1]
		if i := strings.IndexAny(prefix, `*?[\`); i >= 0 {
			prefix = prefix[:i]
		}
		x.aliases = append(x.aliases, alias{prefix, f[1], normal(f[2])})
		return nil
	})
}

// readBuiltin reads lines "kernel/drivers/virtio/virtio.ko".
func (x *Index) readBuiltin(r io.Reader) error {
	return lines(r, func(line string) error {
		x.builtin[nameOf(line)] = true
		return nil
	})
}

func lines(r io.Reader, f func(string) error) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := f(line); err != nil {
			return err
		}
	}
	return s.Err()
}

// acyclic reports a module that needs itself: loading it would wait for ever.
func (x *Index) acyclic() error {
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case visiting:
			return fmt.Errorf("module %s depends on itself", name)
		case done:
			return nil
		}
		state[name] = visiting
		for _, need := range x.modules[name].needs {
			if err := visit(need); err != nil {
				return err
			}
		}
		state[name] = done
		return nil
	}
	for name := range x.modules {
		if err := visit(name); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether the kernel has the module, as a file or built in.
func (x *Index) Has(name string) bool {
	_, ok := x.modules[normal(name)]
	return ok || x.builtin[normal(name)]
}

// Match returns the names of the modules for a device with this modalias, sorted.
func (x *Index) Match(modalias string) []string {
	device := normalAlias(strings.TrimSpace(modalias))
	var names []string
	for _, a := range x.aliases {
		if strings.HasPrefix(device, a.prefix) && matches(a.pattern, device) {
			names = append(names, a.module)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// matches is fnmatch(3) without flags: unlike in path.Match, a wildcard also
// stands for a slash. A malformed pattern matches nothing.
func matches(pattern, s string) bool {
	const slash = "\x01" // in neither patterns nor modaliases
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", slash), strings.ReplaceAll(s, "/", slash))
	return ok && err == nil
}

// nameOf returns the name of the module in a file: drivers/nvme/host/nvme-core.ko
// is nvme_core. Compressed modules (.ko.xz) have the same name.
func nameOf(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return normal(name)
}

// normal spells a module's name as the kernel does.
func normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

// normalAlias spells a modalias as depmod does in modules.alias: with underscores,
// except between brackets.
func normalAlias(s string) string {
	out, brackets := []byte(s), 0
	for i, c := range out {
		switch {
		case c == '[':
			brackets++
		case c == ']' && brackets > 0:
			brackets--
		case c == '-' && brackets == 0:
			out[i] = '_'
		}
	}
	return string(out)
}

// Modaliases returns the modaliases of all devices below root/sys/bus, sorted,
// each once. Devices that vanish meanwhile are left out.
func Modaliases(root fs.FS) ([]string, error) {
	files, err := fs.Glob(root, "sys/bus/*/devices/*/modalias")
	if err != nil {
		return nil, err
	}
	var all []string
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if s := strings.TrimSpace(string(text)); err == nil && s != "" {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
