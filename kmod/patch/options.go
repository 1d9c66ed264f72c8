package patch

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

const (
	registry = "src/nvidia/interface/nvrm_registry.h"
	nvReg    = "kernel-open/nvidia/nv-reg.h"
	// forceP2P allows peer reads (bits 1:0 = 1) and writes (5:4 = 1) and leaves atomics at the
	// driver's default (9:8 = 2): NV_REG_STR_CL_FORCE_P2P_* in nvrm_registry.h.
	forceP2P = "0x211"
)

// staticOffByDefault holds in the releases (575) whose static BAR1 must be asked for.
var staticOffByDefault = Test{
	File: registry,
	Pattern: regexp.MustCompile(`(?m)^#define\s+NV_REG_STR_RM_FORCE_STATIC_BAR1_DEFAULT\s+` +
		`\(?NV_REG_STR_RM_FORCE_STATIC_BAR1_DISABLE\b`),
	Else: "static BAR1 is on where it fits, or does not exist as an option, in this release",
}

// Option is a setting with which the nvidia module must be loaded for BAR1 peer-to-peer.
type Option struct {
	// Name is the module parameter, or the registry key if Key is set.
	Name string `json:"name"`
	// Value is as the driver reads it.
	Value string `json:"value"`
	// Key says that Name goes into NVreg_RegistryDwords.
	Key bool `json:"key,omitempty"`
	// Why says what the setting is for.
	Why string `json:"why"`
}

// LoadOptions returns the options that the driver built from tree needs, found by looking at
// what the source offers.
func LoadOptions(tree fs.FS) ([]Option, error) {
	src := newSource(tree)
	joint := `(?m)^#define\s+NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P\s+\(?0x0*2\b`
	separate := `(?m)^#define\s+NV_REG_STR_RM_PCIEP2P_TYPE_BAR1\s+\(?0x0*1\b`
	var options []Option
	for _, o := range []struct {
		file, pattern string
		option        Option
	}{
		{nvReg, `\b__NV_ENABLE_RESIZABLE_BAR\b`, Option{"NVreg_EnableResizableBar", "1", false,
			"grows BAR1 where firmware left it small; the driver never shrinks it"}},
		{nvReg, `\bNV_REG_OPENRM_ENABLE_UNSUPPORTED_GPUS_DEFAULT\s+NV_REG_OPENRM_ENABLE_UNSUPPORTED_GPUS_DISABLE\b`, Option{"NVreg_OpenRmEnableUnsupportedGpus", "1", false,
			"lets the open modules drive GeForce and workstation cards in releases that hold them back"}},
		{registry, `\bNV_REG_STR_CL_FORCE_P2P\b`, Option{"ForceP2P", forceP2P, true,
			"allows peer reads and writes whatever the driver's list of chipsets says, atomics as they are"}},
		{registry, joint, Option{"RMForceP2PType", "2", true, "chooses BAR1 over the mailbox"}},
		{registry, separate, Option{"RMPcieP2PType", "1", true,
			"chooses BAR1 over the mailbox, and leaves NVLink to pairs that have it"}},
		{registry, staticOffByDefault.Pattern.String(), Option{"RMForceStaticBar1", "2", true,
			"maps the framebuffer in BAR1 where it fits; this release does not by default"}},
	} {
		ok, _, err := src.ask(Test{File: o.file, Pattern: regexp.MustCompile(o.pattern)})
		if err != nil {
			return nil, err
		}
		if ok {
			options = append(options, o.option)
		}
	}
	return options, nil
}

// Modprobe returns options as one line for a file in /etc/modprobe.d, or "" if there are none.
func Modprobe(options []Option) string {
	var params, keys []string
	for _, o := range options {
		if o.Key {
			keys = append(keys, o.Name+"="+o.Value)
		} else {
			params = append(params, o.Name+"="+o.Value)
		}
	}
	if keys != nil {
		params = append(params, fmt.Sprintf("NVreg_RegistryDwords=%q", strings.Join(keys, ";")))
	}
	if params == nil {
		return ""
	}
	return "options nvidia " + strings.Join(params, " ") + "\n"
}
