package initramfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/kmod/ko"
)

// Driver libraries of the image, by soname: CUDA's driver API, NVML, and the
// compiler that turns the PTX kernels of p2pbw into code of the GPU at hand.
const (
	libcuda = "libcuda.so.1"
	libnvml = "libnvidia-ml.so.1"
	libptx  = "libnvidia-ptxjitcompiler.so.1"
)

// Libraries are those that an image has, by soname. Their files carry the
// release in place of the soname's version.
var Libraries = []string{libcuda, libnvml, libptx}

// SMIPaths are the places of nvidia-smi in Debian's package, in other
// distributions' and in an unpacked .run archive.
var SMIPaths = []string{"usr/lib/nvidia/current/nvidia-smi", "usr/bin/nvidia-smi", "nvidia-smi"}

// driverFiles are the parts of one driver release, found and checked.
type driverFiles struct {
	libs     []*library
	smi      string // host path
	smiPkg   *Package
	firmware map[string]string // host path by name: gsp_ga10x.bin …
	sets     []driverSet
}

type driverSet struct {
	name    string
	modules []driverModule
}

type driverModule struct {
	host string
	*ko.Module
}

// VersionError says that a part of the driver is of another release than the
// image: kernel module, firmware and libraries refuse to work with one another
// then.
type VersionError struct {
	Part string // file or package
	Got  string // "" if the file does not say
	Want string
}

func (e *VersionError) Error() string {
	got := "is not of it"
	if e.Got != "" {
		got = "is of release " + e.Got
	}
	return fmt.Sprintf("the image is of driver release %s, but %s %s; take all parts of the driver from one release", e.Want, e.Part, got)
}

// CheckUserspace checks that libraries, nvidia-smi and firmware of s are there
// and of the driver's release. It needs none of the modules: call it before
// they are compiled.
func CheckUserspace(s *Spec) error {
	var d driverFiles
	return errors.Join(d.findLibraries(s), d.findSMI(s), d.findFirmware(s))
}

// findDriver finds the parts of the driver and checks that they are of one
// release. It returns all errors at once.
func findDriver(s *Spec) (*driverFiles, error) {
	var d driverFiles
	return &d, errors.Join(d.findLibraries(s), d.findSMI(s), d.findFirmware(s), d.findModules(s))
}

func (d *driverFiles) findLibraries(s *Spec) error {
	index, err := libraries(s.Userspace)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range Libraries {
		lib := index[name]
		if lib == nil {
			errs = append(errs, &NeededError{name, "the image", names(s.Userspace)})
			continue
		}
		d.libs = append(d.libs, lib)
	}
	return errors.Join(append(errs, checkLibraries(d.libs, s.Driver))...)
}

// checkLibraries checks the releases of the driver's libraries, which their
// file names end in.
func checkLibraries(libs []*library, driver string) error {
	var errs []error
	for _, lib := range libs {
		if _, version, _ := strings.Cut(lib.file, ".so."); version != driver {
			errs = append(errs, &VersionError{lib.file + " of package " + lib.pkg.Name, version, driver})
		}
	}
	return errors.Join(errs...)
}

func (d *driverFiles) findSMI(s *Spec) error {
	for i := range s.Userspace {
		for _, p := range SMIPaths {
			host := filepath.Join(s.Userspace[i].Root, p)
			data, err := os.ReadFile(host)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if !bytes.Contains(data, []byte(s.Driver)) {
				return &VersionError{"nvidia-smi of package " + s.Userspace[i].Name, "", s.Driver}
			}
			d.smi, d.smiPkg = host, &s.Userspace[i]
			return nil
		}
	}
	return fmt.Errorf("nvidia-smi is in none of the packages %s", strings.Join(names(s.Userspace), ", "))
}

func (d *driverFiles) findFirmware(s *Spec) error {
	d.firmware = map[string]string{}
	gsp := false
	var other []string
	for _, lib := range []string{"lib", "usr/lib"} {
		all := filepath.Join(s.Firmware.Root, lib, "firmware/nvidia")
		files, err := filepath.Glob(filepath.Join(all, s.Driver, "*.bin"))
		if err != nil {
			return err
		}
		for _, f := range files {
			name := filepath.Base(f)
			d.firmware[name] = f
			gsp = gsp || strings.HasPrefix(name, "gsp_")
		}
		dirs, _ := os.ReadDir(all) // absent: nothing to tell
		for _, dir := range dirs {
			if dir.Name() != s.Driver {
				other = append(other, dir.Name())
			}
		}
	}
	switch {
	case gsp:
		return nil
	case len(other) > 0:
		return &VersionError{"the GSP firmware of package " + s.Firmware.Name, strings.Join(other, ", "), s.Driver}
	}
	return fmt.Errorf("package %s has no GSP firmware: nothing matches lib/firmware/nvidia/%s/gsp_*.bin", s.Firmware.Name, s.Driver)
}

