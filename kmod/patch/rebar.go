package patch

import "regexp"

// rebarEdits grow BAR1 by default. The module option NVreg_EnableResizableBar does the same.
func rebarEdits() []Edit {
	return []Edit{{
		ID:       "P2P-E1-REBAR",
		Title:    "resize BAR1 to the largest size the card offers by default",
		Why:      "peer-to-peer over BAR1 reaches only memory that BAR1 can hold, and firmware may leave it at 256 MiB",
		Replaces: "the default NVreg_EnableResizableBar=0",
		Seed:     "3.2.1",
		Role:     Default,
		File:     "kernel-open/nvidia/nv-reg.h",
		Anchor:   regexp.MustCompile(`NV_DEFINE_REG_ENTRY_GLOBAL\(__NV_ENABLE_RESIZABLE_BAR, 0\);`),
		New:      `NV_DEFINE_REG_ENTRY_GLOBAL(__NV_ENABLE_RESIZABLE_BAR, 1);`,
		Proofs: []Proof{
			once("the default is 1", `NV_DEFINE_REG_ENTRY_GLOBAL\(__NV_ENABLE_RESIZABLE_BAR, 1\);`),
		},
	}}
}
