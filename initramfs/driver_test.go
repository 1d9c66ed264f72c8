package initramfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/userland"
	"mkp2pimg/internal/elftest"
	"mkp2pimg/internal/golden"
	"mkp2pimg/kmod/loadopt"
)

const driverRelease = "535.261.03"

// driverSpec makes unpacked packages of a small driver, as Debian lays them
// out, and programs that use it.
func driverSpec(t *testing.T) (*Spec, *userland.Programs) {
	t.Helper()
	pkg := func(name, version string, files map[string][]byte) Package {
		p := Package{name, version, t.TempDir()}
		writeFiles(t, p.Root, files)
		return p
	}
	lib := func(soname string, needed ...string) []byte { return elftest.Library(t, soname, needed...) }
	const current = "usr/lib/x86_64-linux-gnu/nvidia/current/"
	s := &Spec{
		Driver: driverRelease, Release: release, Work: t.TempDir(),
		Kernel: kernelPackage(t),
		Firmware: pkg("firmware-nvidia-gsp", "535.261.03-1", map[string][]byte{
			"lib/firmware/nvidia/535.261.03/gsp_tu10x.bin": []byte("turing"),
			"lib/firmware/nvidia/535.261.03/gsp_ga10x.bin": []byte("ampere"),
			// As releases from 610 on have it.
			"lib/firmware/nvidia/535.261.03/ucodes_ga10x.bin": []byte("falcons"),
		}),
		Userspace: []Package{
			pkg("libcuda1", "535.261.03-1", map[string][]byte{
				current + "libcuda.so.535.261.03": lib("libcuda.so.1", "libm.so.6", "libc.so.6"),
				current + "libcuda.so.1":          []byte("-> libcuda.so.535.261.03"),
			}),
			pkg("libnvidia-ml1", "535.261.03-1", map[string][]byte{current + "libnvidia-ml.so.535.261.03": lib("libnvidia-ml.so.1", "libc.so.6")}),
			pkg("libnvidia-ptxjitcompiler1", "535.261.03-1", map[string][]byte{current + "libnvidia-ptxjitcompiler.so.535.261.03": lib("libnvidia-ptxjitcompiler.so.1")}),
			pkg("nvidia-smi", "535.261.03-1", map[string][]byte{
				"usr/lib/nvidia/current/nvidia-smi": append(elftest.Program(t, "/lib64/ld-linux-x86-64.so.2", "libc.so.6"), "535.261.03"...),
			}),
		},
		Libc: []Package{pkg("libc6", "2.36-9", map[string][]byte{
			"lib/x86_64-linux-gnu/libc.so.6":              lib("libc.so.6", "ld-linux-x86-64.so.2"),
			"lib/x86_64-linux-gnu/libm.so.6":              lib("libm.so.6", "libc.so.6"),
			"lib/x86_64-linux-gnu/ld-linux-x86-64.so.2":   lib("ld-linux-x86-64.so.2"),
			"lib/x86_64-linux-gnu/libnss_compat.so.2":     lib("libnss_compat.so.2"),
			"lib64/ld-linux-x86-64.so.2":                  []byte("-> /lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
			"usr/lib/x86_64-linux-gnu/libm.so":            []byte("/* GNU ld script */"),
			"lib/x86_64-linux-gnu/unrelated.so.conf/file": nil,
		})},
		Options: []string{"options nvidia NVreg_RegistryDwords=\"X=1\""},
		Load:    &loadopt.Data{Offer: loadopt.Offer{BAR1: loadopt.Joint}, Edited: []string{"p2p"}},
	}
	for _, set := range []string{"p2p", "stock"} {
		s.Sets = append(s.Sets, ModuleSet{set, driverModules(t, driverRelease, release, "ucodes_ga10x.bin")})
	}
	programs := t.TempDir()
	writeFiles(t, programs, map[string][]byte{
		"bb":      []byte("busybox"),
		"p2pinit": []byte("init"),
		"p2pbw":   elftest.Program(t, "/lib64/ld-linux-x86-64.so.2", "libc.so.6"),
	})
	return s, &userland.Programs{
		Busybox: filepath.Join(programs, "bb"), P2PInit: filepath.Join(programs, "p2pinit"), P2PBW: filepath.Join(programs, "p2pbw"),
		Commands: []string{"init", "gosh", "ls"}, Modules: []userland.Module{{Path: "github.com/u-root/u-root", Version: "v0.16.0"}},
	}
}

// driverModules makes nvidia.ko and nvidia-uvm.ko.
func driverModules(t *testing.T, driver, kernel, firmware string) []string {
	t.Helper()
	dir := t.TempDir()
	common := []string{"version=" + driver, "vermagic=" + kernel + " SMP mod_unload", "license=Dual MIT/GPL"}
	writeFiles(t, dir, map[string][]byte{
		"nvidia.ko":     moduleBytes(t, append(common, "name=nvidia", "depends=drm", "alias=pci:v000010DEd*", "firmware=nvidia/"+driver+"/"+firmware)...),
		"nvidia-uvm.ko": moduleBytes(t, append(common, "name=nvidia_uvm", "depends=nvidia")...),
	})
	return []string{filepath.Join(dir, "nvidia.ko"), filepath.Join(dir, "nvidia-uvm.ko")}
}

func TestAssemble(t *testing.T) {
	s, programs := driverSpec(t)
	driver, err := findDriver(s)
	require.NoError(t, err)
	assert.Equal(t, []string{"drm"}, driver.kernelModules())
	kernel, err := openKernel(s.Kernel, release)
	require.NoError(t, err)
	modules, _, err := kernel.choose(t.Context(), driver.kernelModules())
	require.NoError(t, err)
	tree := &Tree{}
	require.NoError(t, addKernelModules(tree, kernel, modules, s.Kernel, release, s.Work))
	require.NoError(t, assemble(tree, s, driver, programs))

	var got strings.Builder
	for _, e := range tree.Entries() {
		switch {
		case e.Mode.IsDir():
			got.WriteString(e.Path + "/")
		case e.Link != "":
			got.WriteString(e.Path + " -> " + e.Link)
		default:
			got.WriteString(e.Path)
		}
		got.WriteString("  (" + e.Origin.String() + ")\n")
	}
	golden.Equal(t, "testdata/tree.txt", got.String())

	r, err := tree.Lookup(layout.Description).Open()
	require.NoError(t, err)
	img, err := layout.Read(r)
	require.NoError(t, err)
	assert.Equal(t, driverRelease, img.Driver)
	assert.Equal(t, release, img.Kernel)
	assert.Equal(t, []string{"p2p", "stock"}, img.Sets)
	assert.Equal(t, s.Load, img.Load)
	assert.Len(t, img.Files, len(tree.Files())-1, "all files but the description")

	alias := tree.Lookup(layout.Modules(release) + "/modules.alias")
	assert.NotContains(t, string(alias.data), "nvidia", "only the init loads the driver")
}

func TestGPUFirmware(t *testing.T) {
	for _, tt := range []struct{ words, want []string }{
		{nil, []string{"gsp_ga10x.bin", "gsp_tu10x.bin", "ucodes_ga10x.bin"}},
		{[]string{"ga10x"}, []string{"gsp_ga10x.bin", "ucodes_ga10x.bin"}},
		{[]string{"tu10x"}, []string{"gsp_tu10x.bin"}},
		{[]string{"ga10x", "tu10x"}, []string{"gsp_ga10x.bin", "gsp_tu10x.bin", "ucodes_ga10x.bin"}},
	} {
		s, programs := driverSpec(t)
		s.GPUFirmware = tt.words
		driver, err := findDriver(s)
		require.NoError(t, err, "the modules may name firmware that the image lacks")
		tree := &Tree{}
		require.NoError(t, driver.add(tree, s, programs.P2PBW))
		var got []string
		for _, f := range tree.Files() {
			if name, ok := strings.CutPrefix(f.Path, layout.Firmware+"/nvidia/"+driverRelease+"/"); ok {
				got = append(got, name)
			}
		}
		assert.Equal(t, tt.want, got)
	}
}

func TestFindDriverErrors(t *testing.T) {
	tests := map[string]struct {
		spoil func(*Spec)
		want  []string
	}{
		"another release": {func(s *Spec) { s.Driver = "550.163.01" }, []string{
			"the image is of driver release 550.163.01, but libcuda.so.535.261.03 of package libcuda1 is of release 535.261.03",
			"libnvidia-ml.so.535.261.03", "libnvidia-ptxjitcompiler.so.535.261.03",
			"but nvidia-smi of package nvidia-smi is not of it",
			"the GSP firmware of package firmware-nvidia-gsp is of release 535.261.03",
			"module nvidia.ko of set p2p is of release 535.261.03", "module nvidia-uvm.ko of set stock",
		}},
		"another kernel": {func(s *Spec) { s.Release = "6.1.0-57-amd64" }, []string{`the image has kernel 6.1.0-57-amd64, but module nvidia.ko of set p2p is built for "` + release + `"`}},
		"no library":     {func(s *Spec) { s.Userspace = s.Userspace[1:] }, []string{"the image needs libcuda.so.1, which is in none of the packages libnvidia-ml1, "}},
		"no nvidia-smi":  {func(s *Spec) { s.Userspace = s.Userspace[:3] }, []string{"nvidia-smi is in none of the packages libcuda1, "}},
		"no firmware":    {func(s *Spec) { s.Firmware.Root = "/nowhere" }, []string{"no GSP firmware: nothing matches lib/firmware/nvidia/535.261.03/gsp_*.bin"}},
		"no GSP firmware": {func(s *Spec) {
			dir := filepath.Join(s.Firmware.Root, "lib/firmware/nvidia/535.261.03")
			assert.NoError(t, errors.Join(os.Remove(filepath.Join(dir, "gsp_tu10x.bin")), os.Remove(filepath.Join(dir, "gsp_ga10x.bin"))))
		}, []string{"no GSP firmware: nothing matches lib/firmware/nvidia/535.261.03/gsp_*.bin"}},
		"no module":        {func(s *Spec) { s.Sets[0].Files[0] += ".gone" }, []string{"nvidia.ko.gone: no such file"}},
		"missing firmware": {nil, []string{"module nvidia.ko of set p2p names firmware nvidia/535.261.03/gsp_new.bin, which package firmware-nvidia-gsp lacks"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, _ := driverSpec(t)
			if tt.spoil == nil {
				s.Sets[0].Files = driverModules(t, driverRelease, release, "gsp_new.bin")
			} else {
				tt.spoil(s)
			}
			_, err := findDriver(s)
			for _, want := range tt.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestClosureErrors(t *testing.T) {
	s, programs := driverSpec(t)
	driver, err := findDriver(s)
	require.NoError(t, err)
	s.Libc = nil
	err = assemble(&Tree{}, s, driver, programs)
	require.ErrorContains(t, err, "p2pbw needs libc.so.6, which is in none of the packages libcuda1, ")
	assert.ErrorContains(t, err, "p2pbw needs ld-linux-x86-64.so.2")
	assert.ErrorContains(t, err, "libcuda.so.535.261.03 needs libm.so.6")
	assert.Equal(t, 1, strings.Count(err.Error(), "libc.so.6"), "each missing library once")

	programs.P2PBW = programs.P2PInit
	err = assemble(&Tree{}, s, driver, programs)
	assert.ErrorContains(t, err, "read "+programs.P2PInit)
}

func TestReadObjectForeign(t *testing.T) {
	arm := elftest.Library(t, "libcuda.so.1")
	arm[18] = 183 // e_machine: EM_AARCH64
	file := filepath.Join(t.TempDir(), "libcuda.so.1")
	writeFiles(t, filepath.Dir(file), map[string][]byte{"libcuda.so.1": arm})
	_, err := readObject(file)
	assert.ErrorContains(t, err, "it is for EM_AARCH64, not for x86-64")
}

func TestRequireModules(t *testing.T) {
	rep := &ModuleReport{Absent: []string{"drm"}}
	assert.NoError(t, requireModules([]string{"video"}, rep))
	assert.ErrorContains(t, requireModules([]string{"drm"}, rep), "depend on kernel module drm")
}
