package checks

import (
	"fmt"
	"slices"

	"mkp2pimg/firmware-checks/facts"
)

var confidentialDoc = Doc{
	ID:       Confidential,
	Question: "Is confidential computing on?",
	Meaning:  "A GPU in that mode encrypts what leaves it and hides its memory from the bus: from release 580 on the driver sets up no static BAR1 (kbusIsStaticBar1Supported in kern_bus_tu102.c).",
	Fix:      "Turn the mode off with NVIDIA's gpu-admin-tools (--set-cc-mode=off --reset-after-cc-mode-switch), or let pairs use NVLink.",
	Outcomes: []Outcome{
		{Pass, "no memory of the GPU is protected"},
		{Fail, "some is"},
		{Skip, "NVML was not asked, or does not tell"},
	},
}

var migDoc = Doc{
	ID:       MIG,
	Question: "Is a GPU divided (MIG)?",
	Meaning:  "The driver grants no peer-to-peer to a GPU in MIG mode, in all releases from 535 to 610 (p2pGetCapsStatus in p2p_caps.c).",
	Fix:      "nvidia-smi -i <address> -mig 0, with nothing running on the GPU.",
	Outcomes: []Outcome{
		{Pass, "MIG is off, or the GPU does not have it"},
		{Fail, "MIG is on"},
		{Skip, "NVML was not asked"},
	},
}

var vgpuDoc = Doc{
	ID:       VGPU,
	Question: "Is a GPU shared among virtual machines, or itself a share (vGPU)?",
	Meaning:  "The driver of a vGPU host leaves BAR1 to the guests: from 580 on it sets up no static BAR1 there. To a virtual GPU it grants no BAR1 peer-to-peer at all.",
	Fix:      "Pass whole GPUs to virtual machines, or use the machine without vGPU: disable the virtual functions (echo 0 > sriov_numvfs) and install the driver that is not for vGPU hosts.",
	Outcomes: []Outcome{
		{Pass, "no sign of vGPU"},
		{Fail, "the GPU serves virtual machines, or is a virtual function"},
	},
}

// notAsked is the answer of a family that needs NVML.
func notAsked(id ID, f *facts.Facts) []Finding {
	if f.NVIDIA == nil {
		return notLoaded(id)
	}
	return []Finding{{ID: id, Status: Skip, Title: "NVML was not asked", Meaning: "Only the driver tells; gather the facts with nvidia-smi installed and without --passive."}}
}

// confidential asks whether confidential computing is on.
func confidential(f *facts.Facts) []Finding {
	var found []Finding
	for _, d := range f.GPUs() {
		n := nvmlOf(f, d)
		if n == nil || n.Protected == nil {
			continue
		}
		one := Finding{
			ID: Confidential, Status: Pass, Title: "confidential computing is off", Devices: []string{d.Address},
			Evidence: []Evidence{{What: "protected memory of " + d.Address, Where: "NVML", Raw: bytes(*n.Protected)}},
			Meaning:  "The GPU's memory is open to its peers.",
		}
		if *n.Protected > 0 {
			one.Status, one.Title = Fail, "confidential computing is on"
			one.Meaning = "The GPU hides its memory from the bus: the driver sets up no static BAR1, so there is no peer-to-peer over PCIe."
			one.Fix = "Turn the mode off with NVIDIA's gpu-admin-tools (--set-cc-mode=off --reset-after-cc-mode-switch), or let pairs use NVLink."
		}
		found = append(found, one)
	}
	if found == nil {
		return notAsked(Confidential, f)
	}
	return merge(found)
}

// mig asks whether a GPU is divided.
func mig(f *facts.Facts) []Finding {
	var found []Finding
	for _, d := range f.GPUs() {
		n := nvmlOf(f, d)
		if n == nil || n.MIG == "" {
			continue
		}
		one := Finding{
			ID: MIG, Status: Pass, Title: "no GPU is divided", Devices: []string{d.Address},
			Evidence: []Evidence{{What: "MIG mode of " + d.Address, Where: "NVML", Raw: n.MIG}},
			Meaning:  "MIG does not stand in the way of peer-to-peer.",
		}
		if n.MIG == "Enabled" {
			one.Status, one.Title = Fail, "MIG is on"
			one.Meaning = "The driver grants no peer-to-peer to a GPU in MIG mode, over whatever path."
			one.Fix = fmt.Sprintf("nvidia-smi -i %s -mig 0, with nothing running on the GPU.", d.Address)
		}
		found = append(found, one)
	}
	if found == nil {
		return notAsked(MIG, f)
	}
	return merge(found)
}

// vgpu asks whether a GPU is shared among virtual machines, or a share itself.
func vgpu(f *facts.Facts) []Finding {
	manager := slices.ContainsFunc(f.Modules, func(m facts.Module) bool { return m.Name == "nvidia_vgpu_vfio" })
	var found []Finding
	for _, d := range f.GPUs() {
		one := Finding{
			ID: VGPU, Status: Pass, Title: "no GPU is shared by vGPU", Devices: []string{d.Address},
			Evidence: []Evidence{{What: "virtual functions of " + d.Address, Where: sysPCI + d.Address + "/sriov_numvfs", Raw: fmt.Sprintf("%d of %d", d.VirtualFunctions, d.MaxVirtualFunctions)}},
			Meaning:  "Each GPU is whole.",
		}
		virtualization := ""
		if n := nvmlOf(f, d); n != nil {
			virtualization = n.Virtualization
			one.Evidence = append(one.Evidence, Evidence{What: "virtualization mode of " + d.Address, Where: "NVML", Raw: virtualization})
		}
		if manager {
			one.Evidence = append(one.Evidence, Evidence{What: "vGPU manager", Where: "/sys/module/nvidia_vgpu_vfio", Raw: "loaded"})
		}
		switch {
		case d.PhysicalFunction != "" || virtualization == "VGPU":
			one.Status, one.Title = Fail, "the GPU is a share of one (vGPU)"
			one.Meaning = "The driver grants a virtual GPU no peer-to-peer over BAR1."
			one.Fix = "Give the virtual machine whole GPUs."
			if d.PhysicalFunction != "" {
				one.Evidence = append(one.Evidence, Evidence{What: "physical function of " + d.Address, Where: sysPCI + d.Address + "/physfn", Raw: d.PhysicalFunction})
			}
		case d.VirtualFunctions > 0 || virtualization == "Host VGPU" || virtualization == "Host VSGA" || manager:
			one.Status, one.Title = Fail, "the GPU is set up to serve virtual machines (vGPU host)"
			one.Meaning = "The driver leaves BAR1 to the guests and sets up no static BAR1 of its own."
			one.Fix = fmt.Sprintf("echo 0 > %s%s/sriov_numvfs, and install the driver that is not for vGPU hosts.", sysPCI, d.Address)
		}
		found = append(found, one)
	}
	return merge(found)
}
