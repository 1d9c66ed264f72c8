package patch

import "regexp"

const uvmVASpace = "kernel-open/nvidia-uvm/uvm_va_space.c"

// uvmEdits keep managed memory off BAR1 peers. UVM up to 580 knows peers only by a peer id, and a
// BAR1 peer has none: it would map and copy managed memory through an aperture of no meaning.
// Ordinary allocations are mapped by the resource manager and are not concerned.
//
// Blackwell needs no edit of UVM beside these. Drivers of others make uvm_parent_gpu_is_coherent
// answer true on it, since peer pages of Blackwell are mapped as coherent system memory. That is left
// out on purpose. The function asks whether the CPU can address the GPU's memory coherently, as on
// Grace Hopper, and no caller asks about peers: page table entries of peers come whole from the
// resource manager. What its answer decides would be wrong on a card in a PCIe slot: native atomics
// of the GPU on host memory (register_gpu in uvm_va_space.c), which a PCIe host need not have;
// physical pages for device memory taken from a memory window of size 0 (uvm_va_range_device_p2p.c);
// and no program could use Blackwell together with an older card, since UVM refuses to mix
// coherent and other GPUs. The one answer near to peers, the width of the barrier after a mapping of
// local memory is gone (uvm_hal_downgrade_membar_type), is right as it is: peers on BAR1 go through the
// L2 cache of the GPU that owns the memory, which a barrier of that GPU orders. Releases from 580 on
// map BAR1 peers natively, with SYS_COH on Blackwell, and leave the function as it was.
func uvmEdits() []Edit {
	unaware := Test{
		File:    "kernel-open/nvidia-uvm/uvm_gpu.h",
		Pattern: regexp.MustCompile(`\bUVM_GPU_LINK_PCIE_BAR1\b`),
		Absent:  true,
		Else:    "UVM of this release knows BAR1 peers",
	}
	perPair := Test{
		File:    uvmVASpace,
		Func:    "enable_peers",
		Pattern: regexp.MustCompile(`peer_caps = &g_uvm_global\.peers\[table_index\];`),
		Else:    "peer ids belong to parent GPUs in this release",
	}
	perParent := perPair
	perParent.Absent, perParent.Else = true, "peer ids belong to pairs of GPUs in this release"
	edit := func(id, noPeerID, index string, needs ...Test) Edit {
		return Edit{
			ID:       id,
			Title:    "migrate managed memory through the host between BAR1 peers",
			Why:      "UVM maps and copies managed memory of a peer by its peer id, and a BAR1 peer has none: data would go astray",
			Replaces: "managed memory mapped through peer id 255",
			Role:     Guard,
			Needs:    needs,
			File:     uvmVASpace,
			Func:     "enable_peers",
			Anchor:   regexp.MustCompile(`(?m)^    processor_mask_array_set\(va_space->can_access, gpu0->id, gpu1->id\);`),
			New: `    if (` + noPeerID + `) {
        __set_bit(` + index + `, va_space->enabled_peers);
        return NV_OK;
    }

${0}`,
			Proofs: []Proof{
				once("a peer without id gets no managed mappings", literal("if ("+noPeerID+") {")),
				once("other peers do", `\n    processor_mask_array_set\(va_space->can_access, gpu0->id, gpu1->id\);`),
			},
		}
	}
	return []Edit{
		edit("P2P-E6-MANAGED", "UVM_APERTURE_PEER(peer_caps->peer_ids[0]) >= UVM_APERTURE_PEER_MAX", "table_index", unaware, perPair),
		edit("P2P-E6-MANAGED-PARENT", "!uvm_gpus_are_smc_peers(gpu0, gpu1) &&\n"+
			"        uvm_gpu_peer_aperture(gpu0, gpu1) >= UVM_APERTURE_PEER_MAX", "pair_index", unaware, perParent),
	}
}
