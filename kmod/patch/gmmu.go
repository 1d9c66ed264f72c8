package patch

import (
	"regexp"
	"slices"
)

const gpuOps = "src/nvidia/src/kernel/rmapi/nv_gpu_ops.c"

// gmmuEdits make the page table entries of peer memory point at the peer's BAR1. Releases from
// 580 on do so themselves; the edits bring their way of doing it to earlier ones: the aperture
// is system memory, the address the one that kbusGetBar1P2PDmaInfo gives for the mapping GPU, so
// that the start of static BAR1 and an IOMMU mapping are honoured. Peers that are not connected
// over BAR1 (NVLink, mailbox) keep their entries.
func gmmuEdits() []Edit {
	native := Test{
		File:    gpuOps,
		Pattern: regexp.MustCompile(`\bisBar1P2PSupported\b`),
		Absent:  true,
		Else:    "this release builds page table entries for BAR1 peers itself",
	}
	blackwell := Test{
		File:    "src/nvidia/generated/g_rmconfig_private.h",
		Pattern: regexp.MustCompile(`(?m)^#define IsGB100orBetter\(pGpu\)`),
		Else:    "this release does not know Blackwell",
	}
	hopperLast := blackwell
	hopperLast.Absent, hopperLast.Else = true, "this release knows Blackwell, which takes another aperture"
	physAddrs := Test{
		File:    gpuOps,
		Func:    "nvGpuOpsBuildExternalAllocPhysAddrs",
		Pattern: regexp.MustCompile(`kgmmuEncodePhysAddrs\(`),
		Else:    "this release has no nvGpuOpsBuildExternalAllocPhysAddrs",
	}

	var edits []Edit
	for _, f := range []struct {
		suffix, name, count, fail string
		needs                     []Test
	}{
		{"", "nvGpuOpsBuildExternalAllocPtes", "pteCount", "goto done;", []Test{native}},
		{"-PHYS", "nvGpuOpsBuildExternalAllocPhysAddrs", "physAddrCount", "portMemFree(physicalAddresses);\n" +
			"                return status;", []Test{native, physAddrs}},
	} {
		edits = append(edits,
			aperture("P2P-E3-APERTURE"+f.suffix, f.name, "GMMU_APERTURE_SYS_NONCOH", append(slices.Clip(f.needs), hopperLast)),
			aperture("P2P-E3-APERTURE-GB"+f.suffix, f.name,
				"IsGB100orBetter(pMemDesc->pGpu) ? GMMU_APERTURE_SYS_COH : GMMU_APERTURE_SYS_NONCOH",
				append(slices.Clip(f.needs), blackwell)),
			addresses("P2P-E3-ADDRESS"+f.suffix, f.name, f.count, f.fail, f.needs),
		)
	}
	return edits
}

// aperture turns the peer aperture into system memory for a peer connected over BAR1. It follows
// the choice of volatility, which must stay the one for a peer. Before Blackwell a peer's BAR1
// takes no inbound atomics, hence the non-coherent aperture.
func aperture(id, function, sysmem string, needs []Test) Edit {
	return Edit{
		ID:       id,
		Title:    "map memory of a BAR1 peer as system memory",
		Why:      "the peer aperture goes through a mailbox or NVLink that the pair does not have",
		Replaces: "the PEER aperture with an invalid peer id",
		Seed:     "3.2.3",
		Role:     Core,
		Needs:    needs,
		File:     gpuOps,
		Func:     function,
		Anchor:   regexp.MustCompile(`(?m)^    status = nvGpuOpsGetExternalAllocMappingAttribute\(`),
		New: `    NvU64 bar1DmaAddress = 0;
    NvU64 bar1DmaSize    = 0;

    if ((aperture == GMMU_APERTURE_PEER) &&
        (memdescGetAddressSpace(pMemDesc) == ADDR_FBMEM) &&
        (pMemDesc->pGpu != pMappingGpu))
    {
        KernelBus *pPeerKernelBus = GPU_GET_KERNEL_BUS(pMemDesc->pGpu);

        if (kbusHasPcieBar1P2PMapping_HAL(pMappingGpu, GPU_GET_KERNEL_BUS(pMappingGpu),
                                          pMemDesc->pGpu, pPeerKernelBus))
        {
            status = kbusGetBar1P2PDmaInfo_HAL(pMappingGpu, pMemDesc->pGpu, pPeerKernelBus,
                                               &bar1DmaAddress, &bar1DmaSize);
            if (status != NV_OK)
                return status;

            aperture = ` + sysmem + `;
        }
        else if (peerId == BUS_INVALID_PEER)
        {
            NV_PRINTF(LEVEL_ERROR, "no BAR1 P2P mapping between GPU%u and GPU%u\n",
                      gpuGetInstance(pMappingGpu), gpuGetInstance(pMemDesc->pGpu));
            return NV_ERR_INVALID_STATE;
        }
    }

${0}`,
		Proofs: []Proof{
			once("the aperture of a BAR1 peer is system memory", literal("aperture = "+sysmem+";")),
			once("only a BAR1 peer gets it", `if \(kbusHasPcieBar1P2PMapping_HAL\(pMappingGpu,`),
			once("the attribute is still asked for", `\bnvGpuOpsGetExternalAllocMappingAttribute\(`),
		},
	}
}

// addresses adds the bus address of the peer's BAR1 to its framebuffer addresses. A page that
// static BAR1 does not cover is an error: its address would be someone else's.
func addresses(id, function, count, fail string, needs []Test) Edit {
	return Edit{
		ID:       id,
		Title:    "address memory of a BAR1 peer by the bus address of its BAR1",
		Why:      "the address of a page in the peer's framebuffer means nothing on the bus",
		Replaces: "the framebuffer address with NVLink's fabric address",
		Seed:     "3.2.3",
		Role:     Core,
		Needs:    needs,
		File:     gpuOps,
		Func:     function,
		Anchor: regexp.MustCompile(`(?m)^    (kgmmuEncodePhysAddrs\(pKernelGmmu, aperture, physicalAddresses, fabricBaseAddress, ` +
			count + `\);)`),
		New: `    if (bar1DmaSize != 0)
    {
        for (iter = 0; iter < ` + count + `; iter++)
        {
            if ((mappingPageSize > bar1DmaSize) ||
                (physicalAddresses[iter] > bar1DmaSize - mappingPageSize))
            {
                NV_PRINTF(LEVEL_ERROR, "page 0x%llx of GPU%u lies outside of its static BAR1\n",
                          physicalAddresses[iter], gpuGetInstance(pMemDesc->pGpu));
                status = NV_ERR_INVALID_ADDRESS;
                ` + fail + `
            }
            physicalAddresses[iter] += bar1DmaAddress;
        }
    }
    else
    {
        ${1}
    }`,
		Proofs: []Proof{
			once("BAR1 addresses are used for BAR1 peers", `physicalAddresses\[iter\] \+= bar1DmaAddress;`),
			once("others are encoded as before", `else\s*\{\s*kgmmuEncodePhysAddrs\(`),
			gone("no encoding is left outside", `(?m)^    kgmmuEncodePhysAddrs\(`),
		},
	}
}
