package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/kmod/catalog"
)

const vendorNVIDIA = 0x10de

// models returns the models that the catalog has for the device ID of d; cards
// of different names may share one.
func models(d *facts.Device) []catalog.GPU {
	if d.Vendor != vendorNVIDIA {
		return nil
	}
	// An ID that the catalog does not have is no error here.
	found, _ := catalog.Load().LookupGPU(fmt.Sprintf("10de:%04x", uint64(d.Device)))
	return found
}

// modelName names a GPU with its chip and generation, as far as the catalog
// knows it: "GeForce RTX 4090 (AD102, Ada)".
func modelName(d *facts.Device) string {
	found := models(d)
	if found == nil {
		return "not in the catalog"
	}
	var names []string
	for _, m := range found {
		if !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return fmt.Sprintf("%s (%s, %s)", strings.Join(names, " or "), found[0].Chip, generation(found[0].Family))
}

// generation writes the name of a family of the catalog as NVIDIA does.
func generation(family string) string {
	if family == "" {
		return ""
	}
	return strings.ToUpper(family[:1]) + family[1:]
}

// modelEvidence names the model of d.
func modelEvidence(d *facts.Device) Evidence {
	return Evidence{
		What:  "model of " + d.Address,
		Where: sysPCI + d.Address + "/{vendor,device}",
		Raw:   fmt.Sprintf("%04x:%04x, %s", uint64(d.Vendor), uint64(d.Device), modelName(d)),
	}
}

// merge joins the findings of a family about single GPUs: those with the same
// title become one about all of them.
func merge(found []Finding) []Finding {
	var out []Finding
	for _, f := range found {
		i := slices.IndexFunc(out, func(o Finding) bool { return o.Title == f.Title && o.Status == f.Status })
		if i < 0 {
			out = append(out, f)
			continue
		}
		same := &out[i]
		same.Devices = append(same.Devices, f.Devices...)
		for _, e := range f.Evidence {
			if !slices.Contains(same.Evidence, e) {
				same.Evidence = append(same.Evidence, e)
			}
		}
		for line := range strings.SplitSeq(f.Fix, "\n") {
			if !strings.Contains(same.Fix, line) {
				same.Fix += "\n" + line
			}
		}
	}
	return out
}
