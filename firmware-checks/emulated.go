package checks

import (
	"fmt"
	"regexp"
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// Emulated is the ID of the finding about GPUs that are made up by QEMU.
const Emulated ID = "P2P-GPU-EMULATED"

// Subsystem of devices that QEMU makes up (docs/specs/pci-ids.rst of QEMU): boards
// of NVIDIA and its partners have one of their maker.
const (
	subsystemVendorQEMU pcicfg.Hex = 0x1af4
	subsystemQEMU       pcicfg.Hex = 0x1100
)

var emulatedDoc = Doc{
	ID:       Emulated,
	Question: "Is a GPU made up by an emulator?",
	Meaning:  "An emulated GPU has the configuration space of a board and nothing behind it: what is found there is judged as on a board, but no driver starts it and nothing can be measured.",
	Fix:      "Run on a machine with GPUs.",
	Outcomes: []Outcome{
		{Skip, "a GPU has the subsystem of QEMU's own devices; there is no finding otherwise"},
	},
}

// emulated finds the GPUs that are made up.
func emulated(f *facts.Facts) []Finding {
	found := Finding{
		ID: Emulated, Status: Skip,
		Meaning: "The facts are judged as those of GPUs. The driver cannot start an emulated device, which is no fault of this machine; nothing is measured, and the machine is never called ready.",
	}
	for _, d := range f.GPUs() {
		if !isEmulated(d) {
			continue
		}
		found.Devices = append(found.Devices, d.Address)
		found.Evidence = append(found.Evidence, Evidence{
			What: "subsystem of " + d.Address, Where: sysPCI + d.Address + "/config 0x2c",
			Raw: fmt.Sprintf("%04x:%04x, that of QEMU's devices", uint64(d.Config.SubsystemVendor), uint64(d.Config.SubsystemDevice)),
		})
	}
	if found.Devices == nil {
		return nil
	}
	found.Title = fmt.Sprintf("%s emulated", count(len(found.Devices), "GPU"))
	return []Finding{found}
}

// HasEmulated says whether a GPU of the machine is made up by an emulator.
func HasEmulated(f *facts.Facts) bool { return slices.ContainsFunc(f.GPUs(), isEmulated) }

// notStarted are the driver's words after it could not start a GPU (osinit.c of
// the Unix layer).
var notStarted = regexp.MustCompile(`RmInitAdapter failed|rm_init_adapter failed`)

// NotStarted is the finding about emulated GPUs that the driver bound and was asked
// to start, with the lines that it logged then.
func NotStarted(log []string) Finding {
	found := Finding{
		ID: Emulated, Status: Skip, Title: standInPrefix + "the driver bound the emulated GPUs, and nothing tells that it started them", StandIn: true,
		Meaning: "An emulated device has no processor and no video BIOS to start: that is no fault of the driver or of this machine.",
	}
	for _, line := range log {
		if notStarted.MatchString(line) {
			found.Title = standInPrefix + "the driver bound the emulated GPUs and could not start them"
			found.Evidence = append(found.Evidence, logEvidence(line))
		}
	}
	return found
}

// isEmulated says whether d has NVIDIA's IDs on a device of QEMU.
func isEmulated(d *facts.Device) bool {
	return d.Vendor == vendorNVIDIA && d.Config != nil &&
		d.Config.SubsystemVendor == subsystemVendorQEMU && d.Config.SubsystemDevice == subsystemQEMU
}
