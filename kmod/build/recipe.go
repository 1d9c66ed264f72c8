package build

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// moduleNames are the modules that are built. The source has more: for
// displays, and for the memory of network cards.
var moduleNames = []string{"nvidia", "nvidia-uvm"}

// command is a part of a stage, run in its tree.
type command struct {
	name     string
	argv     []string
	parallel bool // takes make's -j
}

// copyCommand copies a tree with its time stamps. Owners may be such as a user
// namespace can't set.
func copyCommand(from, to string) []string {
	return []string{"cp", "-R", "--no-dereference", "--preserve=mode,timestamps,links", "--reflink=auto", from + "/.", to}
}

// nvKernel makes the part of nvidia.ko that knows no kernel, by the one rule of
// the source's Makefile that leaves out the display's.
//
// It tells who built it, where and when (utils.mk, GENERATE_NVIDSTRING): hence
// WHOAMI, HOSTNAME and DATE.
func nvKernel(date time.Time) command {
	return command{"nv-kernel.o", []string{
		"make", "kernel-open/nvidia/nv-kernel.o_binary",
		"WHOAMI=echo mkp2pimg", "HOSTNAME=mkp2pimg",
		fmt.Sprintf("DATE=date -u -d @%d", epoch(date)),
	}, true}
}

// kbuild makes the modules out of what Kbuild compiles and nv-kernel.o. BTF,
// types for tracing, would need pahole and the kernel's own BTF. Debug
// information would be stripped in the end.
func kbuild(kernel string) command {
	return command{"modules", append([]string{
		"make", "-C", "kernel-open", "modules",
		"KERNEL_UNAME=" + kernel,
		"NV_KERNEL_MODULES=" + strings.Join(moduleNames, " "),
		"CONFIG_DEBUG_INFO_BTF_MODULES=", "CONFIG_DEBUG_INFO=",
	}, debianArch...), true}
}

// debianArch are variables of make. Debian's headers ask dpkg for the
// architecture unless told (6.12), and take a build that knows only one of the
// two for a cross build (6.1: nm is then "-nm").
var debianArch = []string{"DEB_BUILD_ARCH=amd64", "DEB_HOST_ARCH=amd64"}

// strip copies a module into dir, without what only a debugger reads.
func strip(module, dir string) command {
	return command{"strip " + module, []string{
		"strip", "--strip-debug", "-o", filepath.Join(dir, module+".ko"), "kernel-open/" + module + ".ko",
	}, false}
}

// environment is what the commands see beside the sandbox's own.
func environment(date time.Time) []string {
	return []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", epoch(date))}
}

func epoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}
