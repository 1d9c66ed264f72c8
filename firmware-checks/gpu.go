package checks

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

const sysPCI = "/sys/bus/pci/devices/"

var gpuPresentDoc = Doc{
	ID:       GPUPresent,
	Question: "Is there a GPU, and does every one answer?",
	Meaning:  "A GPU that was enumerated at boot and now reads all ones has lost its link or its power; neither its driver nor a peer reaches it.",
	Fix:      "Power the machine off, not only reboot it; if the GPU is gone again, reseat it and check its power cable and riser.",
	Outcomes: []Outcome{
		{Pass, "every GPU answers configuration reads"},
		{Fail, "a GPU reads all ones"},
		{Skip, "no function of vendor 10de has a display class"},
		{Unknown, "sysfs could not be read"},
	},
}

func gpuPresent(f *facts.Facts) []Finding {
	found := Finding{ID: GPUPresent}
	gpus := f.GPUs()
	if len(gpus) == 0 {
		found.Status = Skip
		found.Title = fmt.Sprintf("no NVIDIA GPU among %d PCI functions", len(f.Devices))
		found.Meaning = "There is nothing to judge: no function has vendor 10de and a display class (0300, 0302)."
		if why := unreadable(f, strings.TrimSuffix(sysPCI, "/")); why != "" {
			found.Status = Unknown
			found.Title = "the PCI devices could not be read"
			found.Meaning = "Whether the machine has a GPU is not known: " + why + "."
			found.Fix = "Mount sysfs at /sys."
		}
		return []Finding{found}
	}
	found.Devices = addresses(gpus)
	var silent []string
	for _, d := range gpus {
		found.Evidence = append(found.Evidence, Evidence{
			What: "GPU " + d.Address, Where: sysPCI + d.Address + "/{vendor,device,class}",
			Raw: fmt.Sprintf("%04x:%04x class %06x", uint64(d.Vendor), uint64(d.Device), uint64(d.Class)),
		})
		if d.NoResponse {
			silent = append(silent, d.Address)
		}
	}
	if silent == nil {
		found.Status = Pass
		found.Title = fmt.Sprintf("%s on the bus", count(len(gpus), "GPU"))
		found.Meaning = "Every GPU that was enumerated answers."
		return []Finding{found}
	}
	found.Status = Fail
	found.Title = fmt.Sprintf("%s off the bus: %s", count(len(silent), "GPU"), strings.Join(silent, ", "))
	found.Devices = silent
	found.Meaning = "Configuration space reads all ones: the GPU was enumerated at boot and has since lost its link or its power."
	found.Fix = "Power the machine off, not only reboot it; if the GPU is gone again, reseat it and check its power cable and riser."
	return []Finding{found}
}

var virtualDoc = Doc{
	ID:       Virtual,
	Question: "Is this a virtual machine, whose hypervisor decides what is seen?",
	Meaning:  "A guest sees bridges that the hypervisor made up; ACS, the IOMMU and the real links of the host decide about peer traffic and cannot be seen from inside.",
	Fix:      "Run the check on the host as well, and rely on the measured bandwidth with verified data.",
	Outcomes: []Outcome{
		{Pass, "the CPU shows no hypervisor flag"},
		{Unknown, "it does, or the processor could not be read"},
	},
}

func virtual(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	ev := []Evidence{
		{What: "hypervisor flag of the CPU", Where: "/proc/cpuinfo", Raw: fmt.Sprint(f.CPU.Hypervisor)},
		{What: "product name", Where: "/sys/class/dmi/id/product_name", Raw: f.Firmware.Product},
	}
	if why := unreadable(f, "/proc/cpuinfo"); why != "" {
		return []Finding{{
			ID: Virtual, Status: Unknown, Title: "whether this is a virtual machine is not known", Evidence: ev[1:],
			Meaning: "In a virtual machine the bridges, the IOMMU and the size of BARs are the hypervisor's invention; /proc/cpuinfo: " + why + ".",
			Fix:     "Mount procfs at /proc.",
		}}
	}
	if !f.CPU.Hypervisor {
		return []Finding{{
			ID: Virtual, Status: Pass, Title: "not a virtual machine", Evidence: ev,
			Meaning: "What configuration space and sysfs say is what the hardware does.",
		}}
	}
	found := Finding{
		ID: Virtual, Status: Unknown, Title: "this is a virtual machine", Evidence: ev,
		Meaning: "The hypervisor shows its own bridges and hides capabilities. What it says about the GPU's ID, its driver and the sizes of BARs holds; links, ACS, the IOMMU and the size that a BAR could have are those of the host, which decide about peer traffic and cannot be seen from here.",
		Fix:     "Run the check on the host as well, and rely on the measured bandwidth with verified data.",
	}
	switch f.CPU.HypervisorKind {
	case "":
	case "kvm", "qemu":
		found.Title = "this is a virtual machine of QEMU or KVM"
		found.Fix += "\nQEMU tells the driver that GPUs reach each other by -device vfio-pci,…,x-nv-gpudirect-clique=0 for each of them. The driver takes that on trust, so only data checked on the receiving GPU counts."
	case "amazon", "google", "hyper-v", "apple":
		found.Title = "this is a virtual machine (" + f.CPU.HypervisorKind + ")"
		found.Fix = "Rely on the measured bandwidth with verified data; the host is the provider's."
	default:
		found.Title = "this is a virtual machine (" + f.CPU.HypervisorKind + ")"
	}
	return []Finding{found}
}

// addresses returns the addresses of devices.
func addresses(devices []*facts.Device) []string {
	var out []string
	for _, d := range devices {
		out = append(out, d.Address)
	}
	return out
}

// count returns "1 GPU", "2 GPUs".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// unreadable returns why the source at where could not be read, "" when it
// could.
func unreadable(f *facts.Facts, where string) string {
	for _, u := range f.Unknown {
		if u.Where == where {
			return u.Why
		}
	}
	return ""
}