// findModules reads the driver's modules and checks their release, their
// kernel, and that the firmware they name is at hand.
func (d *driverFiles) findModules(s *Spec) error {
	var errs []error
	for _, set := range s.Sets {
		ds := driverSet{name: set.Name}
		for _, host := range set.Files {
			m, err := ko.Open(host)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			part := fmt.Sprintf("module %s of set %s", filepath.Base(host), set.Name)
			if m.Version != s.Driver {
				errs = append(errs, &VersionError{part, m.Version, s.Driver})
			}
			if release, _, _ := strings.Cut(m.Vermagic, " "); release != s.Release {
				errs = append(errs, fmt.Errorf("the image has kernel %s, but %s is built for %q", s.Release, part, release))
			}
			for _, fw := range m.Firmware {
				if d.firmware[path.Base(fw)] == "" {
					errs = append(errs, fmt.Errorf("%s names firmware %s, which package %s lacks", part, fw, s.Firmware.Name))
				}
			}
			ds.modules = append(ds.modules, driverModule{host, m})
		}
		d.sets = append(d.sets, ds)
	}
	return errors.Join(errs...)
}

// kernelModules names the modules of the kernel that the driver's modules
// depend on.
func (d *driverFiles) kernelModules() []string {
	var own, deps []string
	for _, set := range d.sets {
		for _, m := range set.modules {
			own = append(own, moduleName(m.host))
			for _, dep := range m.Depends {
				deps = append(deps, moduleName(dep))
			}
		}
	}
	deps = slices.DeleteFunc(deps, func(name string) bool { return slices.Contains(own, name) })
	slices.Sort(deps)
	return slices.Compact(deps)
}

// add puts the driver into the tree, with the libraries that it and the
// dynamically linked program p2pbw need.
func (d *driverFiles) add(t *Tree, s *Spec, p2pbw string) error {
	roots := []root{
		{name: "p2pbw", host: p2pbw, dlopen: []string{libcuda, libnvml}},
		{name: "nvidia-smi", host: d.smi, dlopen: []string{libnvml}},
	}
	for _, lib := range d.libs {
		roots = append(roots, root{name: lib.file, host: lib.host})
	}
	pkgs := slices.Concat(s.Userspace, s.Libc)
	index, err := libraries(pkgs)
	if err != nil {
		return err
	}
	needed, err := closure(roots, index, pkgs)
	if err != nil {
		return err
	}
	for _, lib := range append(slices.Clone(d.libs), needed...) {
		if err := lib.add(t); err != nil {
			return err
		}
	}
	if err := addInterpreters(t, roots, index); err != nil {
		return err
	}
	if err := t.AddLink(path.Join(layout.Libraries, "libcuda.so"), libcuda, Origin{Kind: Generated, Name: "driver"}); err != nil {
		return err
	}
	if err := t.AddFile("/usr/bin/nvidia-smi", 0o755, d.smi, d.smiPkg.origin()); err != nil {
		return err
	}
	for name, host := range d.firmware {
		if !isFor(name, s.GPUFirmware) {
			continue
		}
		if err := t.AddFile(path.Join(layout.Firmware, "nvidia", s.Driver, name), 0o644, host, s.Firmware.origin()); err != nil {
			return err
		}
	}
	for _, set := range d.sets {
		for _, m := range set.modules {
			name := strings.TrimSuffix(filepath.Base(m.host), ".ko")
			o := Origin{BuiltHere, "nvidia-open " + set.name, s.Driver}
			if err := t.AddFile(layout.DriverModule(s.Release, set.name, name), 0o644, m.host, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFor says whether a file of firmware is one of those that words name; nil
// names all.
func isFor(name string, words []string) bool {
	return words == nil || slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(name, "_"+w+".bin") })
}

// addInterpreters links the ELF interpreters that the programs name to where
// the libraries of the image are.
func addInterpreters(t *Tree, programs []root, index map[string]*library) error {
	for _, r := range programs {
		obj, err := readObject(r.host)
		if err != nil {
			return err
		}
		if obj.interp == "" {
			continue
		}
		lib := index[path.Base(obj.interp)]
		target, err := filepath.Rel(path.Dir(obj.interp), path.Join(layout.Libraries, lib.file))
		if err != nil {
			return fmt.Errorf("%s: interpreter %s: %w", r.name, obj.interp, err)
		}
		if err := t.AddLink(obj.interp, target, lib.pkg.origin()); err != nil {
			return err
		}
	}
	return nil
}

func names(pkgs []Package) []string {
	var list []string
	for _, p := range pkgs {
		list = append(list, p.Name)
	}
	return list
}
