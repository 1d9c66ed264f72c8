package patch

import (
	"io/fs"
	"regexp"

	"mkp2pimg/kmod/loadopt"
)

const (
	registry = "src/nvidia/interface/nvrm_registry.h"
	nvReg    = "kernel-open/nvidia/nv-reg.h"
	kernBus  = "src/nvidia/src/kernel/gpu/bus/kern_bus.c"
	forceP2P = loadopt.ForceP2P
)

// staticOffByDefault holds in the releases (575) whose static BAR1 must be asked for.
var staticOffByDefault = Test{
	File: registry,
	Pattern: regexp.MustCompile(`(?m)^#define\s+NV_REG_STR_RM_FORCE_STATIC_BAR1_DEFAULT\s+` +
		`\(?NV_REG_STR_RM_FORCE_STATIC_BAR1_DISABLE\b`),
	Else: "static BAR1 is on where it fits, or does not exist as an option, in this release",
}

// Offered returns what the driver of a source tree lets one set, found by looking at the source.
// Its answers are the same before and after the P2P edits.
func Offered(tree fs.FS) (loadopt.Offer, error) {
	src := newSource(tree)
	var failed error
	has := func(file, pattern string) bool {
		ok, _, err := src.ask(Test{File: file, Pattern: regexp.MustCompile(pattern)})
		if err != nil && failed == nil {
			failed = err
		}
		return ok
	}
	o := loadopt.Offer{
		ResizableBAR: has(nvReg, `\b__NV_ENABLE_RESIZABLE_BAR\b`),
		HoldsBack:    has(nvReg, `\bNV_REG_OPENRM_ENABLE_UNSUPPORTED_GPUS_DEFAULT\s+NV_REG_OPENRM_ENABLE_UNSUPPORTED_GPUS_DISABLE\b`),
		Messages:     has(nvReg, `\bNV_DEFINE_REG_STRING_ENTRY\(__NV_RM_MSG\b`),
		ForceP2P:     has(registry, `\bNV_REG_STR_CL_FORCE_P2P\b`),
	}
	switch {
	case has(registry, `(?m)^#define\s+NV_REG_STR_RM_PCIEP2P_TYPE_BAR1\s+\(?0x0*1\b`):
		o.BAR1 = loadopt.Separate
	case has(registry, `(?m)^#define\s+NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P\s+\(?0x0*2\b`):
		o.BAR1 = loadopt.Joint
	}
	switch {
	case has(registry, staticOffByDefault.Pattern.String()):
		o.Static = loadopt.StaticOff
	case has(registry, `(?m)^#define\s+NV_REG_STR_RM_FORCE_STATIC_BAR1_DEFAULT\s+\(?NV_REG_STR_RM_FORCE_STATIC_BAR1_ONLY_GPU\b`):
		o.Static = loadopt.StaticAsked
	case has(kernBus, `\bstaticBar1ForceType\s*=\s*NV_REG_STR_RM_FORCE_STATIC_BAR1_AUTO\s*;`):
		o.Static = loadopt.StaticAuto
	}
	return o, failed
}
