package checks

import (
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var driverLogDoc = Doc{
	ID:       DriverLog,
	Question: "Has the driver said in the kernel's log that it could not start a GPU or map its memory?",
	Meaning:  "The driver's lines (NVRM) name causes that nothing else tells: firmware that is missing, a BAR without an address, static BAR1 that does not fit, a mapping that the IOMMU refused.",
	Fix:      "Depends on the line; the finding says what it means and what to do.",
	Outcomes: []Outcome{
		{Pass, "the log has no such line"},
		{Warn, "it has one that costs bandwidth or a feature"},
		{Fail, "it has one after which a GPU or a peer mapping does not work"},
		{Unknown, "the log could not be read whole, and what is there has none"},
	},
}

// driverLine is a message of the driver.
type driverLine struct {
	text         *regexp.Regexp
	status       Status
	title        string
	meaning, fix string
}

// driverLines are messages of releases 535 to 610 that bear on the subject, by
// source file: nv.c and nv-pci.c of kernel-open/nvidia, osapi.c and osinit.c of
// the Unix layer, kernel_gsp.c, kern_bus_{gp100,tu102,gh100}.c, nv_gpu_ops.c. The
// first that matches a line counts.
var driverLines = []driverLine{
	{regexp.MustCompile(`fallen off the bus`), Fail, "a GPU has fallen off the bus",
		"It answers no register read: its link or its power is gone.",
		"Power the machine off, not only reboot it; if the GPU is gone again, reseat it and check its power cables and riser."},
	{regexp.MustCompile(`unexpected WPR2 already up`), Fail, "a GPU is in a state that the driver cannot start from",
		"The GPU was left half started, by a driver that crashed or by a virtual machine; its protected memory is still set up.",
		"Reset the GPU, or power the machine off."},
	{regexp.MustCompile(`No firmware image found`), Fail, "the firmware of the GPU System Processor is missing",
		"The driver starts no GPU without it.",
		"See P2P-GSP-FIRMWARE."},
	{regexp.MustCompile(`RmInitAdapter failed|rm_init_adapter failed`), Fail, "the driver could not start a GPU",
		"The GPU has no part in peer-to-peer. The usual causes are firmware that is missing or of another release, and a GPU left in a bad state.",
		"See P2P-GSP-FIRMWARE; if the firmware is there, power the machine off, not only reboot it."},
	{regexp.MustCompile(`BAR1 size \d+ is not large enough to map FB`), Fail, "static BAR1 was forced on a GPU whose memory does not fit",
		"With RMForceStaticBar1=1 the driver does not start a GPU with BAR1 smaller than its memory.",
		"Load nvidia.ko without RMForceStaticBar1=1, or enlarge BAR1: see P2P-REBAR and P2P-BAR1-MEMORY."},
	{regexp.MustCompile(`Failed to (create|update) (the )?static bar1`), Fail, "static BAR1 could not be set up",
		"The driver grants no BAR1 to peers of this GPU, or grants it without a mapping.",
		"See P2P-BAR1-MEMORY; take displays off this GPU."},
	{regexp.MustCompile(`The peer DMA address 0x[0-9a-f]+ is not aligned at`), Fail, "a peer's address does not fit the page size",
		"Edits made for another release put peer addresses into entries of another kind: copies may work while stores are lost.",
		"Use modules edited for this very release, or a release that knows BAR1 peers itself (580 and later), and verify data with stores as well as copies."},
	{regexp.MustCompile(`DMA base address is not set for BAR1P2P mapping`), Fail, "a BAR1 peer mapping has no address",
		"The driver granted BAR1 without static BAR1 on the peer.",
		"See P2P-BAR1-MEMORY and P2P-RM-PATH."},
	{regexp.MustCompile(`IOMMU mapping failed from GPU\d+ to GPU\d+`), Fail, "the IOMMU refused a peer mapping",
		"Peer addresses have to pass a translating IOMMU, and it did not take them.",
		"Stop the IOMMU from translating: see P2P-IOMMU."},
	{regexp.MustCompile(`P2P type \d+ is not supported`), Fail, "the driver was asked for a kind of peer mapping that this GPU's part of it lacks",
		"Registry keys or edits choose BAR1 where the release, as it is, has no function for it.",
		"Use modules with the edits for this release (p2p.driver=p2p), or load nvidia.ko without the keys that choose BAR1."},
	{regexp.MustCompile(`FATAL: Failed to re-allocate BAR1|Fatal Error while attempting to resize PCIe BARs`), Fail, "a BAR was lost when the driver enlarged it",
		"The kernel found no address for the enlarged BAR and none for the old one.",
		"Reboot with NVreg_EnableResizableBar=0 and let the firmware enlarge the BAR: see P2P-REBAR."},
	{regexp.MustCompile(`No address space to allocate resized BAR1`), Warn, "the driver found no room to enlarge BAR1",
		"BAR1 stays as small as the firmware left it.",
		"See P2P-REBAR for the window that is too small."},
	{regexp.MustCompile(`This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M @ 0x0`), Fail, "a BAR of a GPU has no address",
		"The driver does not take a GPU with a BAR that the firmware or the kernel could not place.",
		"See P2P-ABOVE-4G."},
	{regexp.MustCompile(`request_mem_region failed|probe routine was not called|obtained ownership of the`), Fail, "another driver has the GPU",
		"The driver does not get at its registers.",
		"See P2P-DRIVER-BOUND."},
	{regexp.MustCompile(`API mismatch`), Fail, "a program came with libraries of another release",
		"The module refuses it.",
		"See P2P-DRIVER-MATCH."},
	{regexp.MustCompile(`requires use of the NVIDIA open kernel modules`), Fail, "the GPU needs the open module",
		"The proprietary module leaves it alone.",
		"See P2P-DRIVER-OPEN."},
	{regexp.MustCompile(`is not supported by open|does not include the required GPU|ignoring the legacy GPU|is not supported by the$`), Fail, "the release does not run a GPU",
		"The open module runs Turing and newer, and each release only GPUs known at its time.",
		"Use a release that knows the GPU (mkp2pimg drivers)."},
}

// driverAddress finds the address of the GPU that a line is about.
var driverAddress = regexp.MustCompile(`[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)

// driverLog classifies what the driver said in the kernel's log.
func driverLog(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	var found []Finding
	for i, line := range f.KernelLog {
		if !strings.Contains(line, "NVRM") || xidLine.MatchString(line) {
			continue
		}
		k := slices.IndexFunc(driverLines, func(l driverLine) bool { return l.text.MatchString(line) })
		if k < 0 {
			continue
		}
		l := driverLines[k]
		one := Finding{ID: DriverLog, Status: l.status, Title: l.title, Meaning: l.meaning, Fix: l.fix, Evidence: []Evidence{logEvidence(line)}}
		// Messages of several lines have the address in a line of their own before
		// or after.
		for _, near := range f.KernelLog[max(0, i-1):min(len(f.KernelLog), i+2)] {
			for _, address := range driverAddress.FindAllString(near, -1) {
				if d := f.Device(address); strings.Contains(near, "NVRM") && d != nil && d.GPU && !slices.Contains(one.Devices, address) && (near == line || one.Devices == nil) {
					one.Devices = append(one.Devices, address)
				}
			}
		}
		found = append(found, one)
	}
	if found == nil {
		return quiet(f, DriverLog, "no complaint of the driver in the kernel's log", "The driver has said nothing about a GPU that it could not start or map.")
	}
	found = merge(found)
	for i := range found {
		slices.Sort(found[i].Devices)
		found[i].Devices = slices.Compact(found[i].Devices)
	}
	return found
}
