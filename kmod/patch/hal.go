package patch

import (
	"fmt"
	"regexp"
)

const (
	busHAL    = "src/nvidia/generated/g_kern_bus_nvoc.c"
	busHeader = "src/nvidia/generated/g_kern_bus_nvoc.h"
	halInit   = "__nvoc_init_funcTable_KernelBus_1"
)

// staticForHopper holds in the releases (up to 560) whose static mapping of the framebuffer in BAR1
// is for Hopper only. From 565 on it is for Turing and later.
var staticForHopper = Test{
	File:    busHeader,
	Pattern: regexp.MustCompile(`\bkbusEnableStaticBar1Mapping_TU102\b`),
	Absent:  true,
	Else:    "static BAR1 is implemented for Turing and later in this release",
}

// halEdits bind the function slots of BAR1 peer-to-peer to the implementation written for
// Hopper on the chips that get a stub: Turing, Ampere and Ada, which share the "default"
// branch of the generated table. The implementations use no Hopper registers.
func halEdits() []Edit {
	var edits []Edit
	for _, slot := range []struct{ id, name, why string }{
		{"CREATE", "kbusCreateP2PMappingForBar1P2P", "without it a BAR1 peer mapping can't be created"},
		{"REMOVE", "kbusRemoveP2PMappingForBar1P2P", "without it a BAR1 peer mapping is never released"},
		{"HAS", "kbusHasPcieBar1P2PMapping", "without it no one can tell that a pair is connected over BAR1"},
		{"SUPPORTED", "kbusIsPcieBar1P2PMappingSupported", "without it no pair of these chips qualifies for BAR1 peer-to-peer"},
		{"DMA", "kbusGetBar1P2PDmaInfo", "without it the bus address of the peer's BAR1 is unknown"},
	} {
		edits = append(edits, rebind("P2P-E2-"+slot.id, slot.name, slot.why, nil))
	}
	const why = "BAR1 peer-to-peer needs the whole framebuffer mapped in BAR1 at a fixed place"
	for _, slot := range []struct {
		id, name string
		optional bool
	}{
		{"NEED", "kbusNeedStaticBar1Mapping", true},
		{"CAPABILITY", "kbusSetupBar1P2PCapability", true},
		{"CAPABLE", "kbusIsBar1P2PCapable", true},
		{"ENABLE", "kbusEnableStaticBar1Mapping", false},
		{"DISABLE", "kbusDisableStaticBar1Mapping", false},
		{"MAP", "kbusStaticMapFbAperture", true},
		{"UNMAP", "kbusStaticUnmapFbAperture", true},
		{"APERTURE", "kbusGetStaticFbAperture", true},
		{"KIND", "kbusUpdateStaticBar1VAMapping", true},
	} {
		needs := []Test{staticForHopper}
		if slot.optional {
			needs = append(needs, Test{
				File:    busHeader,
				Pattern: regexp.MustCompile(fmt.Sprintf(`\(\*__%s__\)\(`, slot.name)),
				Else:    "this release has no function slot " + slot.name,
			})
		}
		edits = append(edits, rebind("P2P-E2-STATIC-"+slot.id, slot.name, why, needs))
	}
	return edits
}

// rebind makes the default branch of a slot use the Hopper implementation. Stubs carry a
// six-digit hash in their name that changes between releases.
func rebind(id, slot, why string, needs []Test) Edit {
	assign := fmt.Sprintf(`pThis->__%[1]s__ = &%[1]s`, slot)
	return Edit{
		ID:       id,
		Title:    fmt.Sprintf("bind %s to the Hopper implementation on Turing, Ampere and Ada", slot),
		Why:      why,
		Replaces: "the stub that answers \"not supported\"",
		Seed:     "3.2.2",
		Role:     Core,
		Families: beforeHopper,
		Needs:    needs,
		File:     busHAL,
		Func:     halInit,
		Anchor:   regexp.MustCompile(`(` + assign + `)_[0-9a-f]{6};`),
		New:      `${1}_GH100;`,
		Proofs: []Proof{
			gone("no branch of "+slot+" is bound to a stub", assign+`_[0-9a-f]{6};`),
			once("the last branch of "+slot+" is bound to the Hopper implementation",
				`else\s*\{\s*`+assign+`_GH100;`),
			once("the Hopper branch of "+slot+" is as it was", `\)\s*\{\s*`+assign+`_GH100;`),
		},
	}
}
