package checks

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/rm"
	"mkp2pimg/kmod/loadopt"
)

var readGateDoc = Doc{
	ID:       ReadGate,
	Question: "Does the driver take this processor for one that forwards peer reads?",
	Meaning:  "Between GPUs that meet in the root complex the driver grants BAR1 only on processors it knows to forward reads (p2p_caps.c, cpu.c): AMD Zen to Zen 2 in all releases from 535 on, Zen 3 and Zen 4 from 545, Zen 5 and newer from 570, Intel's Sapphire Rapids (family 6, model 143) from 545; no other, whether it forwards or not. ForceP2P skips the question.",
	Fix:      "Boot with p2p.driver=p2p, or " + withForceP2P + "; whether the processor forwards reads the measurement tells.",
	Outcomes: []Outcome{
		{Pass, "the release knows the processor, or without a driver any release does; or ForceP2P is set"},
		{Warn, "the loaded release, or any, does not know it"},
		{Skip, "no pair meets in the root complex, or there is no pair"},
		{Unknown, "the processor could not be read"},
	},
	Weightless: true, // P2P-RM-PATH and the measurement say what comes of it
}

// withForceP2P is how to load the driver so that it allows peer reads and writes,
// whatever it knows of processor, chipset and GPUs.
const withForceP2P = `load nvidia.ko with NVreg_RegistryDwords="` + rm.KeyForceP2P + "=" + loadopt.ForceP2P + `"`

// forced reports whether the loaded driver was told to allow reads and writes,
// whatever it knows.
func forced(f *facts.Facts) bool {
	if f.NVIDIA == nil {
		return false
	}
	keys, _ := rm.ParseKeys(f.NVIDIA.Params)
	read, write := forces(keys)
	return read && write
}

// forces reports whether ForceP2P allows reads and writes: its bits 1:0 and 5:4
// are 1 (NV_REG_STR_CL_FORCE_P2P_* in nvrm_registry.h).
func forces(keys rm.Keys) (read, write bool) {
	v := keys[rm.KeyForceP2P]
	return v&3 == 1, v>>4&3 == 1
}

// readGate asks whether the driver's question about the processor is answered.
func readGate(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) < 2 {
		return nil // gpuPair has said so
	}
	found := Finding{ID: ReadGate}
	for _, p := range topology.New(f).Pairs() {
		if p.Ancestor == "" {
			found.Pairs = append(found.Pairs, [2]string{p.A.Address, p.B.Address})
		}
	}
	if found.Pairs == nil {
		found.Status, found.Title = Skip, "all pairs meet below the root complex"
		found.Meaning = "The processor does not see their traffic. The driver knows a common switch of PLX (87xx, 97xx), PMC-Sierra and some others; behind those of Broadcom it asks about the processor all the same."
		found.Evidence = []Evidence{{What: "pairs that meet in the root complex", Where: sysPCI + " link targets", Raw: "none"}}
		return []Finding{found}
	}
	c := f.CPU
	release, _ := loaded(f)
	found.Evidence = []Evidence{{
		What: "processor", Where: "/proc/cpuinfo", Raw: strings.TrimSpace(fmt.Sprintf("%s family %d model %d %s", c.Vendor, c.Family, c.Model, c.Name)),
	}}
	if f.NVIDIA != nil {
		found.Evidence = append(found.Evidence, versionEvidence(f))
	}
	branch := predict.ReadsFrom(c)
	found.Fix = "Boot with p2p.driver=p2p, or " + withForceP2P + ", which skips the question; whether the processor forwards reads the measurement tells."
	switch now := major(release); {
	case forced(f):
		found.Status, found.Title, found.Fix = Pass, "ForceP2P answers in place of the driver's list of processors", ""
		found.Meaning = "Whether this processor forwards reads the driver does not ask; the measurement tells."
		found.Evidence = append(found.Evidence, Evidence{What: "registry key ForceP2P", Where: rm.ParamsFile, Raw: "reads and writes allowed"})
	case c.Vendor == "" || c.Family == 0:
		found.Status, found.Title, found.Fix = Unknown, "the processor is not known", "Mount procfs at /proc."
		found.Meaning = "Whether the driver takes it for one that forwards peer reads cannot be told."
	case branch == 0:
		found.Status, found.Title = Warn, "no release of the driver takes this processor for one that forwards peer reads"
		found.Meaning = "As published the driver grants these pairs no reads over BAR1, so it does not grant BAR1 at all, or from 535 writes only."
	case now > 0 && now < branch:
		found.Status, found.Title = Warn, fmt.Sprintf("release %s does not take this processor for one that forwards peer reads, %d does", release, branch)
		found.Meaning = "As published the loaded driver grants these pairs no reads over BAR1."
		found.Fix = fmt.Sprintf("Use a release of %d or later.\nOr: %s", branch, found.Fix)
	default:
		found.Status, found.Title, found.Fix = Pass, fmt.Sprintf("the driver takes this processor for one that forwards peer reads (%d and later)", branch), ""
		found.Meaning = "The driver's question about the processor does not stand in the way of BAR1."
	}
	return []Finding{found}
}
