package checks

import (
	"fmt"
	"regexp"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/kmod/loadopt"
)

var consoleDoc = Doc{
	ID:       Console,
	Question: "Does a console take room in BAR1 that static BAR1 needs?",
	Meaning:  "The screen that the firmware set up lies at the start of BAR1. Where BAR1 is no larger than the memory, static BAR1 does not fit beside it, and the driver grants no BAR1 to peers. Where it fits it begins behind the console, which edits of the driver must know: with some one direction of a pair arrives wrong.",
	Fix:      "Attach the display to the processor's graphics, a management controller or a GPU that does not compute, and make that the primary display in the firmware setup; or boot with video=efifb:off initcall_blacklist=simpledrm_platform_driver_init and work over the network.",
	Outcomes: []Outcome{
		{Pass, "the console is elsewhere, or BAR1 has room for it beside all memory"},
		{Warn, "the kernel draws its console in the BAR of a GPU that has no room for it beside all memory"},
		{Unknown, "the consoles could not be read"},
	},
}

var (
	// firmwareFramebuffer are the drivers in /proc/fb that draw on the screen as
	// the firmware left it: efifb, simplefb, vesafb, and simpledrm and its kin.
	firmwareFramebuffer = regexp.MustCompile(`^(EFI VGA|VESA VGA|simple|simpledrm|efidrm|vesadrm|ofdrm)`)
	// firmwareRange are the names under which they, or the kernel for them, claim
	// their memory in /proc/iomem.
	firmwareRange = regexp.MustCompile(`^(BOOTFB|efifb|simplefb|simple-framebuffer|simpledrm|vesafb)`)
)

// console asks whether the kernel draws its console in the BAR of a GPU.
func console(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	drivers := Evidence{What: "framebuffer drivers", Where: "/proc/fb", Raw: orNone(f.Framebuffers)}
	if why := unreadable(f, "/proc/fb"); why != "" || f.Version < 2 {
		found := Finding{
			ID: Console, Status: Unknown, Title: "where the console is is not known", Devices: addresses(gpus), Evidence: []Evidence{drivers},
			Meaning: "A console in BAR1 takes room that static BAR1 may need: /proc/fb could not be read.",
			Fix:     "Mount procfs at /proc and gather the facts again.",
		}
		if f.Version < 2 {
			found.Meaning = "A console in BAR1 takes room that static BAR1 may need; a facts document of version 1 does not have it."
			found.Fix = "Gather the facts again with this program."
		}
		return []Finding{found}
	}
	var found []Finding
	for _, d := range gpus {
		found = append(found, consoleOf(f, d, drivers))
	}
	return merge(found)
}

func consoleOf(f *facts.Facts, d *facts.Device, drivers Evidence) Finding {
	found := Finding{
		ID: Console, Status: Pass, Title: "no console in the BAR of a GPU", Devices: []string{d.Address}, Evidence: []Evidence{drivers},
		Meaning: "All of BAR1 is free for peers.",
	}
	if d.BootVGA {
		found.Evidence = append(found.Evidence, Evidence{What: "primary display of the firmware", Where: sysPCI + d.Address + "/boot_vga", Raw: "1"})
	}
	r, ok := claimed(f, d)
	if ok {
		found.Evidence = append(found.Evidence, Evidence{
			What: fmt.Sprintf("range in a BAR of %s", d.Address), Where: "/proc/iomem", Raw: fmt.Sprintf("%s-%s %s", r.Start, r.End, r.Name),
		})
	}
	drawn := d.BootVGA && slices.ContainsFunc(f.Framebuffers, firmwareFramebuffer.MatchString)
	if !ok && !drawn {
		return found
	}
	m := memoryOf(f, d)
	fb, _ := d.Framebuffer()
	found.Evidence = append(found.Evidence, assignment(d, fb), m.evidence)
	if m.sold != nil && fb.Size >= slices.Max(m.sold)+loadopt.Padding {
		found.Title = "the console in the BAR of " + d.Address + " leaves room for all memory"
		found.Meaning = "Static BAR1 fits behind the console; the edits of mkp2pimg know that it begins there, those of others may not."
		return found
	}
	found.Status, found.Title = Warn, "the console is drawn in the BAR of "+d.Address
	found.Meaning = "Beside the console BAR1 has no room for all memory, as far as that is known: the driver may set up no static BAR1, and grant no BAR1 to peers of this GPU."
	found.Fix = "Attach the display to the processor's graphics, a management controller or a GPU that does not compute, and make that the primary display in the firmware setup" + ofBoard(f) + ".\n" +
		"Or boot with video=efifb:off initcall_blacklist=simpledrm_platform_driver_init and work over the network."
	return found
}

// claimed returns the range of a firmware framebuffer within a BAR of d.
func claimed(f *facts.Facts, d *facts.Device) (r facts.Range, ok bool) {
	for _, r := range f.MemoryMap {
		if !firmwareRange.MatchString(r.Name) {
			continue
		}
		for _, bar := range d.Resources {
			if bar.Assigned() && r.Start >= bar.Start && r.End <= bar.End {
				return r, true
			}
		}
	}
	return facts.Range{}, false
}
