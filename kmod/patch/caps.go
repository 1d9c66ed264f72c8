package patch

import "regexp"

const p2pCaps = "src/nvidia/src/kernel/platform/p2p/p2p_caps.c"

// capsEdits let ForceP2P decide about BAR1 peer-to-peer as it does about the mailbox.
func capsEdits() []Edit {
	const function = "_kp2pCapsGetStatusOverPcieBar1"
	return []Edit{{
		ID:    "P2P-E5-FORCE",
		Title: "let ForceP2P decide about BAR1 peer-to-peer",
		Why: "this release asks its own short list of hosts: reads are denied on every Intel CPU, and the " +
			"forced answer leaves it unknown whether the pair sits behind one switch",
		Replaces: "a denial of reads that ForceP2P can't override",
		Needs: []Test{{
			File:    p2pCaps,
			Func:    function,
			Pattern: regexp.MustCompile(`_kp2pCapsCheckStatusOverridesForPcie\(`),
			Absent:  true,
			Else:    "ForceP2P decides in this release already",
		}},
		File: p2pCaps,
		Func: function,
		Anchor: regexp.MustCompile(`(?m)^    NV_CHECK_OK_OR_RETURN\(LEVEL_ERROR,\s*` +
			`_p2pCapsGetHostSystemStatusOverPcieBar1\(`),
		New: `    if (_kp2pCapsCheckStatusOverridesForPcie(gpuMask, pP2PWriteCapStatus, pP2PReadCapStatus))
    {
        return NV_OK;
    }

${0}`,
		Proofs: []Proof{
			once("a forced answer comes before the list of hosts", `(?s)kbusIsPcieBar1P2PMappingSupported_HAL\(.*`+
				`if \(_kp2pCapsCheckStatusOverridesForPcie\(gpuMask, pP2PWriteCapStatus, pP2PReadCapStatus\)\)\s*\{\s*return NV_OK;\s*\}\s*`+
				`NV_CHECK_OK_OR_RETURN\(LEVEL_ERROR,\s*_p2pCapsGetHostSystemStatusOverPcieBar1\(`),
		},
	}}
}

// linkEdits keep NVLink alive beside forced BAR1 peer-to-peer. Releases from 575 on choose the
// PCIe protocol apart from the link and need none.
func linkEdits() []Edit {
	const function = "_gpumgrGetP2PCapsStatusOverNvLink"
	return []Edit{{
		ID:       "P2P-E5-NVLINK",
		Title:    "keep NVLink for pairs that have it",
		Why:      "RMForceP2PType=2 asks for BAR1 on PCIe, but also turns NVLink off",
		Replaces: "a denial of NVLink when BAR1 is forced",
		Needs: []Test{{
			File:    "src/nvidia/interface/nvrm_registry.h",
			Pattern: regexp.MustCompile(`(?m)^#define\s+NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P\s`),
			Else:    "the PCIe protocol is chosen apart from the link in this release",
		}},
		File:   p2pCaps,
		Func:   function,
		Anchor: regexp.MustCompile(`(\(pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_NVLINK\))\)`),
		New: `${1} &&
        (pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P))`,
		Proofs: []Proof{
			once("forced BAR1 does not deny NVLink", `NV_REG_STR_RM_FORCE_P2P_TYPE_NVLINK\) &&\s*`+
				`\(pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P\)\)`),
		},
	}}
}
