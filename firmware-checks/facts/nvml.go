package facts

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// smi is the program that stands between: a static program can load no library,
// and its words stay the same where the structures of NVML change.
const smi = "nvidia-smi"

// nvml reads the document of nvidia-smi, unless err says that there is none.
func (g *gatherer) nvml(document []byte, err error) []NVMLGPU {
	var gpus []NVMLGPU
	if err == nil {
		gpus, err = ParseNVML(document)
	}
	if err != nil {
		g.facts.Unknown = append(g.facts.Unknown, Unknown{What: "NVML", Where: smi, Why: err.Error()})
		return nil
	}
	return gpus
}

// smiLog is the part read of nvidia-smi's document. The elements of UUID and
// serial number are not among it.
type smiLog struct {
	XMLName xml.Name `xml:"nvidia_smi_log"`
	GPUs    []smiGPU `xml:"gpu"`
}

type smiGPU struct {
	ID             string `xml:"id,attr"`
	Persistence    string `xml:"persistence_mode"`
	MIG            string `xml:"mig_mode>current_mig"`
	Virtualization string `xml:"gpu_virtualization_mode>virtualization_mode"`
	Generation     string `xml:"pci>pci_gpu_link_info>pcie_gen>current_link_gen"`
	MaxGeneration  string `xml:"pci>pci_gpu_link_info>pcie_gen>max_link_gen"`
	Width          string `xml:"pci>pci_gpu_link_info>link_widths>current_link_width"`
	MaxWidth       string `xml:"pci>pci_gpu_link_info>link_widths>max_link_width"`
	Memory         string `xml:"fb_memory_usage>total"`
	BAR1           string `xml:"bar1_memory_usage>total"`
	Protected      string `xml:"cc_protected_memory_usage>total"`
}

// ParseNVML reads the document that "nvidia-smi -q -x" prints. A field that it
// does not have, or words in another way, stays unknown.
func ParseNVML(b []byte) ([]NVMLGPU, error) {
	var log smiLog
	if err := xml.Unmarshal(b, &log); err != nil {
		return nil, fmt.Errorf("reading the document of nvidia-smi: %w", err)
	}
	gpus := []NVMLGPU{}
	for _, s := range log.GPUs {
		gpu := NVMLGPU{
			Address: busID(s.ID), MIG: s.MIG, Virtualization: s.Virtualization, Persistence: s.Persistence,
			LinkGeneration: number(s.Generation, ""), MaxLinkGeneration: number(s.MaxGeneration, ""),
			LinkWidth: number(s.Width, "x"), MaxLinkWidth: number(s.MaxWidth, "x"),
			Memory: mebibytes(s.Memory), BAR1: mebibytes(s.BAR1),
		}
		if strings.HasSuffix(s.Protected, " MiB") {
			size := mebibytes(s.Protected)
			gpu.Protected = &size
		}
		gpus = append(gpus, gpu)
	}
	slices.SortFunc(gpus, func(a, b NVMLGPU) int { return compareAddress(a.Address, b.Address) })
	return gpus, nil
}

// busID makes the address that sysfs has of one such as 00000000:4F:00.0, whose
// domain has always eight digits.
func busID(s string) string {
	return strings.TrimPrefix(strings.ToLower(s), "0000")
}

// number reads a number with a unit, 0 when it is none.
func number(s, unit string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(s, unit))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// mebibytes reads a size such as "24564 MiB", 0 when it is none.
func mebibytes(s string) uint64 { return uint64(number(s, " MiB")) << 20 }
