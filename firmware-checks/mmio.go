package checks

import (
	"fmt"

	"mkp2pimg/firmware-checks/facts"
)

var mmioSpaceDoc = Doc{
	ID:       MMIOSpace,
	Question: "Has the firmware given the host bridge enough address space above 4 GiB for framebuffer BARs at their largest?",
	Meaning:  "Every window below a host bridge is cut from the ranges that the firmware gives it; the kernel can move windows, but not make these larger. On server boards the size is a setting of its own.",
	Fix:      "Enable Above 4G Decoding and raise the size of the 64-bit MMIO region (MMIO High Size, MMIO High Granularity) in the firmware setup; on AMD boards pci=big_root_window lets the kernel add one. " + biosPage + " says where setups have them.",
	Outcomes: []Outcome{
		{Pass, "every framebuffer BAR is at its largest already, or the ranges above 4 GiB hold them all at that"},
		{Fail, "a host bridge has no range above 4 GiB, or too small ones"},
		{Skip, "no GPU has a framebuffer BAR"},
		{Unknown, "the ranges could not be read"},
	},
}

// mmioSpace asks whether each host bridge has room for the framebuffer BARs
// below it at their largest.
func mmioSpace(f *facts.Facts) []Finding {
	byRoot := map[string][]*facts.Device{}
	var roots []string
	for _, d := range f.GPUs() {
		if _, ok := d.Framebuffer(); !ok || d.NoResponse {
			continue
		}
		if byRoot[d.Root] == nil {
			roots = append(roots, d.Root)
		}
		byRoot[d.Root] = append(byRoot[d.Root], d)
	}
	if roots == nil {
		if len(f.GPUs()) == 0 {
			return nil
		}
		return []Finding{{
			ID: MMIOSpace, Status: Skip, Title: "no framebuffer BAR to find room for", Devices: addresses(f.GPUs()),
			Meaning: "P2P-GPU-PRESENT or P2P-ABOVE-4G says what is missing.",
		}}
	}
	var found []Finding
	for _, root := range roots {
		found = append(found, mmioSpaceOf(f, root, byRoot[root]))
	}
	return merge(found)
}

func mmioSpaceOf(f *facts.Facts, root string, gpus []*facts.Device) Finding {
	found := Finding{ID: MMIOSpace, Devices: addresses(gpus)}
	full := true
	for _, d := range gpus {
		fb, _ := d.Framebuffer()
		full = full && fb.Assigned && fb.Start >= fourGiB && (fb.Resizable == nil || fb.Size >= fb.Resizable.MaxSize())
	}
	high, ranges := above4GiB(f, root)
	found.Evidence = ranges
	needs, _ := needsOf(f, func(d *facts.Device) bool { return d.Root == root })
	found.Evidence = append(found.Evidence, Evidence{
		What: "prefetchable BARs below " + root + " at their largest", Where: sysPCI + "*/{resource,config}", Raw: bytes(needs),
	})
	switch {
	case full:
		found.Status, found.Title = Pass, "every framebuffer BAR has found room at its largest"
		found.Meaning = "The ranges of the host bridges hold all there is to hold."
	case ranges == nil:
		found.Status, found.Title = Unknown, "the address ranges of the host bridge could not be read"
		found.Meaning = "Whether the framebuffer BARs have room at their largest is not known."
		found.Fix = "Run as root: the kernel hides the addresses in /proc/iomem from others."
	case high == 0:
		found.Status, found.Title = Fail, "the firmware gives the host bridge no address space above 4 GiB"
		found.Meaning = "Below 4 GiB there is no room for a BAR as large as the GPU's memory."
		found.Fix = "Enable Above 4G Decoding in the firmware setup" + ofBoard(f) + " and switch CSM (legacy boot) off, which hides it on many boards.\n" + whereInSetup(f, largeBARs)
	case high < needs:
		found.Status, found.Title = Fail, fmt.Sprintf("%s of address space above 4 GiB for BARs that need %s", bytes(high), bytes(needs))
		found.Meaning = "Not every framebuffer BAR can be at its largest, whatever the driver and the kernel try."
		found.Fix = "Raise the size of the 64-bit MMIO region (MMIO High Size, MMIO High Granularity) in the firmware setup" + ofBoard(f) + ".\n" + whereInSetup(f, largeBARs)
		if f.CPU.Vendor == "AuthenticAMD" {
			found.Fix += "\nIf the setup has no such entry, boot with pci=big_root_window."
		}
	default:
		found.Status, found.Title = Pass, fmt.Sprintf("%s of address space above 4 GiB for BARs that need %s", bytes(high), bytes(needs))
		found.Meaning = "The ranges of the host bridge have room for every framebuffer BAR at its largest."
	}
	return found
}
