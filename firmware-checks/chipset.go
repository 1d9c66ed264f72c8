package checks

import (
	"fmt"
	"regexp"

	"mkp2pimg/firmware-checks/facts"
)

var chipsetDoc = Doc{
	ID:       Chipset,
	Question: "Does a GPU hang on lanes of the chipset instead of the CPU?",
	Meaning:  "Everything behind the chipset shares its one link to the CPU with disks, network and USB. It is narrow, adds latency, and not every platform forwards peer traffic across it.",
	Fix:      "Move the GPU to a slot that the board's manual gives to the CPU.",
	Outcomes: []Outcome{
		{Pass, "the GPUs hang on ports of the CPU, or on switches below them"},
		{Warn, "a GPU hangs on the chipset"},
		{Unknown, "the bridges above a GPU could not be read"},
	},
}

const (
	vendorIntel = 0x8086
	vendorAMD   = 0x1022
)

// amdChipsets are the upstream ports of the switches that AMD's desktop chipsets
// are to the CPU, by device ID (pci.ids).
var amdChipsets = map[uint64]string{
	0x43b0: "X370", 0x43b1: "X399", 0x43c6: "400 series", 0x43e9: "500 series", 0x57ad: "X570", 0x43f4: "600 and 800 series",
}

// intelPCH is where Intel's platform controller hubs have their root ports:
// devices 1Bh to 1Dh of bus 0. Those of the CPU are at 01h and 06h, or on buses
// of their own.
var intelPCH = regexp.MustCompile(`^[0-9a-f]+:00:1[bcd]\.`)

// chipsetBridge returns the bridge by which d hangs on the chipset, with the
// name of that; nil when none does.
func chipsetBridge(f *facts.Facts, d *facts.Device) (bridge *facts.Device, name string) {
	for i, address := range d.Path {
		b := f.Device(address)
		switch {
		case b == nil:
		case b.Vendor == vendorAMD && amdChipsets[uint64(b.Device)] != "":
			return b, "AMD " + amdChipsets[uint64(b.Device)] + " chipset"
		case b.Vendor == vendorIntel && i == 0 && intelPCH.MatchString(address):
			return b, "Intel platform controller hub"
		}
	}
	return nil, ""
}

// chipset asks whether a GPU hangs on the chipset.
func chipset(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	good := Finding{ID: Chipset, Status: Pass, Meaning: "No transfer between these GPUs shares the link of a chipset."}
	behind := Finding{
		ID: Chipset, Status: Warn,
		Meaning: "The link between chipset and CPU is narrower than a slot for graphics, and disks, network and USB share it; some platforms do not forward peer traffic across it, so only the measurement tells.",
		Fix:     "Move the GPU to a slot of the CPU; the board's manual says which slots those are.",
	}
	unread := Finding{
		ID: Chipset, Status: Unknown, Meaning: "Which bridges are above these GPUs is not known.", Fix: "Run with sysfs mounted at /sys.",
	}
	for _, d := range gpus {
		bridge, name := chipsetBridge(f, d)
		to := &good
		ev := Evidence{What: "bridges above " + d.Address, Where: sysPCI + d.Address + " link target", Raw: d.Root + " " + orNone(d.Path)}
		switch {
		case bridge != nil:
			to = &behind
			to.Evidence = append(to.Evidence, ev)
			ev = Evidence{
				What: "bridge " + bridge.Address, Where: sysPCI + bridge.Address + "/{vendor,device}",
				Raw: fmt.Sprintf("%04x:%04x, %s", uint64(bridge.Vendor), uint64(bridge.Device), name),
			}
		case d.Root == "":
			to = &unread
		}
		to.Devices = append(to.Devices, d.Address)
		to.Evidence = append(to.Evidence, ev)
	}
	behind.affect(newFabric(f).pairsWith(behind.Devices)...)
	good.Title = fmt.Sprintf("%s on lanes of the CPU", count(len(good.Devices), "GPU"))
	behind.Title = fmt.Sprintf("%s behind the chipset", count(len(behind.Devices), "GPU"))
	unread.Title = fmt.Sprintf("place of %s not known", count(len(unread.Devices), "GPU"))
	return about(behind, unread, good)
}
