package checks

import (
	"fmt"
	"math/bits"
	"regexp"

	"mkp2pimg/firmware-checks/facts"
)

var rebarDoc = Doc{
	ID:       ReBAR,
	Question: "Is every framebuffer BAR as large as it can be, and if not, what keeps it small?",
	Meaning:  "The driver's peer mappings over BAR1 need a BAR that covers all of the GPU's memory. It may be held back by the video BIOS, by the firmware or the window of a bridge, or left small by the driver, which does not enlarge it unless told to.",
	Fix:      "Enable Re-Size BAR Support in the firmware setup, with Above 4G Decoding on and CSM off; where the host bridge has room, load nvidia.ko with NVreg_EnableResizableBar=1. Cards that list no large size need a newer video BIOS. " + biosPage + " says where setups have the settings.",
	Outcomes: []Outcome{
		{Pass, "the BAR is at its largest, or fixed at more than 256 MiB"},
		{Warn, "it is smaller than it can be, and the windows above it have room or can be given it"},
		{Fail, "the window of a bridge is too small for it and has to stay so, the video BIOS offers no larger size, or nothing can enlarge it"},
		{Skip, "the BAR has no address, or the GPU does not answer"},
		{Unknown, "the capability could not be read"},
	},
}

// rebar asks whether every framebuffer BAR is as large as it can be. The
// driver's peer mappings over BAR1 need it to cover all of the GPU's memory;
// the sizes a GPU offers reach up to that.
func rebar(f *facts.Facts) []Finding {
	var found []Finding
	for _, d := range f.GPUs() {
		found = append(found, rebarOf(f, d))
	}
	return merge(found)
}

func rebarOf(f *facts.Facts, d *facts.Device) Finding {
	found := Finding{ID: ReBAR, Devices: []string{d.Address}}
	if d.NoResponse {
		found.Status = Skip
		found.Title = "the GPU does not answer, its BAR cannot be judged"
		found.Meaning = "P2P-GPU-PRESENT says that the GPU is off the bus."
		return found
	}
	fb, ok := d.Framebuffer()
	if !ok && d.Config != nil {
		found.Status = Skip
		found.Title = "no framebuffer BAR to enlarge"
		found.Meaning = "P2P-ABOVE-4G says what is missing."
		return found
	}
	if !ok || d.Config == nil || fb.Resizable == nil && !d.Config.ExtendedRead {
		found.Status = Unknown
		found.Title = "the Resizable BAR capability could not be read"
		found.Meaning = "Whether the framebuffer BAR can be larger than it is is not known."
		found.Fix = "Run as root, so that sysfs shows all of configuration space."
		found.Evidence = []Evidence{{What: "configuration space of " + d.Address, Where: sysPCI + d.Address + "/config", Raw: configLength(d)}}
		return found
	}
	found.Evidence = []Evidence{assignment(d, fb)}
	if !fb.Assigned {
		found.Status = Skip
		found.Title = "the framebuffer BAR has no address yet, its size comes second"
		found.Meaning = "P2P-ABOVE-4G says why the BAR has no address."
		return found
	}
	if fb.Resizable == nil {
		noCapability(f, d, fb, &found)
		return found
	}
	largest := fb.Resizable.MaxSize()
	found.Evidence = append(found.Evidence, Evidence{
		What:  fmt.Sprintf("Resizable BAR capability of %s, BAR%d", d.Address, fb.Index),
		Where: sysPCI + d.Address + "/config, extended capability 0x15",
		Raw:   fmt.Sprintf("sizes %s (up to %s), set to %s", fb.Resizable.Sizes, bytes(largest), bytes(fb.Resizable.Size)),
	})
	switch {
	case largest <= legacyBAR:
		found.Status = Fail
		found.Title = fmt.Sprintf("the video BIOS offers no framebuffer BAR above %s", bytes(largest))
		found.Meaning = "The GPU has the Resizable BAR capability, but its video BIOS lists no size that covers its memory."
		found.Fix = "Update the video BIOS: cards sold before Resizable BAR was enabled need the update their vendor published."
	case fb.Size >= largest:
		found.Status = Pass
		found.Title = fmt.Sprintf("framebuffer BAR at its largest, %s", bytes(fb.Size))
		found.Meaning = "Peers can reach as much of the GPU's memory as its BAR can ever show."
	default:
		notEnlarged(f, d, fb, &found)
	}
	return found
}

