// Package images writes the artifacts of a build: so far a directory to boot
// from the network, with its manifest, bill of materials and checksums.
package images

import (
	"mkp2pimg/initramfs"
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
	SourceDateEpoch int64                  `json:"source_date_epoch"` // seconds; time stamp of every file
	Go              string                 `json:"go"`                // Go release that compiled the programs
	Options         []string               `json:"module_options"`    // modprobe.d lines
	ModuleSets      []ModuleSet            `json:"module_sets"`
	KernelModules   initramfs.ModuleReport `json:"kernel_modules"`
	Inputs          []Input                `json:"inputs"`
	Initrd          initramfs.Sizes        `json:"initrd"`    // filled in by Write
	Artifacts       []Artifact             `json:"artifacts"` // the other files of the directory; filled in by Write
	Files           []File                 `json:"files"`     // files of the initramfs; FilesOf makes them
}

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
	Origin  string `json:"origin"` // URL
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

// File is one regular file or link of the initramfs.
type File struct {
	Path   string           `json:"path"`
	Size   int64            `json:"size"`
	SHA256 string           `json:"sha256,omitempty"`
	Mode   string           `json:"mode"`
	Link   string           `json:"link,omitempty"`
	Origin initramfs.Origin `json:"origin"`
}
