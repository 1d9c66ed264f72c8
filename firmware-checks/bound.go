package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var driverBoundDoc = Doc{
	ID:       DriverBound,
	Question: "Has another driver the GPU?",
	Meaning:  "Only NVIDIA's driver sets up peer-to-peer, and it takes no GPU that another driver has: nouveau, nova_core or nvidiafb, or vfio-pci, which keeps it for a virtual machine.",
	Fix:      "Keep the other driver away: module_blacklist=nouveau,nova_core,nvidiafb on the kernel's command line, or the GPU's ID out of vfio-pci.ids=.",
	Outcomes: []Outcome{
		{Pass, "NVIDIA's driver has the GPU, or none has it and NVIDIA's is not loaded yet"},
		{Fail, "another driver has it, or NVIDIA's is loaded and did not take it"},
		{Skip, "the function is no NVIDIA GPU"},
	},
}

// displayDrivers are the drivers of the kernel that take NVIDIA GPUs.
var displayDrivers = []string{"nouveau", "nova_core", "nova_drm", "nvidiafb", "rivafb"}

// driverBound asks which driver has each GPU.
func driverBound(f *facts.Facts) []Finding {
	var found []Finding
	for _, d := range f.GPUs() {
		found = append(found, driverBoundOf(f, d))
	}
	return merge(found)
}

func driverBoundOf(f *facts.Facts, d *facts.Device) Finding {
	found := Finding{
		ID: DriverBound, Status: Fail, Devices: []string{d.Address},
		Evidence: []Evidence{{What: "driver of " + d.Address, Where: sysPCI + d.Address + "/driver", Raw: orNone(strings.Fields(d.Driver))}},
	}
	switch {
	case d.Vendor != vendorNVIDIA:
		found.Status, found.Title = Skip, "no NVIDIA GPU, its driver does not matter"
		found.Meaning = "NVIDIA's driver takes NVIDIA's GPUs only."
	case d.Driver == "nvidia":
		found.Status, found.Title = Pass, "NVIDIA's driver has the GPU"
		found.Meaning = "The driver can set up peer-to-peer."
	case d.Driver == "" && f.NVIDIA == nil:
		found.Status, found.Title = Pass, "no driver has the GPU yet"
		found.Meaning = "The GPU is free for NVIDIA's driver to take."
	case d.Driver == "":
		found.Title = "NVIDIA's driver is loaded and did not take the GPU"
		found.Meaning = "A GPU that the driver gave up, or does not know, has no part in peer-to-peer."
		found.Fix = "See P2P-DRIVER-LOG and P2P-DRIVER-OPEN for the reason."
		for _, line := range f.KernelLog {
			if strings.Contains(line, "NVRM") && strings.Contains(line, d.Address) {
				found.Evidence = append(found.Evidence, logEvidence(line))
			}
		}
	case d.Driver == "vfio-pci":
		found.Title = "vfio-pci keeps the GPU for a virtual machine"
		found.Meaning = "NVIDIA's driver of this system does not see the GPU; peer-to-peer is a matter of the virtual machine that gets it."
		found.Fix = fmt.Sprintf("Take 10de:%04x out of vfio-pci.ids= (kernel command line or modprobe.d) and reboot, or for now:\n"+
			"echo %[2]s > %[3]s%[2]s/driver/unbind; echo > %[3]s%[2]s/driver_override; echo %[2]s > /sys/bus/pci/drivers_probe",
			uint64(d.Device), d.Address, sysPCI)
		for _, p := range parameters(f) {
			if p.name == "vfio-pci.ids" {
				found.Evidence = append(found.Evidence, Evidence{What: "IDs kept for vfio-pci", Where: "/proc/cmdline", Raw: p.String()})
			}
		}
	case slices.Contains(displayDrivers, d.Driver):
		found.Title = d.Driver + " has the GPU"
		found.Meaning = "NVIDIA's driver does not take a GPU that another driver has, and this one has no peer-to-peer."
		found.Fix = "Boot with module_blacklist=" + strings.Join(displayDrivers, ",") + ", or put the same names into modprobe.d as blacklist lines and rebuild the initial RAM disk."
	default:
		found.Title = "the driver " + d.Driver + " has the GPU"
		found.Meaning = "NVIDIA's driver does not take a GPU that another driver has."
		found.Fix = fmt.Sprintf("echo %[1]s > %[2]s%[1]s/driver/unbind; echo %[1]s > /sys/bus/pci/drivers_probe", d.Address, sysPCI)
	}
	return found
}

// logEvidence is a line of the kernel's log.
func logEvidence(line string) Evidence {
	return Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: line}
}
