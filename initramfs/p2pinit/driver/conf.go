package driver

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Options returns the options of a module from a modprobe.d file: the values of
// all its "options <module> …" lines, joined by spaces as finit_module(2) wants
// them. Comments and lines continued by a backslash are understood.
func Options(r io.Reader, module string) (string, error) {
	var options []string
	var whole string
	s := bufio.NewScanner(r)
	for s.Scan() {
		part, continued := strings.CutSuffix(s.Text(), `\`)
		whole += part
		if continued {
			continue
		}
		f := strings.Fields(whole)
		whole = ""
		if len(f) > 2 && f[0] == "options" && strings.ReplaceAll(f[1], "-", "_") == module {
			options = append(options, f[2:]...)
		}
	}
	return strings.Join(options, " "), s.Err()
}

// Node is a character device that the CUDA library opens.
type Node struct {
	Path         string
	Major, Minor uint32
}

// The majors that /proc/devices gives under several names, and fixed minors
// (kernel-open/common/inc/nv.h: NV_CONTROL_DEVICE_MINOR; kernel-open/nvidia-uvm/
// uvm_common.h: NVIDIA_UVM_PRIMARY_MINOR_NUMBER and the tools' one).
const (
	controlMinor  = 255
	uvmMinor      = 0
	uvmToolsMinor = 1
)

// Nodes returns the device nodes of the loaded driver. devices is the text of
// /proc/devices; minors are those of the GPUs.
func Nodes(devices string, minors []uint32) ([]Node, error) {
	majors := charMajors(devices)
	// nvidia-frontend until release 545, nvidia since.
	gpu, ok := majors["nvidia-frontend"]
	if !ok {
		gpu, ok = majors["nvidia"]
	}
	if !ok {
		return nil, fmt.Errorf("/proc/devices has no character device nvidia or nvidia-frontend: is nvidia.ko loaded?")
	}
	nodes := []Node{{"/dev/nvidiactl", gpu, controlMinor}}
	slices.Sort(minors)
	for _, m := range minors {
		nodes = append(nodes, Node{fmt.Sprint("/dev/nvidia", m), gpu, m})
	}
	if uvm, ok := majors["nvidia-uvm"]; ok {
		nodes = append(nodes, Node{"/dev/nvidia-uvm", uvm, uvmMinor}, Node{"/dev/nvidia-uvm-tools", uvm, uvmToolsMinor})
	}
	return nodes, nil
}

// charMajors reads the character devices of /proc/devices: lines "195 nvidia".
func charMajors(text string) map[string]uint32 {
	majors := map[string]uint32{}
	char := false
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Character devices:"):
			char = true
		case strings.HasPrefix(line, "Block devices:"):
			char = false
		case char && len(f) == 2:
			if n, err := strconv.ParseUint(f[0], 10, 32); err == nil {
				majors[f[1]] = uint32(n)
			}
		}
	}
	return majors
}

// Minor returns the minor number of a GPU from the text of its file
// /proc/driver/nvidia/gpus/<BDF>/information.
func Minor(information string) (uint32, error) {
	for line := range strings.Lines(information) {
		if value, ok := strings.CutPrefix(line, "Device Minor:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32)
			if err != nil {
				return 0, fmt.Errorf("device minor: %w", err)
			}
			return uint32(n), nil
		}
	}
	return 0, fmt.Errorf("no line \"Device Minor:\" in %q", clip(information))
}

func clip(s string) string { return s[:min(len(s), 80)] }

// Message returns the text of a record of /dev/kmsg ("6,339,5140900,-;text" and
// lines of properties below), and whether it is one.
func Message(record string) (string, bool) {
	_, text, ok := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	return text, ok
}

// Relevant reports whether a line of the kernel's log is about the driver, about
// loading modules, or about faults of PCIe and the IOMMU.
func Relevant(line string) bool {
	low := strings.ToLower(line)
	return slices.ContainsFunc([]string{"nvrm", "nvidia", "module", "lockdown", "symbol", "dmar", "amd-vi", "io_page_fault", "aer:", "pcie bus error"},
		func(word string) bool { return strings.Contains(low, word) })
}

// ModuleName is the module's name in the kernel: of nvidia-uvm.ko nvidia_uvm.
func ModuleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(path.Base(file), ".ko"), "-", "_")
}
