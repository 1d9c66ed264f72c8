package runfile

import (
	"path"
	"slices"
	"strings"
)

// Driver selects what an image needs of the driver release: the libraries of
// CUDA, NVML and the compiler of PTX, nvidia-smi, all firmware, and the
// licence. Firmware goes to lib/firmware/nvidia/VERSION, where the kernel
// looks for it; the other files stay at the top, as in the archive, whose
// 32-bit libraries, in 32/, are left.
func Driver(version string) Files {
	needed := []string{
		"libcuda.so." + version,
		"libnvidia-ml.so." + version,
		"libnvidia-ptxjitcompiler.so." + version,
		"nvidia-smi",
	}
	taken := append([]string{"LICENSE"}, needed...)
	return Files{
		Version: version,
		Needed:  append(needed, "firmware/gsp_*.bin"),
		Dest: func(name string) (string, bool) {
			dir, base := path.Split(name)
			if dir == "firmware/" && strings.HasSuffix(base, ".bin") {
				return path.Join("lib/firmware/nvidia", version, base), true
			}
			return name, slices.Contains(taken, name)
		},
	}
}
