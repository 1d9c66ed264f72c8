package initramfs

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mkp2pimg/initramfs/layout"
)

// LibraryDirs are the directories of a package that are searched for shared
// libraries: Debian's multiarch ones before and after the usr merge, the one
// where Debian's driver packages keep theirs (alternatives link to it on an
// installed system), and the top of an unpacked .run archive.
var LibraryDirs = []string{
	"usr/lib/x86_64-linux-gnu/nvidia/current",
	"usr/lib/x86_64-linux-gnu",
	"lib/x86_64-linux-gnu",
	"usr/lib64",
	"lib64",
	".",
}

// library is a shared library found in a package.
type library struct {
	file   string // base name of the file itself, libcuda.so.535.261.03
	soname string
	host   string
	pkg    *Package
}

// libraries indexes the shared libraries of packages by soname and file name.
// The first package that has a name wins.
func libraries(pkgs []Package) (map[string]*library, error) {
	index := map[string]*library{}
	for i := range pkgs {
		for _, dir := range LibraryDirs {
			list, err := os.ReadDir(filepath.Join(pkgs[i].Root, dir))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("look for the libraries of %s: %w", pkgs[i].Name, err)
			}
			for _, f := range list {
				if !f.Type().IsRegular() || !isLibraryName(f.Name()) {
					continue
				}
				lib := &library{file: f.Name(), host: filepath.Join(pkgs[i].Root, dir, f.Name()), pkg: &pkgs[i]}
				obj, err := readObject(lib.host)
				if err != nil {
					continue // a linker script, or for another machine
				}
				lib.soname = cmp.Or(obj.soname, lib.file)
				for _, name := range []string{lib.soname, lib.file} {
					if index[name] == nil {
						index[name] = lib
					}
				}
			}
		}
	}
	return index, nil
}

// isLibraryName accepts libcuda.so, libcuda.so.1 and ld-linux-x86-64.so.2.
func isLibraryName(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// object is what matters of an ELF file.
type object struct {
	needed []string // DT_NEEDED, and the base name of the interpreter of a program
	soname string
	interp string
}

func readObject(host string) (*object, error) {
	f, err := elf.Open(host)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", host, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 || f.Class != elf.ELFCLASS64 {
		return nil, fmt.Errorf("read %s: it is for %s, not for x86-64", host, f.Machine)
	}
	var obj object
	if obj.needed, err = f.ImportedLibraries(); err != nil {
		return nil, fmt.Errorf("read %s: %w", host, err)
	}
	if names, err := f.DynString(elf.DT_SONAME); err == nil && len(names) > 0 {
		obj.soname = names[0]
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		if p.Filesz > 4096 { // PATH_MAX
			return nil, fmt.Errorf("read %s: its interpreter's name has %d bytes", host, p.Filesz)
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, fmt.Errorf("read %s: its interpreter's name: %w", host, err)
		}
		obj.interp = strings.TrimRight(string(name), "\x00")
		obj.needed = append(obj.needed, path.Base(obj.interp))
	}
	return &obj, nil
}

// NeededError says that a program or library of the image asks for a shared
// library that no package at hand has.
type NeededError struct {
	Library  string   // soname
	By       string   // who names it
	Packages []string // where it was looked for
}

func (e *NeededError) Error() string {
	return fmt.Sprintf("%s needs %s, which is in none of the packages %s", e.By, e.Library, strings.Join(e.Packages, ", "))
}

// root is a program or library that the image is to have, with what it opens
// by name at run time beside what its ELF header lists.
type root struct {
	name   string // for messages
	host   string
	dlopen []string
}

// closure returns the libraries that the roots need, directly and through one
// another, sorted by file name. Libraries among the roots are listed only if
// another names them. All missing ones are reported at once.
func closure(roots []root, index map[string]*library, pkgs []Package) ([]*library, error) {
	var errs []error
	found := map[string]*library{}
	missing := map[string]bool{}
	for queue := roots; len(queue) > 0; queue = queue[1:] {
		r := queue[0]
		obj, err := readObject(r.host)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, need := range append(obj.needed, r.dlopen...) {
			lib := index[need]
			switch {
			case lib == nil && !missing[need]:
				missing[need] = true
				errs = append(errs, &NeededError{need, r.name, names(pkgs)})
			case lib != nil && found[lib.file] == nil:
				found[lib.file] = lib
				queue = append(queue, root{name: lib.file, host: lib.host})
			}
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("shared libraries of the image: %w", errors.Join(errs...))
	}
	list := make([]*library, 0, len(found))
	for _, lib := range found {
		list = append(list, lib)
	}
	slices.SortFunc(list, func(a, b *library) int { return cmp.Compare(a.file, b.file) })
	return list, nil
}

// add puts the library into the image's library directory, with a link of its
// soname.
func (l *library) add(t *Tree) error {
	if err := t.AddFile(path.Join(layout.Libraries, l.file), 0o755, l.host, l.pkg.origin()); err != nil {
		return err
	}
	if l.soname == l.file {
		return nil
	}
	return t.AddLink(path.Join(layout.Libraries, l.soname), l.file, l.pkg.origin())
}
