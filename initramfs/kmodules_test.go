package initramfs

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/u-root/u-root/pkg/kmodule"
	"github.com/ulikunitz/xz"
)

const release = "6.12.117+deb12-amd64"

// kernelPackage makes a small unpacked kernel package.
func kernelPackage(t *testing.T) Package {
	t.Helper()
	pkg := Package{Name: "linux-image-" + release, Version: "6.12.117-1", Root: t.TempDir()}
	dir := "lib/modules/" + release + "/"
	ko := func(info ...string) []byte {
		return moduleBytes(t, append(info, "vermagic="+release+" SMP", "license=GPL")...)
	}
	writeFiles(t, pkg.Root, map[string][]byte{
		dir + "modules.builtin":                        []byte("kernel/fs/fuse/virtiofs.ko\nkernel/drivers/i2c/i2c-core.ko\n"),
		dir + "modules.builtin.modinfo":                []byte("i2c_core.license=GPL\x00"),
		dir + "kernel/drivers/net/nic.ko":              ko("name=nic", "depends=mdio-lib,i2c_core,ptp", "softdep=pre: phy post: no-such", "alias=pci:v1*", "alias=pci:v2*", "firmware=nic/fw.bin"),
		dir + "kernel/drivers/net/mdio-lib.ko":         ko("name=mdio_lib", "depends=ptp"),
		dir + "kernel/drivers/net/phy.ko":              ko("name=phy", "depends=", "alias=mdio:1"),
		dir + "kernel/drivers/ptp.ko":                  ko("name=ptp", "depends=pps"),
		dir + "kernel/drivers/pps.ko":                  ko("name=pps", "depends="),
		dir + "kernel/drivers/unused.ko":               ko("name=unused", "depends="),
		dir + "kernel/drivers/orphan.ko":               ko("name=orphan", "depends=lost"),
		dir + "kernel/drivers/gpu/drm/drm.ko.xz":       compress(t, ko("name=drm", "depends=")),
		dir + "kernel/drivers/damaged/truncated.ko.xz": compress(t, ko("name=truncated", "depends="))[:100],
		dir + "kernel/drivers/damaged/text.ko":         []byte("no module"),
		dir + "kernel/drivers/damaged/packed.ko.zst":   []byte("not known here"),
	})
	return pkg
}

func compress(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	require.NoError(t, err)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestKernelModules(t *testing.T) {
	pkg := kernelPackage(t)
	k, err := openKernel(pkg, release)
	require.NoError(t, err)
	list, rep, err := k.choose(t.Context(), []string{"nic", "drm", "virtiofs", "no_such_driver", "ptp"})
	require.NoError(t, err)
	assert.Equal(t, ModuleReport{
		Chosen:          []string{"drm", "mdio_lib", "nic", "phy", "pps", "ptp"},
		Builtin:         []string{"virtiofs"},
		Absent:          []string{"no_such (softdep of nic)", "no_such_driver"},
		MissingFirmware: []string{"nic/fw.bin (nic)"},
	}, rep)

	tree := &Tree{}
	require.NoError(t, addKernelModules(tree, k, list, pkg, release, t.TempDir()))
	root := unpack(t, tree)
	dir := filepath.Join(root, "lib/modules", release)
	for name, want := range map[string]string{
		"modules.dep": `kernel/drivers/gpu/drm/drm.ko:
kernel/drivers/net/mdio-lib.ko: kernel/drivers/ptp.ko kernel/drivers/pps.ko
kernel/drivers/net/nic.ko: kernel/drivers/net/mdio-lib.ko kernel/drivers/ptp.ko kernel/drivers/pps.ko
kernel/drivers/net/phy.ko:
kernel/drivers/pps.ko:
kernel/drivers/ptp.ko: kernel/drivers/pps.ko
`,
		"modules.alias":           "# Aliases extracted from modules themselves.\nalias pci:v1* nic\nalias pci:v2* nic\nalias mdio:1 phy\n",
		"modules.softdep":         "# Soft dependencies extracted from modules themselves.\nsoftdep nic pre: phy post: no-such\n",
		"modules.builtin.modinfo": "i2c_core.license=GPL\x00",
	} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), name)
	}
	assert.NoFileExists(t, filepath.Join(dir, "kernel/drivers/unused.ko"))
	drm, err := os.ReadFile(filepath.Join(dir, "kernel/drivers/gpu/drm/drm.ko"))
	require.NoError(t, err)
	assert.Equal(t, "\x7fELF", string(drm[:4]), "not decompressed")

	t.Run("u-root's modprobe", func(t *testing.T) {
		var loaded []string
		opts := kmodule.ProbeOpts{RootDir: root, KVer: release, IgnoreProcMods: true, DryRunCB: func(p string) { loaded = append(loaded, moduleName(p)) }}
		require.NoError(t, kmodule.ProbeOptions("nic", "", opts))
		assert.Equal(t, []string{"pps", "ptp", "mdio_lib", "nic"}, loaded)
	})
	t.Run("kmod's modprobe", func(t *testing.T) {
		tool, err := exec.LookPath("modprobe")
		if err != nil {
			t.Skip("modprobe is not installed")
		}
		out, err := exec.CommandContext(t.Context(), tool, "-d", root, "-S", release, "--show-depends", "nic").CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "ptp.ko")
	})
}

