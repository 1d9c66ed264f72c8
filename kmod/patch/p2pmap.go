package patch

import "regexp"

const busGP100 = "src/nvidia/src/kernel/gpu/bus/arch/pascal/kern_bus_gp100.c"

// mappingEdits let Turing, Ampere and Ada, whose mapping functions date from Pascal, create and
// remove a peer mapping over BAR1. Hopper and later have their own pair of functions.
func mappingEdits() []Edit {
	pcie := `(?m)^([ ]*)if \(FLD_TEST_DRF\(_P2PAPI, _ATTRIBUTES, _CONNECTION_TYPE, _PCIE, attributes\)\)`
	bar1 := `if \(FLD_TEST_DRF\(_P2PAPI, _ATTRIBUTES, _CONNECTION_TYPE, _PCIE_BAR1, attributes\)\)\s*\{\s*return `
	edit := func(id, verb string) Edit {
		call := "kbus" + verb + "P2PMappingForBar1P2P_HAL(pGpu0, pKernelBus0, pGpu1, pKernelBus1, attributes)"
		return Edit{
			ID:       id,
			Title:    "let kbus" + verb + "P2PMapping_GP100 handle BAR1 connections",
			Why:      "a BAR1 connection ends in \"P2P type is not supported\"",
			Replaces: "an error for a connection type that the function does not know",
			Seed:     "3.2.4",
			Role:     Core,
			Families: beforeHopper,
			File:     busGP100,
			Func:     "kbus" + verb + "P2PMapping_GP100",
			Anchor:   regexp.MustCompile(pcie),
			New: `${1}if (FLD_TEST_DRF(_P2PAPI, _ATTRIBUTES, _CONNECTION_TYPE, _PCIE_BAR1, attributes))
${1}{
${1}    return ` + call + `;
${1}}

${0}`,
			Proofs: []Proof{
				once("the BAR1 connection type is handled", bar1+literal(call)+`;`),
				once("the mailbox connection type still is", pcie),
			},
		}
	}
	return []Edit{edit("P2P-E4-CREATE", "Create"), edit("P2P-E4-REMOVE", "Remove")}
}
