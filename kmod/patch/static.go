package patch

import "regexp"

const (
	busGM107 = "src/nvidia/src/kernel/gpu/bus/arch/maxwell/kern_bus_gm107.c"
	busGH100 = "src/nvidia/src/kernel/gpu/bus/arch/hopper/kern_bus_gh100.c"
)

// staticBar1Edits make Hopper's first static BAR1 usable on chips with a console and with
// clients that map scattered memory. Later releases have code of their own for both.
func staticBar1Edits() []Edit {
	based := Test{
		File:    busGH100,
		Func:    "kbusEnableStaticBar1Mapping_GH100",
		Pattern: regexp.MustCompile(`staticBar1\.base = bar1Offset;`),
		Else:    "static BAR1 of this release starts at offset 0",
	}
	unbased := based
	unbased.Absent, unbased.Else = true, "static BAR1 of this release starts behind the console"
	scattered := func(id, verb, function string, start Test, cond, more string) Edit {
		return Edit{
			ID:    id,
			Title: "let the CPU " + verb + " scattered memory beside static BAR1",
			Why: "under static BAR1 the driver refuses to map memory that is not contiguous, is compressed or " +
				"lies outside of the static range, which stock Turing, Ampere and Ada map without trouble",
			Replaces: "an error for such memory",
			Role:     Core,
			Families: beforeHopper,
			Needs:    []Test{staticForHopper, start},
			File:     busGM107,
			Func:     function,
			Anchor:   regexp.MustCompile(`if \((` + cond + ` &&\s+)\(memdescGetAddressSpace\(pMemDesc\) == ADDR_FBMEM\)\)`),
			New:      "if (${1}(memdescGetAddressSpace(pMemDesc) == ADDR_FBMEM) &&\n        " + more + ")",
			Proofs: []Proof{
				once("the static path is taken only where it fits", literal("(memdescGetAddressSpace(pMemDesc) == ADDR_FBMEM) &&\n        "+more+")")),
			},
		}
	}
	const fits = "(memdescGetPteArraySize(pMemDesc, AT_GPU) == 1) &&\n" +
		"        !memmgrIsKind_HAL(GPU_GET_MEMORY_MANAGER(pGpu), FB_IS_KIND_COMPRESSIBLE, memdescGetPteKind(pMemDesc)) &&\n" +
		"        "
	const enabled535, enabled545 = `pKernelBus->bar1\[gfid\]\.bStaticBar1Enabled`, `kbusIsStaticBar1Enabled\(pGpu, pKernelBus\)`
	return []Edit{
		{
			ID:    "P2P-E2-START",
			Title: "let the DMA view of static BAR1 begin at framebuffer address 0",
			Why: "a console kept at the start of BAR1 shifts the view by its size: peers then miss the 512 MiB alignment " +
				"that the driver demands, and an address computed from the start of the view is off by the console",
			Replaces: "a view that begins behind the console",
			Role:     Core,
			Needs:    []Test{staticForHopper, based},
			File:     busGH100,
			Func:     "kbusEnableStaticBar1Mapping_GH100",
			Anchor: regexp.MustCompile(`(?s)(staticBar1PhyAddr = gpumgrGetGpuPhysFbAddr\(pGpu\)) \+ bar1Offset;` +
				`(.*?memdescCreate\(&pDmaMemDesc,\s*pGpu,\s*)bar1MapSize(,.*?` +
				`memdescDescribe\(pDmaMemDesc, ADDR_SYSMEM, staticBar1PhyAddr, )bar1MapSize\);`),
			New: `${1};${2}bar1Offset + bar1MapSize${3}bar1Offset + bar1MapSize);`,
			Proofs: []Proof{
				once("the view begins at the start of BAR1", `staticBar1PhyAddr = gpumgrGetGpuPhysFbAddr\(pGpu\);`),
				once("it ends where it did", `memdescDescribe\(pDmaMemDesc, ADDR_SYSMEM, staticBar1PhyAddr, bar1Offset \+ bar1MapSize\);`),
				once("and is created with that size", `memdescCreate\(&pDmaMemDesc,\s*pGpu,\s*bar1Offset \+ bar1MapSize,`),
			},
		},
		scattered("P2P-E2-CPU-MAP", "map", "_kbusMapAperture_GM107", based, enabled535, fits+
			"(memdescGetPhysAddr(pMemDesc, AT_GPU, offset) >= pKernelBus->bar1[gfid].staticBar1.base) &&\n"+
			"        (memdescGetPhysAddr(pMemDesc, AT_GPU, offset) + *pLength < pKernelBus->bar1[gfid].staticBar1.size)"),
		scattered("P2P-E2-CPU-UNMAP", "unmap", "_kbusUnmapAperture_GM107", based, enabled535,
			"(aperOffset >= pKernelBus->bar1[gfid].staticBar1.base) &&\n"+
				"        (aperOffset - pKernelBus->bar1[gfid].staticBar1.base < pKernelBus->bar1[gfid].staticBar1.size)"),
		scattered("P2P-E2-CPU-MAP-0", "map", "_kbusMapAperture_GM107", unbased, enabled545, fits+
			"(memdescGetPhysAddr(pMemDesc, AT_GPU, offset) + *pLength < pKernelBus->bar1[GPU_GFID_PF].staticBar1.size)"),
		scattered("P2P-E2-CPU-UNMAP-0", "unmap", "_kbusUnmapAperture_GM107", unbased, enabled545,
			"(aperOffset < pKernelBus->bar1[GPU_GFID_PF].staticBar1.size)"),
	}
}
