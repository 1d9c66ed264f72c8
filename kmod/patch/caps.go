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
		Role:     Core,
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
		Role:     Guard,
		Needs:    []Test{pcieKeyAbsent},
		File:     p2pCaps,
		Func:     function,
		Anchor:   regexp.MustCompile(`(\(pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_NVLINK\))\)`),
		New: `${1} &&
        (pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P))`,
		Proofs: []Proof{
			once("forced BAR1 does not deny NVLink", `NV_REG_STR_RM_FORCE_P2P_TYPE_NVLINK\) &&\s*`+
				`\(pKernelBif->forceP2PType != NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P\)\)`),
		},
	}}
}

// fallbackEdits make a pair that can't have the BAR1 peer-to-peer that was asked for report no
// peer-to-peer. The stock driver grants the mailbox instead, which is not set up then: programs
// are told that they can reach the peer, and their data goes astray without an error.
func fallbackEdits() []Edit {
	const over = "_kp2pCapsGetStatusOverPcieBar1"
	fallback := func(id, asked string, needs Test) Edit {
		return Edit{
			ID:       id,
			Title:    "don't fall back to the mailbox where BAR1 was asked for",
			Why:      "with ForceP2P the fallback claims access that does not work, and writes are lost without an error",
			Replaces: "a grant of mailbox peer-to-peer without a mailbox",
			Role:     Guard,
			Needs:    []Test{needs},
			File:     p2pCaps,
			Func:     "p2pGetCapsStatus",
			Anchor:   regexp.MustCompile(`(\*pConnectivity = P2P_CONNECTIVITY_PCIE_BAR1;\n            \}\n)`),
			New: `${1}            else if (gpumgrGetSubDeviceCount(gpuMask) > 1)
            {
                gpuInstance = 0;
                pGpu = gpumgrGetNextGpu(gpuMask, &gpuInstance);

                if (` + asked + `)
                {
                    *pP2PWriteCapStatus = NV0000_P2P_CAPS_STATUS_NOT_SUPPORTED;
                    *pP2PReadCapStatus = NV0000_P2P_CAPS_STATUS_NOT_SUPPORTED;
                    *pConnectivity = P2P_CONNECTIVITY_UNKNOWN;
                }
            }
`,
			Proofs: []Proof{
				once("BAR1 that was asked for and is not there is no connection", literal("if ("+asked+")")+
					`\s*\{[^}]*NOT_SUPPORTED;[^}]*NOT_SUPPORTED;[^}]*P2P_CONNECTIVITY_UNKNOWN;\s*\}`),
				once("BAR1 still is one", `\*pConnectivity = P2P_CONNECTIVITY_PCIE_BAR1;`),
			},
		}
	}
	return []Edit{
		{
			ID:       "P2P-E5-ORDER",
			Title:    "ask for static BAR1 before ForceP2P is heeded",
			Why:      "a pair without static BAR1 is told that it has BAR1 peer-to-peer, and fails when it uses it",
			Replaces: "a forced answer given before the pair is looked at",
			Role:     Guard,
			Needs: []Test{{
				File: p2pCaps,
				Func: over,
				Pattern: regexp.MustCompile(`(?s)_kp2pCapsCheckStatusOverridesForPcie\(.*` +
					`kbusIsPcieBar1P2PMappingSupported_HAL\(`),
				Else: "this release looks at the pair first, or does not heed ForceP2P here at all",
			}},
			File: p2pCaps,
			Func: over,
			Anchor: regexp.MustCompile(`(?s)(    if \(_kp2pCapsCheckStatusOverridesForPcie\([^{]*\{\s*return NV_OK;\s*\}\n)` +
				`(.*?    while \(.*?\n    \}\n)`),
			New: "${2}\n${1}",
			Proofs: []Proof{
				once("static BAR1 is asked for first", `(?s)kbusIsPcieBar1P2PMappingSupported_HAL\(.*`+
					`_kp2pCapsCheckStatusOverridesForPcie\(`),
				once("ForceP2P is heeded once", `_kp2pCapsCheckStatusOverridesForPcie\(`),
			},
		},
		fallback("P2P-E5-FALLBACK",
			"GPU_GET_KERNEL_BIF(pGpu)->forceP2PType == NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P", pcieKeyAbsent),
		fallback("P2P-E5-FALLBACK-PCIE",
			"GPU_GET_KERNEL_BIF(pGpu)->pcieP2PType == NV_REG_STR_RM_PCIEP2P_TYPE_BAR1", pcieKeyPresent),
	}
}
