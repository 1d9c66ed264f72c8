package patch

import (
	"io/fs"
	"regexp"
)

// Compat returns the edits that let a release compile against a kernel, stock or with P2P edits.
// headers is the root of the kernel's common headers, the directory with include/linux.
func Compat(headers fs.FS) []Edit {
	const nvPCI = "kernel-open/nvidia/nv-pci.c"
	return []Edit{{
		ID:       "COMPAT-RESIZE",
		Title:    "pass exclude_bars to pci_resize_resource",
		Why:      "the kernel's pci_resize_resource takes one argument more: \"too few arguments to function\"",
		Replaces: "a call with three arguments",
		Needs: []Test{
			{
				In:      headers,
				File:    "include/linux/pci.h",
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
