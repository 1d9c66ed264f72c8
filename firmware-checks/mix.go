package checks

import (
	"fmt"

	"mkp2pimg/firmware-checks/facts"
)

var gpuMixDoc = Doc{
	ID:       GPUMix,
	Question: "Are the GPUs of one chip?",
	Meaning:  "The driver refuses peer-to-peer over PCIe between different chips unless ForceP2P overrides it (areGpusP2PCompatible in p2p_caps.c, all releases from 535 to 610). CUDA does not offer it between different generations, whatever the driver grants.",
	Fix:      "Give work that exchanges data to GPUs of one generation. For different chips of one generation boot with p2p.driver=p2p, or " + withForceP2P + ", and rely on the measurement.",
	Outcomes: []Outcome{
		{Pass, "the GPUs of a pair have the same chip"},
		{Warn, "they have different chips of one generation, or are of different generations while another pair matches"},
		{Fail, "no pair is of one generation"},
		{Unknown, "a GPU that differs is not in the catalog"},
	},
}

// gpuMix asks whether the GPUs of each pair are of one chip.
func gpuMix(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) < 2 {
		return nil // gpuPair has said so
	}
	same := Finding{
		ID: GPUMix, Status: Pass,
		Meaning: "The driver's first question about a pair, whether both GPUs have the same chip, is answered.",
	}
	chips := Finding{
		ID: GPUMix, Status: Warn,
		Meaning: "As published the driver refuses peer-to-peer over PCIe between different chips; ForceP2P overrides that, and whether data then arrives only the measurement tells.",
		Fix:     "Boot with p2p.driver=p2p, or " + withForceP2P + ".",
	}
	generations := Finding{
		ID: GPUMix, Status: Fail,
		Meaning: "CUDA does not offer peer-to-peer between GPUs of different generations, whatever the driver grants: programs stage their data through host memory.",
		Fix:     "Give work that exchanges data to GPUs of one generation (CUDA_VISIBLE_DEVICES), or replace the odd GPU.",
	}
	unclear := Finding{
		ID: GPUMix, Status: Unknown,
		Meaning: "At least one of these GPUs is not in the catalog, so whether they have the same chip is not known.",
		Fix:     "Rely on what the loaded driver grants and on the measurement.",
	}
	for i, a := range gpus {
		for _, b := range gpus[i+1:] {
			to := &generations
			ma, mb := models(a), models(b)
			switch {
			case a.Vendor == b.Vendor && a.Device == b.Device:
				to = &same
			case ma == nil || mb == nil:
				to = &unclear
			case ma[0].Chip == mb[0].Chip:
				to = &same
			case ma[0].Family == mb[0].Family:
				to = &chips
			}
			to.Pairs = append(to.Pairs, [2]string{a.Address, b.Address})
		}
	}
	if same.Pairs != nil || chips.Pairs != nil {
		generations.Status = Warn // other pairs work
	}
	same.Title = fmt.Sprintf("%s of one chip", count(len(same.Pairs), "GPU pair"))
	chips.Title = fmt.Sprintf("%s of different chips", count(len(chips.Pairs), "GPU pair"))
	generations.Title = fmt.Sprintf("%s of different generations", count(len(generations.Pairs), "GPU pair"))
	unclear.Title = fmt.Sprintf("%s of unknown chips", count(len(unclear.Pairs), "GPU pair"))
	var out []Finding
	for _, found := range []Finding{generations, unclear, chips, same} {
		if found.Pairs == nil {
			continue
		}
		for _, d := range gpus {
			if among(found.Pairs, d.Address) {
				found.Devices = append(found.Devices, d.Address)
				found.Evidence = append(found.Evidence, modelEvidence(d))
			}
		}
		out = append(out, found)
	}
	return out
}

// among reports whether a function is part of any of the pairs.
func among(pairs [][2]string, address string) bool {
	for _, p := range pairs {
		if p[0] == address || p[1] == address {
			return true
		}
	}
	return false
}