func noCapability(f *facts.Facts, d *facts.Device, fb facts.Framebuffer, found *Finding) {
	found.Evidence = append(found.Evidence, Evidence{
		What:  "Resizable BAR capability of " + d.Address,
		Where: sysPCI + d.Address + "/config, extended capability 0x15",
		Raw:   "absent",
	})
	if fb.Size > legacyBAR {
		found.Status = Pass
		found.Title = fmt.Sprintf("framebuffer BAR fixed at %s", bytes(fb.Size))
		found.Meaning = "The BAR needs no enlarging: it is larger than the 256 MiB that GPUs start with."
		return
	}
	found.Status = Fail
	found.Title = fmt.Sprintf("framebuffer BAR is %s and cannot be enlarged", bytes(fb.Size))
	found.Meaning = "Peers cannot reach all of the GPU's memory through a BAR this small, and the function shows no capability to change it."
	found.Fix = "Use a GPU with Resizable BAR (GeForce RTX 30 and later); a video BIOS update adds it to early RTX 30 cards."
	if f.CPU.Hypervisor {
		found.Fix = "The hypervisor hides the capability: enlarge the BAR on the host, before the GPU is bound to vfio-pci, and start the guest again."
	}
}

// enableResizableBar is how /proc/driver/nvidia/params words the option.
var enableResizableBar = regexp.MustCompile(`(?m)^EnableResizableBar:\s*(\d+)`)

// notEnlarged says who keeps the BAR small: the firmware, the window of a
// bridge or the driver.
func notEnlarged(f *facts.Facts, d *facts.Device, fb facts.Framebuffer, found *Finding) {
	largest := fb.Resizable.MaxSize()
	bridge, needs, holds := rigidWindow(f, d)
	if bridge != nil {
		found.Status = Fail
		found.Evidence = append(found.Evidence, windowEvidence(bridge))
		found.Title = fmt.Sprintf("framebuffer BAR is %s of %s, held back by the firmware", bytes(fb.Size), bytes(largest))
		found.Meaning = fmt.Sprintf("The firmware sized the window of bridge %s (%s) for the BARs as they are; enlarged, the BARs below it need %s.",
			bridge.Address, bytes(holds), bytes(needs))
		found.Fix = "Enable Re-Size BAR Support (Resizable BAR, Smart Access Memory) in the firmware setup" + ofBoard(f) +
			"; it needs Above 4G Decoding on and CSM off.\n" + whereInSetup(f, largeBARs)
		// A window made for the BARs as they are holds them and little more.
		if _, now := needsBelow(f, bridge.Address); holds >= 2*now {
			found.Title = fmt.Sprintf("framebuffer BAR is %s of %s, held back by the window of %s", bytes(fb.Size), bytes(largest), bridge.Address)
			found.Meaning = fmt.Sprintf("The window of bridge %s has room to spare (%s), but enlarged the BARs below it need %s.",
				bridge.Address, bytes(holds), bytes(needs))
			found.Fix = "Raise the size of the 64-bit MMIO region (MMIO High Size) in the firmware setup" + ofBoard(f) +
				", or boot with pci=realloc to let the kernel lay the windows out anew.\n" + whereInSetup(f, largeBARs)
		}
		return
	}
	found.Status = Warn
	found.Title = fmt.Sprintf("framebuffer BAR is %s of %s, the windows above have room", bytes(fb.Size), bytes(largest))
	found.Meaning = "Nothing upstream stands in the way: the driver can enlarge the BAR when it loads, if it is told to."
	found.Fix = "Load nvidia.ko with NVreg_EnableResizableBar=1 (its default, 0, leaves the BAR alone)."
	if bridge, _, holds := narrowWindow(f, d); bridge != nil {
		found.Evidence = append(found.Evidence, windowEvidence(bridge))
		found.Title = fmt.Sprintf("framebuffer BAR is %s of %s, the host bridge has room", bytes(fb.Size), bytes(largest))
		found.Meaning = fmt.Sprintf("The firmware sized the window of bridge %s (%s) for the BAR as it is. Nothing else uses that window, so the kernel makes it larger when the driver enlarges the BAR, if it is told to.",
			bridge.Address, bytes(holds))
		found.Fix += "\nOr enable Re-Size BAR Support (Resizable BAR, Smart Access Memory) in the firmware setup" + ofBoard(f) +
			", so that the BAR is large from the start.\n" + whereInSetup(f, largeBARs)
	}
	if m := paramsMatch(f); m != "" {
		found.Evidence = append(found.Evidence, Evidence{What: "driver option EnableResizableBar", Where: "/proc/driver/nvidia/params", Raw: m})
	}
	if _, ok := d.Resizable[fb.Index]; ok && d.Driver == "" {
		found.Fix += fmt.Sprintf("\nOr, while no driver is bound: echo %d > %s%s/resource%d_resize",
			bits.Len64(uint64(fb.Resizable.Sizes))-1, sysPCI, d.Address, fb.Index)
	}
}

func paramsMatch(f *facts.Facts) string {
	if f.NVIDIA == nil {
		return ""
	}
	m := enableResizableBar.FindStringSubmatch(f.NVIDIA.Params)
	if m == nil {
		return ""
	}
	return m[1]
}

// configLength says how much of configuration space was read.
func configLength(d *facts.Device) string {
	if d.Config == nil {
		return "not readable"
	}
	return fmt.Sprintf("%d bytes", d.Config.Length)
}