func TestKernelModulesErrors(t *testing.T) {
	pkg := kernelPackage(t)
	_, err := openKernel(pkg, "6.1.0-1-amd64")
	require.ErrorContains(t, err, "package linux-image-"+release+" 6.12.117-1 has no modules for kernel release 6.1.0-1-amd64")

	k, err := openKernel(pkg, release)
	require.NoError(t, err)
	for module, want := range map[string]string{
		"orphan":    "kernel module orphan depends on lost, which the kernel package lacks",
		"truncated": "truncated.ko.xz: ",
		"text":      "text.ko: not a kernel module",
		"packed":    "packed.ko.zst: compressed in a way not known here",
	} {
		_, _, err := k.choose(t.Context(), []string{module})
		assert.ErrorContains(t, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = k.choose(ctx, []string{"nic"})
	require.ErrorIs(t, err, context.Canceled)
}

// TestWanted keeps the list free of typing errors that would go unnoticed, as
// an unknown name is no error.
func TestWanted(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range Lab.modules() {
		assert.Equal(t, moduleName(name), name, "module names have underscores")
		assert.False(t, seen[name], "%s is listed twice", name)
		seen[name] = true
	}
}

func TestProfiles(t *testing.T) {
	lab, minimal := Lab.modules(), Minimal.modules()
	assert.Subset(t, lab, minimal)
	for _, name := range []string{"e1000e", "mlx5_core", "virtio_net", "r8152", "af_packet"} {
		assert.Contains(t, lab, name)
		assert.NotContains(t, minimal, name)
	}
	for _, name := range []string{"usb_storage", "vfat", "nvme", "ipmi_si", "drm"} {
		assert.Contains(t, minimal, name)
	}
}

// unpack writes the regular files and links of a tree below a directory.
func unpack(t *testing.T, tree *Tree) string {
	t.Helper()
	root := t.TempDir()
	for _, e := range tree.Entries() {
		file := filepath.Join(root, e.Path)
		switch {
		case e.Mode.IsDir():
			require.NoError(t, os.Mkdir(file, 0o755))
		case e.Link != "":
			require.NoError(t, os.Symlink(e.Link, file))
		default:
			r, err := e.Open()
			require.NoError(t, err)
			data, err := io.ReadAll(r)
			require.NoError(t, err)
			require.NoError(t, r.Close())
			require.NoError(t, os.WriteFile(file, data, e.Mode.Perm()))
		}
	}
	return root
}

func TestSoftdeps(t *testing.T) {
	assert.Equal(t, []string{"a", "b_c", "d"}, softdeps([]string{"pre: a b-c post: d"}))
	assert.Empty(t, softdeps([]string{"", "pre:", strings.Repeat(" ", 5)}))
}
