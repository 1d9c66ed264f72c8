package facts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
)

// releaseRE finds a release of the driver: 535.261.03, 580.142.
var releaseRE = regexp.MustCompile(`\b\d{3}\.\d+(?:\.\d+)?\b`)

// nvidia reads what a loaded NVIDIA driver shows of itself, and what nvidia-smi
// printed, if anything.
func (g *gatherer) nvidia(smi io.Reader) {
	const dir = "proc/driver/nvidia"
	version := g.may("NVIDIA driver version", dir+"/version")
	if version == "" {
		return
	}
	first, _, _ := strings.Cut(version, "\n")
	n := &NVIDIA{
		Version: first,
		Params:  g.redact(g.may("NVIDIA driver parameters", dir+"/params")),
		Release: releaseRE.FindString(first),
		Open:    strings.Contains(first, "Open Kernel Module"),
	}
	names, _ := g.list("GPUs of the NVIDIA driver", dir+"/gpus")
	for _, address := range names {
		gpu := parseInformation(g.may("information about "+address, dir+"/gpus/"+address+"/information"))
		gpu.Address = address
		if !g.private {
			gpu.UUID = ""
		}
		n.GPUs = append(n.GPUs, gpu)
	}
	slices.SortFunc(n.GPUs, func(a, b NVIDIAGPU) int { return compareAddress(a.Address, b.Address) })
	if smi != nil {
		b, err := io.ReadAll(io.LimitReader(smi, maxFile))
		n.NVML = g.nvml(b, err)
	}
	g.facts.NVIDIA = n
}

// parseInformation reads the file information of a GPU: lines of a key, a colon
// and a value (nv-procfs.c in the driver's kernel-open/nvidia).
func parseInformation(s string) NVIDIAGPU {
	var gpu NVIDIAGPU
	for line := range strings.Lines(s) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "Model":
			gpu.Model = value
		case "GPU UUID":
			gpu.UUID = value
		case "Video BIOS":
			gpu.VBIOS = value
		case "GPU Firmware":
			gpu.Firmware = value
		case "GPU Excluded":
			gpu.Excluded = value == "Yes"
		}
	}
	return gpu
}

// gpuModules are the kernel modules that drive GPUs, or help with that.
var gpuModules = []string{
	"gdrdrv", "nouveau", "nova_core", "nova_drm", "nvidia", "nvidia_drm", "nvidia_fs", "nvidia_modeset", "nvidia_peermem",
	"nvidia_uvm", "nvidia_vgpu_vfio", "vfio_pci", "xe", "amdgpu", "i915",
}

// modules reads those of gpuModules that are loaded.
func (g *gatherer) modules() {
	const dir = "sys/module"
	for _, name := range slices.Sorted(slices.Values(gpuModules)) {
		if _, err := os.Stat(g.path(dir + "/" + name)); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				g.unknown("kernel module "+name, dir+"/"+name, err)
			}
			continue
		}
		m := Module{Name: name, Version: g.may("version of module "+name, dir+"/"+name+"/version")}
		parameters, _ := g.list("parameters of module "+name, dir+"/"+name+"/parameters")
		for _, p := range parameters {
			value, err := g.read(dir + "/" + name + "/parameters/" + p)
			if err != nil {
				g.unknown("parameter "+p+" of module "+name, dir+"/"+name+"/parameters/"+p, err)
				continue
			}
			if m.Parameters == nil {
				m.Parameters = map[string]string{}
			}
			m.Parameters[p] = g.redact(value)
		}
		g.facts.Modules = append(g.facts.Modules, m)
	}
}
