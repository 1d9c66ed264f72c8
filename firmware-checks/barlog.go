package checks

import (
	"fmt"
	"regexp"
	"slices"

	"mkp2pimg/firmware-checks/facts"
)

var barLogDoc = Doc{
	ID:       BARLog,
	Question: "Has the kernel found no room for a BAR of a GPU, or for the window of a bridge above it?",
	Meaning:  "The kernel lays out what the firmware left undone, and says in its log what had no room: which window, and how much was asked for. It often succeeds at a second try, so such lines count only where a BAR is still missing or small.",
	Fix:      "Give it room: see P2P-ABOVE-4G and P2P-MMIO-SPACE.",
	Outcomes: []Outcome{
		{Pass, "no such line, or every framebuffer BAR has an address and is at its largest all the same"},
		{Warn, "there are lines, and a framebuffer BAR is smaller than it can be"},
		{Fail, "there are lines, and a framebuffer BAR has no address"},
		{Unknown, "the log could not be read whole, and what is there has none"},
	},
}

// noRoom are the kernel's words for memory that found no room
// (drivers/pci/setup-res.c), up to 6.8 and since: "BAR 1: no space for [mem size
// 0x10000000 64bit pref]", "BAR 1 [mem size 0x10000000 64bit pref]: can't assign;
// no space", "bridge window [mem size …]: failed to assign". BARs 13 to 15 are
// windows of a bridge. I/O space, which bridges lack on many machines, does not
// matter.
var noRoom = regexp.MustCompile(`pci(?:eport)? ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:BAR \d+|bridge window|VF BAR \d+).*(?:no space for \[mem|failed to assign \[mem|can't claim.*\[mem|\[mem.*(?:can't assign; no space|failed to assign|can't claim))`)

// barLog looks for memory that found no room.
func barLog(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	found := Finding{ID: BARLog}
	missing, small := false, false
	for _, line := range f.KernelLog {
		m := noRoom.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		// The line concerns the function, and the GPUs below it if it is a bridge.
		concerned := false
		for _, d := range gpus {
			if d.Address != m[1] && !slices.Contains(d.Path, m[1]) {
				continue
			}
			concerned = true
			if fb, ok := d.Framebuffer(); ok {
				missing = missing || !fb.Assigned
				small = small || fb.Resizable != nil && fb.Size < fb.Resizable.MaxSize()
			}
			if !slices.Contains(found.Devices, d.Address) {
				found.Devices = append(found.Devices, d.Address)
			}
		}
		if concerned {
			found.Evidence = append(found.Evidence, logEvidence(line))
		}
	}
	lines := len(found.Evidence)
	if lines == 0 {
		return quiet(f, BARLog, "the kernel found room for every BAR", "No line says that a BAR of a GPU, or a window above one, found no room.")
	}
	found.Title = fmt.Sprintf("%s about memory without room", count(lines, "line"))
	switch {
	case missing:
		found.Status = Fail
		found.Meaning = "A framebuffer BAR has no address: nothing reaches the memory of its GPU."
		found.Fix = "See P2P-ABOVE-4G: enable Above 4G Decoding, raise the size of the 64-bit MMIO region, or boot with pci=realloc."
	case small:
		found.Status = Warn
		found.Meaning = "A framebuffer BAR is smaller than it can be; the size that was tried first found no room."
		found.Fix = "See P2P-REBAR and P2P-MMIO-SPACE for what is too small."
	default:
		found.Status = Pass
		found.Meaning = "The kernel had to try more than once; every framebuffer BAR has an address and is at its largest."
	}
	return []Finding{found}
}
