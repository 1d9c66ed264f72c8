package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var xidDoc = Doc{
	ID:       Xid,
	Question: "Has the driver reported errors of a GPU (Xid) since the kernel started?",
	Meaning:  "A GPU that has lost its link, whose System Processor has stopped or whose memory is failing spoils every transfer with it. Faults of the memory management unit on a GPU that a peer writes to hint at mappings that do not fit.",
	Fix:      "Depends on the number; the finding says what it means and what to do.",
	Outcomes: []Outcome{
		{Pass, "the log has no Xid"},
		{Warn, "it has one that the GPU survived"},
		{Fail, "it has one after which the GPU is lost, or its memory is not to be trusted"},
		{Unknown, "the log could not be read whole, and what is there has none"},
	},
}

// xidClass is what some Xids have in common.
type xidClass struct {
	status       Status
	title        string
	meaning, fix string
}

var (
	xidLost = xidClass{Fail, "a GPU was lost",
		"The driver no longer reaches the GPU: its link or its power is gone, or it stopped answering.",
		"Power the machine off, not only reboot it. If it comes again, reseat the GPU, check its power cables and riser, and try with the link at a lower generation in the firmware setup."}
	xidProcessor = xidClass{Fail, "the GPU System Processor failed",
		"The driver's part on the GPU stopped or did not start; nothing works on this GPU until it is reset.",
		"Reset the GPU (nvidia-smi --gpu-reset) or power the machine off. If it comes again, see that firmware and module are of one release (P2P-GSP-FIRMWARE) and try another release."}
	xidMemory = xidClass{Fail, "memory of a GPU is not to be trusted",
		"An error in memory was not corrected: measured data may be wrong for that reason alone.",
		"Reset the GPU, so that bad rows are replaced (nvidia-smi -q -d ROW_REMAPPER), and have it replaced if errors go on."}
	xidContained = xidClass{Warn, "errors in a GPU's memory were corrected or contained",
		"The GPU works on; a page is retired or a row replaced at the next reset.",
		"Reset the GPU at the next occasion and watch whether the errors go on (nvidia-smi -q -d ECC)."}
	xidPCIe = xidClass{Warn, "errors on the PCIe link of a GPU",
		"The link corrects errors, at the cost of bandwidth, and may fail altogether.",
		"Reseat the GPU and check its riser; see P2P-LINK-ERRORS for the counts of the ports."}
	xidNVLink = xidClass{Warn, "errors of NVLink",
		"Pairs that the driver connects over NVLink may be slow or stop; peer-to-peer over PCIe is not concerned.",
		"Check bridges and cables (nvidia-smi nvlink -e), on a machine with NVSwitch that nvidia-fabricmanager of the driver's release runs."}
	xidFault = xidClass{Warn, "an access to an address that is not mapped",
		"A program on the GPU, or a copy, went to an address without a mapping. In a test of peer-to-peer it means that the peer's mapping does not fit: too small a BAR1, or edits that do not belong to the release.",
		"If a measurement of peer-to-peer caused it, see P2P-BAR1-MEMORY and P2P-RM-PATH; otherwise it is the program's."}
	xidProgram = xidClass{Warn, "a program on the GPU failed",
		"As a rule the program's own fault; it says nothing about peer-to-peer unless a measurement caused it.",
		"Find the program by the process ID in the line."}
	xidOther = xidClass{Warn, "other errors of a GPU",
		"The number is explained in NVIDIA's list of Xid errors.",
		"Look the number up at https://docs.nvidia.com/deploy/xid-errors/."}
)

// xids are classes by number (ROBUST_CHANNEL_* and others in nverror.h of release
// 610, which keeps the numbers of older ones).
var xids = map[int]*xidClass{
	13: &xidProgram, 31: &xidFault, 32: &xidProgram, 38: &xidProgram, 43: &xidProgram, 44: &xidProgram, 45: &xidProgram,
	48: &xidMemory, 62: &xidProcessor, 63: &xidContained, 64: &xidMemory, 69: &xidProgram, 74: &xidNVLink, 79: &xidLost,
	92: &xidContained, 94: &xidContained, 95: &xidMemory, 108: &xidNVLink, 119: &xidProcessor, 120: &xidProcessor,
	136: &xidNVLink, 137: &xidNVLink, 140: &xidMemory, 143: &xidProcessor, 144: &xidNVLink, 145: &xidNVLink, 146: &xidNVLink,
	147: &xidNVLink, 148: &xidNVLink, 149: &xidNVLink, 150: &xidNVLink, 155: &xidNVLink, 156: &xidContained, 157: &xidMemory,
	158: &xidLost, 167: &xidLost, 171: &xidMemory, 172: &xidMemory, 176: &xidPCIe, 177: &xidContained,
}

// xidLine finds the domain, bus and slot of the GPU and the number
// (nvErrorLog in kernel_rc.c). A GPU instance may follow the address.
var xidLine = regexp.MustCompile(`\bXid \(PCI:([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})[^)]*\): (\d+)\b`)

// xid classifies the Xids in the kernel's log.
func xid(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	var classes []*xidClass
	byClass := map[*xidClass]*Finding{}
	numbers := map[*xidClass][]int{}
	for _, line := range f.KernelLog {
		m := xidLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		number, _ := strconv.Atoi(m[2]) // digits only; one too large is in no class
		class := xids[number]
		if class == nil {
			class = &xidOther
		}
		found := byClass[class]
		if found == nil {
			found = &Finding{ID: Xid, Status: class.status, Meaning: class.meaning, Fix: class.fix}
			byClass[class] = found
			classes = append(classes, class)
		}
		found.Evidence = append(found.Evidence, logEvidence(line))
		for _, d := range f.GPUs() {
			if strings.HasPrefix(d.Address, strings.ToLower(m[1])+".") && !slices.Contains(found.Devices, d.Address) {
				found.Devices = append(found.Devices, d.Address)
			}
		}
		if !slices.Contains(numbers[class], number) {
			numbers[class] = append(numbers[class], number)
		}
	}
	if classes == nil {
		return quiet(f, Xid, "no Xid in the kernel's log", "The driver has reported no error of a GPU since the kernel started.")
	}
	var out []Finding
	for _, class := range classes {
		var names []string
		for _, n := range numbers[class] {
			names = append(names, fmt.Sprintf("Xid %d", n))
		}
		found := *byClass[class]
		found.Title = class.title + ": " + strings.Join(names, ", ")
		out = append(out, found)
	}
	return out
}

// quiet is the finding of a family that looked for lines in the kernel's log and
// found none.
func quiet(f *facts.Facts, id ID, title, meaning string) []Finding {
	ev := Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: fmt.Sprintf("%d lines that bear on the subject", len(f.KernelLog))}
	if why := unreadable(f, "/dev/kmsg"); why != "" {
		return []Finding{{
			ID: id, Status: Unknown, Title: "the kernel's log could not be read whole", Evidence: []Evidence{ev},
			Meaning: "What it would say is not known: " + why + ".", Fix: "Run as root.",
		}}
	}
	return []Finding{{ID: id, Status: Pass, Title: title, Meaning: meaning, Evidence: []Evidence{ev}}}
}
