package patch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// pciHeader is the kernel header that the edits for kernels ask.
const pciHeader = "include/linux/pci.h"

// debianCommon is the line by which Debian's headers of a flavour name those of all flavours.
var debianCommon = regexp.MustCompile(`(?m)^include (/\S+)/Makefile$`)

// Headers finds the root of the common headers of a kernel for [Compat]. dir is what a module is
// built against, such as /lib/modules/RELEASE/build: the directory itself, its link "source", or
// what the Makefile of a Debian flavour includes.
func Headers(dir string) (fs.FS, error) {
	roots := []string{dir, filepath.Join(dir, "source")}
	if text, err := os.ReadFile(filepath.Join(dir, "Makefile")); err == nil {
		if m := debianCommon.FindSubmatch(text); m != nil {
			roots = append(roots, string(m[1]))
		}
	}
	for _, root := range roots {
		if _, err := os.Stat(filepath.Join(root, pciHeader)); err == nil {
			return os.DirFS(root), nil
		}
	}
	return nil, &HeadersError{dir}
}

// HeadersError reports a directory that holds no kernel headers.
type HeadersError struct{ Dir string }

func (e *HeadersError) Error() string {
	return fmt.Sprintf("%s holds no kernel headers: it has no %s; name what modules are built against, "+
		"such as /lib/modules/$(uname -r)/build", e.Dir, pciHeader)
}

// Compat returns the edits that let a release compile against a kernel, stock or with P2P edits.
// headers is the root of the kernel's common headers, the directory with include/linux.
func Compat(headers fs.FS) []Edit {
	const nvPCI = "kernel-open/nvidia/nv-pci.c"
	return []Edit{{
		ID:       "COMPAT-RESIZE",
		Title:    "pass exclude_bars to pci_resize_resource",
		Why:      "the kernel's pci_resize_resource takes one argument more: \"too few arguments to function\"",
		Replaces: "a call with three arguments",
		Role:     Kernel,
		Needs: []Test{
			{
				In:      headers,
				File:    pciHeader,
				Pattern: regexp.MustCompile(`\bpci_resize_resource\((?:[^,()]+,){3}[^,()]+\)`),
				Else:    "pci_resize_resource of this kernel takes three arguments",
			},
			{
				File:    "kernel-open/conftest.sh",
				Pattern: regexp.MustCompile(`\bpci_resize_resource_has_exclude_bars_arg\b`),
				Absent:  true,
				Else:    "this release asks the kernel itself how many arguments the function takes",
			},
			{
				File:    nvPCI,
				Pattern: regexp.MustCompile(`\bpci_resize_resource\(`),
				Else:    "this release does not call pci_resize_resource",
			},
		},
		File:   nvPCI,
		Func:   "nv_resize_pcie_bars",
		Anchor: regexp.MustCompile(`(\bpci_resize_resource\(pci_dev, NV_GPU_BAR1, requested_size)\);`),
		New:    `${1}, 0);`,
		Proofs: []Proof{
			once("the call has four arguments", `\bpci_resize_resource\(pci_dev, NV_GPU_BAR1, requested_size, 0\);`),
			once("there is no other call", `\bpci_resize_resource\(`),
		},
	}}
}
