package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var consoleDoc = Doc{
	ID:       Console,
	Question: "Does a console lie in the framebuffer BAR of a GPU?",
	Meaning:  "The screen that the firmware set up takes the start of BAR1. Beside it static BAR1 may not fit where BAR1 is no larger than the memory, and from driver 580 on it begins at an offset, which edits made for older releases do not know: one direction of a pair then arrives wrong.",
	Fix:      "Attach the display to the processor's graphics, a management controller or a GPU that does not compute, and make that the primary display in the firmware setup; or boot with video=efifb:off initcall_blacklist=simpledrm_platform_driver_init and work over the network.",
	Outcomes: []Outcome{
		{Pass, "the console is elsewhere, or no framebuffer driver draws on it"},
		{Warn, "the kernel draws its console in the BAR of a GPU"},
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
	there := Finding{
		ID: Console, Status: Warn, Evidence: []Evidence{drivers},
		Meaning: "The console takes the start of BAR1: beside it static BAR1 may not fit, and where it does it begins at an offset that driver edits for older releases do not know.",
		Fix:     "Attach the display to the processor's graphics, a management controller or a GPU that does not compute, and make that the primary display in the firmware setup" + ofBoard(f) + ".\nOr boot with video=efifb:off initcall_blacklist=simpledrm_platform_driver_init and work over the network.",
	}
	elsewhere := Finding{
		ID: Console, Status: Pass, Title: "no console in the BAR of a GPU", Evidence: []Evidence{drivers},
		Meaning: "All of BAR1 is free for peers.",
	}
	for _, d := range gpus {
		to := &elsewhere
		if r, ok := claimed(f, d); ok {
			to = &there
			to.Evidence = append(to.Evidence, Evidence{
				What: fmt.Sprintf("range in a BAR of %s", d.Address), Where: "/proc/iomem",
				Raw: fmt.Sprintf("%s-%s %s", r.Start, r.End, r.Name),
			})
		} else if d.BootVGA && slices.ContainsFunc(f.Framebuffers, firmwareFramebuffer.MatchString) {
			to = &there
		}
		if d.BootVGA {
			to.Evidence = append(to.Evidence, Evidence{What: "primary display of the firmware", Where: sysPCI + d.Address + "/boot_vga", Raw: "1"})
		}
		to.Devices = append(to.Devices, d.Address)
	}
	there.Title = "the console is drawn in the BAR of " + strings.Join(there.Devices, ", ")
	return about(there, elsewhere)
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
