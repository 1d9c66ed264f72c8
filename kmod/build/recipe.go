package build

import (
	"fmt"
	"strings"
	"time"
)

// moduleNames are the modules that are built. The source has more: for
// displays, and for the memory of network cards.
var moduleNames = []string{"nvidia", "nvidia-uvm"}

// command is a step of the recipe, run in a tree.
type command struct {
	name     string
	argv     []string
	parallel bool // takes make's -j
}

// recipe makes the modules of a changed tree: first the part of the driver
// that knows no kernel, by the one rule of the source's Makefile that leaves
// out the display's; then what Kbuild compiles and links with it.
//
// nvidia.ko tells who built it, where and when (utils.mk, GENERATE_NVIDSTRING):
// hence WHOAMI, HOSTNAME and DATE. BTF, types for tracing, would need pahole and
// the kernel's own BTF. Debug information would be stripped in the end.
func recipe(cfg *Config) []command {
	return []command{
		{"nv-kernel.o", []string{
			"make", "kernel-open/nvidia/nv-kernel.o_binary",
			"WHOAMI=echo mkp2pimg", "HOSTNAME=mkp2pimg",
			fmt.Sprintf("DATE=date -u -d @%d", epoch(cfg.Epoch)),
		}, true},
		{"modules", []string{
			"make", "-C", "kernel-open", "modules",
			"KERNEL_UNAME=" + cfg.Kernel,
			"NV_KERNEL_MODULES=" + strings.Join(moduleNames, " "),
			"CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_DEBUG_INFO=",
		}, true},
	}
}

// environment is what the commands see beside the sandbox's own. Debian's
// headers ask dpkg for the architecture unless told.
func environment(date time.Time) []string {
	return []string{
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch(date)),
		"DEB_BUILD_ARCH=amd64",
	}
}

func epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
