package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
)

const sysPCI = "/sys/bus/pci/devices/"

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

func gpuPair(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	switch len(gpus) {
	case 0:
		return nil // gpuPresent has said so
	case 1:
		return []Finding{{
			ID: GPUPair, Status: Skip,
			Title:   fmt.Sprintf("one GPU (%s), no second one to pair it with", gpus[0].Address),
			Meaning: "Peer-to-peer needs two GPUs; what the other findings say about this one still holds.",
			Devices: addresses(gpus),
		}}
	}
	near := Finding{
		ID: GPUPair, Status: Pass,
		Meaning: "Peer traffic stays within one NUMA node.",
	}
	far := Finding{
		ID: GPUPair, Status: Warn,
		Meaning: "Peer traffic between NUMA nodes shares the socket interconnect and is slower than within one; some platforms do not forward it at all, so only the measurement tells.",
		Fix:     "Move both GPUs of a pair to slots of one CPU, or keep work that exchanges much data on GPUs of one node.",
	}
	unclear := Finding{
		ID: GPUPair, Status: Unknown,
		Meaning: "The machine has several CPU sockets and the firmware names no NUMA node for these GPUs, so their traffic may cross the socket interconnect.",
		Fix:     "Enable NUMA (on some boards: disable node interleaving) in the firmware setup" + ofBoard(f) + ".",
	}
	for _, p := range topology.New(f).Pairs() {
		found := &near
		switch p.Class {
		case topology.SYS:
			found = &far
		case topology.Unclear, topology.Unknown:
			found = &unclear
		}
		found.Pairs = append(found.Pairs, [2]string{p.A.Address, p.B.Address})
		found.Evidence = append(found.Evidence, Evidence{
			What:  fmt.Sprintf("%s to %s", p.A.Address, p.B.Address),
			Where: fmt.Sprintf("%s{%s,%s}: link target, numa_node", sysPCI, p.A.Address, p.B.Address),
			Raw:   fmt.Sprintf("%s through %s", p.Class, meeting(p)),
		})
	}
	far.Title = fmt.Sprintf("%s across the interconnect between CPU sockets", count(len(far.Pairs), "GPU pair"))
	unclear.Title = fmt.Sprintf("%s on host bridges of unknown sockets", count(len(unclear.Pairs), "GPU pair"))
	near.Title = fmt.Sprintf("%s within one NUMA node", count(len(near.Pairs), "GPU pair"))
	return slices.DeleteFunc([]Finding{unclear, far, near}, func(f Finding) bool { return f.Pairs == nil })
}

// meeting names where the paths of a pair meet.
func meeting(p topology.Path) string {
	switch {
	case p.Ancestor != "":
		return p.Ancestor
	case p.A.Root == p.B.Root:
		return p.A.Root
	}
	return p.A.Root + " and " + p.B.Root
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
	return []Finding{{
		ID: Virtual, Status: Unknown, Title: "this is a virtual machine", Evidence: ev,
		Meaning: "The hypervisor shows its own bridges and hides capabilities; ACS and the IOMMU of the host decide about peer traffic and cannot be seen from here.",
		Fix:     "Run the check on the host as well, and rely on the measured bandwidth with verified data.",
	}}
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
