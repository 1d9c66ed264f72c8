package checks

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var above4GDoc = Doc{
	ID:       Above4G,
	Question: "Has every framebuffer BAR an address above 4 GiB that all bridges forward?",
	Meaning:  "Peers reach a GPU's memory at the address of this BAR. Below 4 GiB there is no room for one as large as the memory, and without an address, or outside the window of a bridge, nothing reaches it.",
	Fix:      "Enable Above 4G Decoding in the firmware setup and switch CSM off; on server boards raise the size of the 64-bit MMIO region (MMIO High Size). Without either, boot with pci=realloc. " + biosPage + " says where setups have them.",
	Outcomes: []Outcome{
		{Pass, "the BAR lies above 4 GiB and within the windows of the bridges above it"},
		{Fail, "it lies below, has no address, lies outside the window of a bridge, or the GPU has no such BAR"},
		{Unknown, "the BARs could not be read"},
	},
}

// above4G asks whether the firmware gave every framebuffer BAR an address above
// 4 GiB. Below, there is no room for a BAR as large as the GPU's memory.
func above4G(f *facts.Facts) []Finding {
	good := Finding{
		ID: Above4G, Status: Pass,
		Meaning: "The firmware decodes addresses above 4 GiB, where a BAR as large as the GPU's memory has room.",
	}
	low := Finding{
		ID: Above4G, Status: Fail,
		Meaning: "Below 4 GiB there is no room for a BAR as large as the GPU's memory, so peers can never reach all of it.",
		Fix: "Enable Above 4G Decoding in the firmware setup" + ofBoard(f) +
			" and switch CSM (legacy boot) off, which hides it on many boards.\n" + whereInSetup(f, largeBARs),
	}
	missing := Finding{
		ID: Above4G, Status: Fail,
		Meaning: "A GPU whose framebuffer BAR has no address cannot be used by its peers, and as a rule not by its driver.",
		Fix: "Enable Above 4G Decoding in the firmware setup" + ofBoard(f) +
			"; if it is on, raise the size of the 64-bit MMIO region there (MMIO High Size on server boards).\n" +
			whereInSetup(f, largeBARs) + "\n" +
			"If the setup has neither, boot with pci=realloc to let the kernel lay the windows out anew.",
	}
	none := Finding{
		ID: Above4G, Status: Fail,
		Meaning: "Peers reach a GPU's memory through a 64-bit prefetchable BAR, and this function has none.",
		Fix:     "Use another GPU; in a virtual machine, pass the whole function through.",
	}
	unread := Finding{
		ID: Above4G, Status: Unknown,
		Meaning: "Neither sysfs nor configuration space shows the BARs, so where the framebuffer BAR lies is not known.",
		Fix:     "Run as root with sysfs mounted at /sys.",
	}
	closed := Finding{
		ID: Above4G, Status: Fail,
		Meaning: "A bridge that does not forward the whole framebuffer BAR hides it from its peers; something resized the BAR without the window.",
		Fix:     "Reboot, so that firmware and kernel lay the windows out anew; if it stays, boot with pci=realloc.",
	}
	for _, d := range f.GPUs() {
		fb, ok := d.Framebuffer()
		var to *Finding
		bridge := notForwarding(f, d, fb)
		switch {
		case !ok:
			to = &none
			if d.Config == nil {
				to = &unread
			}
			to.Evidence = append(to.Evidence, Evidence{What: "BARs of " + d.Address, Where: sysPCI + d.Address + "/resource", Raw: bars(d)})
		case !fb.Assigned:
			to = &missing
			to.Evidence = append(to.Evidence, assignment(d, fb))
			to.Evidence = append(to.Evidence, tooSmall(f, d, fb)...)
			to.Evidence = append(to.Evidence, logAbout(f, d)...)
		case bridge != nil:
			to = &closed
			to.Evidence = append(to.Evidence, assignment(d, fb), windowEvidence(bridge))
		case fb.Start < fourGiB:
			to = &low
			to.Evidence = append(to.Evidence, assignment(d, fb))
		default:
			to = &good
			to.Evidence = append(to.Evidence, assignment(d, fb))
		}
		to.Devices = append(to.Devices, d.Address)
	}
	good.Title = fmt.Sprintf("framebuffer BAR above 4 GiB on %s", count(len(good.Devices), "GPU"))
	low.Title = fmt.Sprintf("framebuffer BAR below 4 GiB on %s", count(len(low.Devices), "GPU"))
	missing.Title = fmt.Sprintf("framebuffer BAR without an address on %s", count(len(missing.Devices), "GPU"))
	closed.Title = fmt.Sprintf("framebuffer BAR outside the window of a bridge above %s", count(len(closed.Devices), "GPU"))
	none.Title = fmt.Sprintf("no framebuffer BAR on %s", count(len(none.Devices), "GPU"))
	unread.Title = fmt.Sprintf("BARs of %s could not be read", count(len(unread.Devices), "GPU"))
	return about(missing, closed, low, none, unread, good)
}

// about keeps the findings that concern a device.
func about(findings ...Finding) []Finding {
	var out []Finding
	for _, f := range findings {
		if len(f.Devices) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// tooSmall names the first bridge from the root whose prefetchable window is
// smaller than the framebuffer BAR alone.
func tooSmall(f *facts.Facts, d *facts.Device, fb facts.Framebuffer) []Evidence {
	for _, address := range d.Path {
		b := f.Device(address)
		if b == nil || b.Config == nil || b.Config.Bridge == nil {
			continue
		}
		if b.Config.Bridge.Prefetchable.Size() < fb.Size {
			return []Evidence{windowEvidence(b)}
		}
	}
	return nil
}

// notForwarding returns the first port from the root whose windows do not cover
// the framebuffer BAR; nil when all do, or cannot be read.
func notForwarding(f *facts.Facts, d *facts.Device, fb facts.Framebuffer) *facts.Device {
	for _, address := range d.Path {
		b := f.Device(address)
		// A bridge of conventional PCI may forward what no window covers.
		if b == nil || b.Config == nil || b.Config.Bridge == nil || b.Config.Express == nil {
			continue
		}
		w := b.Config.Bridge
		if fb.Assigned && !w.Prefetchable.Contains(fb.Start, fb.Size) && !w.Memory.Contains(fb.Start, fb.Size) {
			return b
		}
	}
	return nil
}

// windowEvidence returns the prefetchable window of a bridge.
func windowEvidence(b *facts.Device) Evidence {
	w := b.Config.Bridge.Prefetchable
	raw := "closed"
	if w.Size() > 0 {
		raw = fmt.Sprintf("%s-%s (%s)", w.Base, w.Limit, bytes(w.Size()))
	}
	return Evidence{What: "prefetchable window of " + b.Address, Where: sysPCI + b.Address + "/config 0x24-0x2f", Raw: raw}
}

// logAbout returns what the kernel logged about assigning BARs of d.
func logAbout(f *facts.Facts, d *facts.Device) []Evidence {
	var out []Evidence
	for _, line := range f.KernelLog {
		if strings.Contains(line, d.Address) && strings.Contains(line, "BAR") {
			out = append(out, Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: line})
		}
	}
	return out
}

// bars lists the BARs that sysfs shows.
func bars(d *facts.Device) string {
	var out []string
	for _, r := range d.Resources {
		out = append(out, fmt.Sprintf("BAR%d %s flags %s", r.Index, bytes(r.Size()), r.Flags))
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}
