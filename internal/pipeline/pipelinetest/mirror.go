// Package pipelinetest makes a Debian archive that has all inputs of a build:
// real packages, but with nothing in them.
package pipelinetest

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mkp2pimg/images/disk"
	"mkp2pimg/images/iso"
	"mkp2pimg/images/pxe"
	"mkp2pimg/initramfs"
	"mkp2pimg/internal/debian/debiantest"
	"mkp2pimg/internal/runfile/runtest"
	"mkp2pimg/kmod/build"
	"mkp2pimg/kmod/catalog"
	"mkp2pimg/qemu"
)

// Suites of the archive, of a release as the pipeline reads it.
const (
	Main     = "bookworm"
	Updates  = "bookworm-updates"
	Security = "bookworm-security"
)

// Components of each suite.
var Components = []string{"main", "contrib", "non-free", "non-free-firmware"}

// Kernels of the archive, newest of their series. Newest612 is newer by its
// number, though not by its letters, than the other of 6.12.
const (
	Newest61  = "6.1.0-10-amd64"
	Older612  = "6.12.9+deb12-amd64"
	Newest612 = "6.12.117+deb12-amd64"
)

// Mirror is the archive, its server and the file with its key.
type Mirror struct {
	*debiantest.Archive
	*debiantest.Server
	Keyring string
	Driver  *catalog.Release
	// Source and Firmware are paths of inputs below the mirror's base.
	Source, Firmware string
}

// New serves an archive of the test's own.
func New(t testing.TB) *Mirror {
	t.Helper()
	once.Do(func() {
		driver, err := catalog.Lookup("")
		require.NoError(t, err)
		first = &Mirror{Archive: debiantest.NewArchive(t, time.Now()), Driver: driver}
		first.Fill(t)
	})
	require.NotNil(t, first)
	m := *first
	m.Archive = first.Clone()
	m.Keyring = filepath.Join(t.TempDir(), "lab.asc")
	require.NoError(t, os.WriteFile(m.Keyring, debiantest.Armour(t, debiantest.Keyring(t, m.Key)), 0o644))
	m.Server = m.Serve(t)
	return &m
}

// first is what all others are copies of: packing it takes a while.
var (
	once  sync.Once
	first *Mirror
)

// SourceTree is what makes a tree the source of a driver release, below a
// directory: no build gets far with it.
func SourceTree(below, release string) []debiantest.Entry {
	return []debiantest.Entry{
		{Name: below + "version.mk", Content: "NVIDIA_VERSION = " + release + "\n"},
		{Name: below + "kernel-open/Makefile"},
		{Name: below + "src/nvidia/Makefile"},
	}
}

// driverFiles are what a package of the driver has, as Debian's packages do.
func driverFiles(t testing.TB, pkg, release string) []debiantest.Entry {
	files := map[string]string{
		"firmware-nvidia-gsp":       "firmware/gsp_ga10x.bin",
		"libcuda1":                  "libcuda.so." + release,
		"libnvidia-ml1":             "libnvidia-ml.so." + release,
		"libnvidia-ptxjitcompiler1": "libnvidia-ptxjitcompiler.so." + release,
		"nvidia-smi":                "nvidia-smi",
	}
	name := files[pkg]
	require.NotEmpty(t, name, "%s: what is in this package?", pkg)
	place := "usr/lib/x86_64-linux-gnu/nvidia/current/"
	switch pkg {
	case "firmware-nvidia-gsp":
		place = "lib/firmware/nvidia/" + release + "/"
	case "nvidia-smi":
		place = "usr/lib/nvidia/current/"
	}
	return []debiantest.Entry{{Name: place + path.Base(name), Content: string(runtest.Driver(t, release)[name])}}
}

// Fill puts the packages into the archive and publishes it.
func (m *Mirror) Fill(t testing.TB) {
	t.Helper()
	add := func(suite, component, name, version string, fields ...string) {
		m.Add(t, suite, component, debiantest.Package{Name: name, Version: version, Fields: fields})
	}
	for release, version := range map[string]string{
		"6.1.0-9-amd64": "6.1.27-1",
		Newest61:        "6.1.38-1",
		Older612:        "6.12.9-1~bpo12+1",
		Newest612:       "6.12.117-1~bpo12+1",
	} {
		add(Main, "main", "linux-image-"+release, version, "Depends: linux-base")
		m.Add(t, Main, "main", debiantest.Package{
			Name: "linux-headers-" + release, Version: version,
			Fields:  []string{"Depends: linux-image-" + release + " | linux-image-" + release + "-unsigned, pahole"},
			Entries: []debiantest.Entry{{Name: "lib/modules/" + release + "/build/include/linux/pci.h"}},
		})
	}
	// Newer than all, and never to be taken.
	for _, flavour := range []string{"-cloud-amd64", "-rt-amd64", "-amd64-dbg", "-amd64-unsigned"} {
		add(Main, "main", "linux-image-6.12.200+deb12"+flavour, "6.12.200-1")
	}
	add(Main, "main", "linux-image-amd64", "6.12.200-1")

	for _, name := range slices.Concat(build.ToolchainPackages, qemu.Packages, disk.Packages, disk.Tools, iso.Packages, pxe.Packages) {
		add(Main, "main", name, "1", "Depends: libc6")
	}
	for _, name := range initramfs.LibcPackages {
		add(Main, "main", name, "2.36-9")
		add(Security, "main", name, "2.36-9+deb12u1")
	}
	d := m.Driver.Debian
	for _, name := range d.Firmware {
		m.Firmware = m.Add(t, Main, "non-free-firmware", debiantest.Package{
			Name: name, Version: d.Version, Entries: driverFiles(t, name, m.Driver.Version),
		})
		add(Security, "non-free-firmware", name, "999-1")
	}
	for _, name := range d.Userspace {
		m.Add(t, Main, "non-free", debiantest.Package{Name: name, Version: d.Version, Entries: driverFiles(t, name, m.Driver.Version)})
		add(Security, "non-free", name, "999-1")
	}
	m.Source = m.AddSource(t, Main, "contrib", d.Source, d.SourceVersion, SourceTree("driver/", m.Driver.Version)...)
	for _, suite := range []string{Main, Updates, Security} {
		m.Publish(t, suite, Components)
	}
}
