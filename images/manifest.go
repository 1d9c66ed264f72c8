// Package images writes and reads the artifact of a build: a directory to boot
// from the network, with its manifest, bill of materials and checksums. The
// packages below it make the other media of what is in that directory.
package images

import (
	"encoding/json"
	"fmt"
	"io"

	"mkp2pimg/initramfs"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/userland"
)

// ManifestVersion is the format version of Manifest; schema.json describes it.
const ManifestVersion = 1

// Manifest records what an image is made of and how it came to be. Nothing in
// it depends on the build host, its clock or the place of the build.
type Manifest struct {
	Version         int                    `json:"version"`
	Product         Product                `json:"product"`
	Driver          string                 `json:"driver"`            // driver release
	Kernel          string                 `json:"kernel"`            // kernel release
	CommandLine     []string               `json:"command_line"`      // default kernel parameters
	GPUs            []string               `json:"gpus,omitempty"`    // GPU families and models whose firmware is in the image, or "all"
	Profile         initramfs.Profile      `json:"profile,omitempty"` // absent, as are GPUs, in images of before there was a choice
	SourceDateEpoch int64                  `json:"source_date_epoch"` // seconds; time stamp of every file
	Go              string                 `json:"go"`                // Go release that compiled the programs
	Options         []string               `json:"module_options"`    // modprobe.d lines
	ModuleSets      []ModuleSet            `json:"module_sets"`
	KernelModules   initramfs.ModuleReport `json:"kernel_modules"`
	GoModules       []GoModule             `json:"go_modules"` // linked into the programs
	Inputs          []Input                `json:"inputs"`
	Initrd          initramfs.Sizes        `json:"initrd"`    // filled in by Write
	Artifacts       []Artifact             `json:"artifacts"` // the other files of the directory; filled in by Write
	Files           []File                 `json:"files"`     // files of the initramfs; FilesOf makes them
}

// ProductName is the name in Manifest.Product: it marks a directory as ours.
const ProductName = "mkp2pimg"

// Product names the program that made the image.
type Product struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// ModuleSet is one build of the driver's modules in the image.
type ModuleSet struct {
	Name    string   `json:"name"`  // p2p, stock
	Edits   []string `json:"edits"` // ids of the source edits applied, in order
	Modules []Module `json:"modules"`
}

// Module is a driver module with what was checked about it at build time.
type Module struct {
	Path     string  `json:"path"` // in the image
	Version  string  `json:"version"`
	Vermagic string  `json:"vermagic"`
	Checks   []Check `json:"checks"`
}

// Check is the result of one check at build time.
type Check struct {
	Name   string `json:"name"`   // vermagic, symbol-crcs …
	Status string `json:"status"` // pass, fail, skip
	Detail string `json:"detail,omitempty"`
}

// Input is one verified file the build started from.
type Input struct {
	Role    string `json:"role"` // toolchain, kernel, driver-source, firmware, userspace, libc …
	Name    string `json:"name"`
	Version string `json:"version"`
	Origin  string `json:"origin"` // URL, or the name of a local file
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
	Licence string `json:"licence"` // SPDX expression, "" if not known
	Shipped bool   `json:"shipped"` // whether files of it are in the image, not only used to build it
}

// Artifact is a file of the output directory.
type Artifact struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// GoModule is a Go module linked into a program of the image.
type GoModule struct {
	Path    string `json:"path"`
	Version string `json:"version"`
	Sum     string `json:"sum"` // as in go.sum
}

// File is one regular file or link of the initramfs.
type File struct {
	layout.File
	Origin initramfs.Origin `json:"origin"`
}

// FilesOf lists the files of a tree for a manifest.
func FilesOf(t *initramfs.Tree) []File {
	var list []File
	for _, f := range t.Files() {
		list = append(list, File{f, t.Lookup(f.Path).Origin})
	}
	return list
}

// GoModulesOf lists the Go modules of the programs for a manifest.
func GoModulesOf(p *userland.Programs) []GoModule {
	var list []GoModule
	for _, m := range p.Modules {
		list = append(list, GoModule(m))
	}
	return list
}

// ReadManifest decodes a manifest.
func ReadManifest(r io.Reader) (*Manifest, error) {
	var m Manifest
	if err := json.NewDecoder(r).Decode(&m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.Product.Name != ProductName {
		return nil, fmt.Errorf("manifest: made by %q, not by %s", m.Product.Name, ProductName)
	}
	if m.Version != ManifestVersion {
		return nil, fmt.Errorf("manifest: has version %d, this program reads version %d", m.Version, ManifestVersion)
	}
	return &m, nil
}

// readProduct reads no more of a manifest than who made it, so that directories
// of other versions of this program are known as its own.
func readProduct(r io.Reader) (Product, error) {
	var m struct{ Product Product }
	err := json.NewDecoder(r).Decode(&m)
	return m.Product, err
}
