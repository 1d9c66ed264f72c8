package facts

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"strings"
)

// kernelOptions are the options of the kernel's configuration that decide
// whether an IOMMU translates by default, what becomes of BARs without room,
// whether errors are counted, which drivers can take a GPU and whether modules
// must be signed.
var kernelOptions = map[string]bool{
	"CONFIG_IOMMU_DEFAULT_DMA_STRICT":               true,
	"CONFIG_IOMMU_DEFAULT_DMA_LAZY":                 true,
	"CONFIG_IOMMU_DEFAULT_PASSTHROUGH":              true,
	"CONFIG_INTEL_IOMMU":                            true,
	"CONFIG_INTEL_IOMMU_DEFAULT_ON":                 true,
	"CONFIG_INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF":      true,
	"CONFIG_INTEL_IOMMU_SCALABLE_MODE_DEFAULT_ON":   true,
	"CONFIG_AMD_IOMMU":                              true,
	"CONFIG_PCI_REALLOC_ENABLE_AUTO":                true,
	"CONFIG_PCI_QUIRKS":                             true,
	"CONFIG_PCI_IOV":                                true,
	"CONFIG_PCIEAER":                                true,
	"CONFIG_PCIEASPM":                               true,
	"CONFIG_NUMA":                                   true,
	"CONFIG_DEVICE_PRIVATE":                         true,
	"CONFIG_DRM_NOUVEAU":                            true,
	"CONFIG_DRM_NOVA":                               true,
	"CONFIG_DRM_SIMPLEDRM":                          true,
	"CONFIG_FB_EFI":                                 true,
	"CONFIG_MODULE_SIG":                             true,
	"CONFIG_MODULE_SIG_FORCE":                       true,
	"CONFIG_SECURITY_LOCKDOWN_LSM":                  true,
	"CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY":       true,
	"CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY": true,
}

// kernelConfig reads the configuration of the running kernel from the first
// place that has it: the kernel itself, /boot of Debian and its kin, or the
// folder of modules of Fedora and its kin.
func (g *gatherer) kernelConfig() map[string]string {
	const what = "kernel configuration"
	release := g.facts.Kernel.Release
	for _, name := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		b, err := g.readRaw(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && strings.HasSuffix(name, ".gz") {
			b, err = gunzip(b)
		}
		if err != nil {
			g.unknown(what, name, err)
			return nil
		}
		return parseConfig(string(b))
	}
	g.unknown(what, "boot/config-"+release, errors.New("not found, nor /proc/config.gz"))
	return nil
}

func gunzip(b []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, maxFile))
}

// parseConfig keeps the options in kernelOptions. One that the file does not
// mention is not in the result: its kernel has no such option, or what it depends
// on is off.
func parseConfig(s string) map[string]string {
	config := map[string]string{}
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		if off, isOff := strings.CutSuffix(line, " is not set"); isOff {
			name, value, ok = strings.TrimPrefix(off, "# "), "n", true
		}
		if ok && kernelOptions[name] {
			config[name] = value
		}
	}
	return config
}
