package images

import (
	"io"

	"mkp2pimg/initramfs"
)

// Names of the files of a netboot directory.
const (
	KernelName   = "vmlinuz"
	InitrdName   = "initrd.zst"
	ScriptName   = "boot.ipxe"
	ManifestName = "manifest.json"
	SBOMName     = "sbom.spdx.json"
	SumsName     = "SHA256SUMS"
)

// Netboot is what a netboot directory is written from.
type Netboot struct {
	Manifest Manifest // all but the fields that Write fills in
	Kernel   string   // host path of vmlinuz

	// Initrd writes the packed initramfs: a call of (*initramfs.Tree).Pack.
	Initrd func(io.Writer) (initramfs.Sizes, error)

	// Extra are further files by name: patch-report.json, patch.diff,
	// mkp2pimg.lock.
	Extra map[string][]byte
}

// Dir is a complete netboot directory.
type Dir struct {
	Path     string
	Manifest *Manifest
}
