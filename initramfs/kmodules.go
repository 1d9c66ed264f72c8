package initramfs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mikelolasagasti/xz"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/kmod/ko"
)

// ModuleReport says what became of the list of wanted kernel modules.
type ModuleReport struct {
	Chosen          []string `json:"chosen"`           // modules in the image, wanted or needed by a wanted one
	Builtin         []string `json:"builtin"`          // wanted, but part of the kernel itself
	Absent          []string `json:"absent"`           // wanted or named by a softdep, but neither a module nor built in
	MissingFirmware []string `json:"missing_firmware"` // "file (module)": firmware that chosen modules may ask for and the image lacks
}

// kernelModules is the module directory of an unpacked kernel package.
type kernelModules struct {
	dir     string            // host directory lib/modules/<release>
	files   map[string]string // path below dir by module name
	builtin map[string]bool
}

// openKernel indexes the modules of a kernel package.
func openKernel(pkg Package, release string) (*kernelModules, error) {
	k := &kernelModules{files: map[string]string{}, builtin: map[string]bool{}}
	for _, lib := range []string{"lib", "usr/lib"} {
		dir := filepath.Join(pkg.Root, lib, "modules", release)
		if _, err := os.Stat(filepath.Join(dir, "kernel")); err == nil {
			k.dir = dir
		}
	}
	if k.dir == "" {
		return nil, fmt.Errorf("package %s %s has no modules for kernel release %s", pkg.Name, pkg.Version, release)
	}
	err := fs.WalkDir(os.DirFS(k.dir), "kernel", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(name, ".ko") {
			k.files[moduleName(name)] = name
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the modules of %s: %w", pkg.Name, err)
	}
	list, err := os.ReadFile(filepath.Join(k.dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("package %s: %w", pkg.Name, err)
	}
	for line := range strings.Lines(string(list)) {
		k.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	return k, nil
}

// moduleName gives the name by which the kernel knows the module of a file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// read returns the content of a module, decompressed.
func (k *kernelModules) read(name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(k.dir, k.files[name]))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var r io.Reader = f
	switch path.Ext(f.Name()) {
	case ".ko":
	case ".xz":
		if r, err = xz.NewReader(f, xz.DefaultDictMax); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
	default:
		return nil, fmt.Errorf("%s: compressed in a way not known here (.ko and .ko.xz are)", f.Name())
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return data, nil
}

// chosen is a module of the image.
type chosen struct {
	name string
	file string // below the module directory, without compression suffix
	data []byte
	info *ko.Module
}

// choose returns the wanted modules and all they depend on, sorted by file.
func (k *kernelModules) choose(ctx context.Context, wanted []string) ([]*chosen, ModuleReport, error) {
	var rep ModuleReport
	done := map[string]*chosen{}
	var add func(name string) error
	add = func(name string) error {
		if done[name] != nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := k.read(name)
		if err != nil {
			return err
		}
		c := &chosen{name: name, file: strings.TrimSuffix(k.files[name], ".xz"), data: data}
		if c.info, err = ko.Parse(bytes.NewReader(data)); err != nil {
			return fmt.Errorf("%s: %w", k.files[name], err)
		}
		done[name] = c
		for _, dep := range c.info.Depends {
			dep = moduleName(dep)
			if k.builtin[dep] {
				continue
			}
			if k.files[dep] == "" {
				return fmt.Errorf("kernel module %s depends on %s, which the kernel package lacks", name, dep)
			}
			if err := add(dep); err != nil {
				return err
			}
		}
		for _, dep := range softdeps(c.info.Softdeps) {
			switch {
			case k.files[dep] != "":
				if err := add(dep); err != nil {
					return err
				}
			case !k.builtin[dep]:
				rep.Absent = append(rep.Absent, dep+" (softdep of "+name+")")
			}
		}
		return nil
	}
	for _, name := range wanted {
		switch {
		case k.files[name] != "":
			if err := add(name); err != nil {
				return nil, rep, err
			}
		case k.builtin[name]:
			rep.Builtin = append(rep.Builtin, name)
		default:
			rep.Absent = append(rep.Absent, name)
		}
	}
	var list []*chosen
	for name, c := range done {
		list = append(list, c)
		rep.Chosen = append(rep.Chosen, name)
		for _, fw := range c.info.Firmware {
			rep.MissingFirmware = append(rep.MissingFirmware, fw+" ("+name+")")
		}
	}
	slices.SortFunc(list, func(a, b *chosen) int { return cmp.Compare(a.file, b.file) })
	for _, s := range []*[]string{&rep.Chosen, &rep.Builtin, &rep.Absent, &rep.MissingFirmware} {
		slices.Sort(*s)
		*s = slices.Compact(*s)
	}
	return list, rep, nil
}

// softdeps returns the module names of softdep lines such as
// "pre: crc32c post: foo bar".
func softdeps(lines []string) []string {
	var names []string
	for _, line := range lines {
		for f := range strings.FieldsSeq(line) {
			if f != "pre:" && f != "post:" {
				names = append(names, moduleName(f))
			}
		}
	}
	return names
}

// addKernelModules puts modules and their indexes into the tree.
func addKernelModules(t *Tree, k *kernelModules, list []*chosen, pkg Package, release, work string) error {
	dir := layout.Modules(release)
	for _, c := range list {
		host := filepath.Join(work, "modules", c.file)
		if err := os.MkdirAll(filepath.Dir(host), 0o755); err != nil {
			return fmt.Errorf("unpack kernel modules: %w", err)
		}
		if err := os.WriteFile(host, c.data, 0o644); err != nil {
			return fmt.Errorf("unpack kernel modules: %w", err)
		}
		if err := t.AddFile(path.Join(dir, c.file), 0o644, host, pkg.origin()); err != nil {
			return err
		}
	}
	for name, data := range moduleIndexes(list) {
		if err := t.AddBytes(path.Join(dir, name), 0o644, []byte(data), Origin{Kind: Generated, Name: "depmod"}); err != nil {
			return err
		}
	}
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo"} {
		err := t.AddFile(path.Join(dir, name), 0o644, filepath.Join(k.dir, name), pkg.origin())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// moduleIndexes writes the text indexes that depmod writes (depmod.d(5),
// modules.dep(5)): modprobe of kmod reads them when the binary ones are not
// there, and modprobe of u-root reads modules.dep only.
func moduleIndexes(list []*chosen) map[string]string {
	byName := map[string]*chosen{}
	for _, c := range list {
		byName[c.name] = c
	}
	var dep, alias, soft strings.Builder
	alias.WriteString("# Aliases extracted from modules themselves.\n")
	soft.WriteString("# Soft dependencies extracted from modules themselves.\n")
	for _, c := range list {
		dep.WriteString(c.file + ":")
		for _, d := range dependencies(c, byName) {
			dep.WriteString(" " + d.file)
		}
		dep.WriteString("\n")
		for _, a := range c.info.Aliases {
			fmt.Fprintf(&alias, "alias %s %s\n", a, c.name)
		}
		for _, s := range c.info.Softdeps {
			fmt.Fprintf(&soft, "softdep %s %s\n", c.name, s)
		}
	}
	return map[string]string{"modules.dep": dep.String(), "modules.alias": alias.String(), "modules.softdep": soft.String()}
}

// dependencies lists all modules that c needs, each before those it needs
// itself: modprobe loads the list from its end.
func dependencies(c *chosen, byName map[string]*chosen) []*chosen {
	var order []*chosen
	seen := map[string]bool{c.name: true}
	var visit func(c *chosen)
	visit = func(c *chosen) {
		for _, name := range c.info.Depends {
			if d := byName[moduleName(name)]; d != nil && !seen[d.name] {
				seen[d.name] = true
				visit(d)
				order = append(order, d)
			}
		}
	}
	visit(c)
	slices.Reverse(order)
	return order
}
