package measure

import (
	"fmt"
	"strings"
)

// signs of trouble in the kernel's log, and whether data may have suffered:
// messages of nvidia.ko (NVRM: Xid), of PCIe Advanced Error Reporting, and of
// the IOMMU drivers of Intel and AMD.
var signs = []struct {
	text  string
	alarm bool
}{
	{"NVRM: Xid", true},
	{"DMAR: [DMA", true}, // DMAR: [DMA Read NO_PASID] Request device … fault addr
	{"IO_PAGE_FAULT", true},
	{"INVALID_DEVICE_REQUEST", true},
	{"PCIe Bus Error: severity=Uncorrect", true}, // Uncorrected or, later, Uncorrectable
	{"Completion Timeout", true},
	{"GPU has fallen off the bus", true},
	{"AER:", false},
	{"PCIe Bus Error", false},
	{"DMAR:", false},
	{"AMD-Vi:", false},
	{"NVRM:", false},
	{"pcieport ", false},
	{"Surprise", false}, // Surprise Down: a link was lost
}

// Concerns tells whether a line of the kernel's log is about GPUs, PCIe or the
// IOMMU, and so belongs to what was measured while it came.
func Concerns(line string) bool {
	for _, s := range signs {
		if strings.Contains(line, s.text) {
			return true
		}
	}
	return false
}

// alarms returns the lines of the kernel after which right data proves nothing.
func (w *Watch) alarms() []string {
	if w == nil {
		return nil
	}
	var lines []string
	for _, line := range w.Kernel {
		for _, s := range signs {
			if s.alarm && strings.Contains(line, s.text) {
				lines = append(lines, line)
				break
			}
		}
	}
	return lines
}

// throttled says which links ran below what their functions are capable of
// while there was load; nothing if none did.
func (w *Watch) throttled() string {
	if w == nil {
		return ""
	}
	var texts []string
	for _, l := range w.Links {
		if len(l.Seen) == 0 {
			continue
		}
		s := l.Seen[0]
		if l.MaxSpeed != "" && s.Speed != l.MaxSpeed || s.Width < l.MaxWidth {
			texts = append(texts, fmt.Sprintf("the link of %s ran at %s x%d of %s x%d", l.BDF, s.Speed, s.Width, l.MaxSpeed, l.MaxWidth))
		}
	}
	return strings.Join(texts, ", ")
}

// With returns w with what of other it lacks.
func (w *Watch) With(other *Watch) *Watch {
	switch {
	case w == nil:
		return other
	case other == nil:
		return w
	}
	both := *w
	both.Sensors = append(both.Sensors, other.Sensors...)
	return &both
}
