package patch

import "regexp"

const kernelBIF = "src/nvidia/src/kernel/gpu/bif/kernel_bif.c"

// Releases from 575 on choose between mailbox and BAR1 by a registry key of its own; before, the
// key that chooses the link does both.
var (
	pcieKeyPresent = Test{
		File:    registry,
		Pattern: regexp.MustCompile(`(?m)^#define\s+NV_REG_STR_RM_PCIEP2P_TYPE_BAR1\s`),
		Else:    "this release has no key for the PCIe protocol",
	}
	pcieKeyAbsent = Test{
		File:    pcieKeyPresent.File,
		Pattern: pcieKeyPresent.Pattern,
		Absent:  true,
		Else:    "the PCIe protocol has a key of its own in this release",
	}
)

// overrideEdits turn peer-to-peer over BAR1 on by default. Registry keys passed as module options
// do the same; see [Offered].
func overrideEdits() []Edit {
	const function = "_kbifInitRegistryOverrides"
	def := func(id, title, field, from, to string, needs ...Test) Edit {
		return Edit{
			ID:       id,
			Title:    title,
			Why:      "the stock driver prefers the mailbox, which GeForce cards don't have, and denies it to unlisted chipsets",
			Replaces: "the default " + from,
			Seed:     "3.2.5",
			Role:     Default,
			Needs:    needs,
			File:     kernelBIF,
			Func:     function,
			Anchor:   regexp.MustCompile(`pKernelBif->` + field + ` = ` + from + `;`),
			New:      `pKernelBif->` + field + ` = ` + to + `;`,
			Proofs: []Proof{
				once("the new default is set", `pKernelBif->`+field+` = `+to+`;`),
				gone("the old one is gone", `pKernelBif->`+field+` = `+from+`;`),
			},
		}
	}
	return []Edit{
		def("P2P-E5-OVERRIDE", "allow reads and writes over PCIe whatever the chipset", "p2pOverride",
			"BIF_P2P_NOT_OVERRIDEN", forceP2P), //nolint:misspell // spelt so in the source
		def("P2P-E5-TYPE", "prefer BAR1 over the mailbox", "forceP2PType",
			"NV_REG_STR_RM_FORCE_P2P_TYPE_DEFAULT", "NV_REG_STR_RM_FORCE_P2P_TYPE_BAR1P2P", pcieKeyAbsent),
		def("P2P-E5-PCIE-TYPE", "prefer BAR1 over the mailbox", "pcieP2PType",
			"NV_REG_STR_RM_PCIEP2P_TYPE_DEFAULT", "NV_REG_STR_RM_PCIEP2P_TYPE_BAR1", pcieKeyPresent),
		{
			ID:       "P2P-E5-STATIC",
			Title:    "map the framebuffer in BAR1 where it fits",
			Why:      "without static BAR1 no pair qualifies for BAR1 peer-to-peer",
			Replaces: "static BAR1 switched off by default",
			Role:     Default,
			Needs:    []Test{staticOffByDefault},
			File:     "src/nvidia/src/kernel/gpu/bus/kern_bus.c",
			Func:     "kbusInitRegistryOverrides",
			Anchor:   regexp.MustCompile(`staticBar1ForceType = NV_REG_STR_RM_FORCE_STATIC_BAR1_DEFAULT;`),
			New:      `staticBar1ForceType = NV_REG_STR_RM_FORCE_STATIC_BAR1_AUTO;`,
			Proofs: []Proof{
				once("the new default is set", `staticBar1ForceType = NV_REG_STR_RM_FORCE_STATIC_BAR1_AUTO;`),
			},
		},
	}
}
