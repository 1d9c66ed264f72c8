// Package qemu boots an image under QEMU on a described machine and judges
// what came out: machines are data (YAML), the command line is a pure function
// of a machine, and so is the judgement of a finished run.
package qemu

import (
	"fmt"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	checks "mkp2pimg/firmware-checks"
)

// A Machine describes an emulated q35 computer: its memory, firmware, IOMMU and
// PCIe tree, and what an image booted on it is expected to report.
type Machine struct {
	// Version is the version of the description's format; it is 1.
	Version int `yaml:"version" json:"version"`
	// Name identifies the machine; a built-in machine is named as its file.
	Name string `yaml:"name" json:"name"`
	// Summary says in one line what the machine is for.
	Summary string `yaml:"summary" json:"summary"`
	// Memory is the size of the guest's memory.
	Memory Size `yaml:"memory" json:"memory"`
	// CPU is the processor that the guest sees, a model of QEMU's such as
	// EPYC-Genoa. It does not say that it is a virtual one, unless Hypervisor is
	// set. Empty: QEMU's default, which does.
	CPU        string `yaml:"cpu,omitempty" json:"cpu,omitempty"`
	Hypervisor bool   `yaml:"hypervisor,omitempty" json:"hypervisor,omitempty"`
	// CPUs is the number of virtual CPUs, spread evenly over the NUMA nodes.
	CPUs int `yaml:"cpus" json:"cpus"`
	// Nodes is the number of NUMA nodes (one per socket). Zero means that the
	// firmware describes none.
	Nodes int `yaml:"nodes,omitempty" json:"nodes,omitempty"`
	// Firmware is SeaBIOS when empty.
	Firmware Firmware `yaml:"firmware,omitempty" json:"firmware,omitempty"`
	// Above4G is the size of the window for BARs above 4 GiB, which UEFI takes from
	// the machine's settings. Zero is "Above 4G Decoding" off: neither UEFI nor the
	// kernel has one. Nil: as large as the firmware likes.
	Above4G *Size `yaml:"above4g,omitempty" json:"above4g,omitempty"`
	// IOMMU is none when empty.
	IOMMU IOMMU `yaml:"iommu,omitempty" json:"iommu,omitempty"`
	// Cmdline holds words added to the image's kernel command line.
	Cmdline []string `yaml:"cmdline,omitempty" json:"cmdline,omitempty"`
	// Report says how the report leaves the guest; virtio when empty.
	Report ReportPort `yaml:"report,omitempty" json:"report,omitempty"`
	// Watchdog adds an Intel 6300ESB watchdog whose expiry resets the guest.
	Watchdog bool `yaml:"watchdog,omitempty" json:"watchdog,omitempty"`
	// PCIe is the tree of devices on the root complex.
	PCIe []Device `yaml:"pcie" json:"pcie"`
	// Expect is what the image must report on this machine.
	Expect Expect `yaml:"expect" json:"expect"`
	// Knobs are the settings of the machine that can be turned.
	Knobs []Knob `yaml:"knobs,omitempty" json:"knobs,omitempty"`
	// Settings are the knobs that were turned, "rebar=off"; see [Machine.Set].
	Settings []string `yaml:"-" json:"-"`
}

// Firmware is the firmware that starts the guest.
type Firmware string

// The firmware QEMU can start the guest with.
const (
	SeaBIOS Firmware = "seabios"
	OVMF    Firmware = "ovmf"
)

// IOMMU is the emulated I/O memory management unit.
type IOMMU string

// The IOMMUs QEMU's q35 machine can have.
const (
	NoIOMMU    IOMMU = "none"
	IntelIOMMU IOMMU = "intel"
	AMDIOMMU   IOMMU = "amd"
)

// ReportPort is the port through which the report leaves the guest.
type ReportPort string

// The report leaves through the virtio-serial port named [ReportPortName], or
// through the second serial port, ttyS1.
const (
	VirtioReport ReportPort = "virtio"
	SerialReport ReportPort = "serial"
)

// ReportPortName is the name of the virtio-serial port on which the image
// looks for a reader of its report.
const ReportPortName = "org.mkp2pimg.report"

// A Device is a node of the PCIe tree.
type Device struct {
	Kind Kind `yaml:"kind" json:"kind"`
	// ID is QEMU's name of the device; made from kind and position when empty.
	ID string `yaml:"id,omitempty" json:"id,omitempty"`
	// Membar is the size of a testdev's 64-bit prefetchable BAR.
	Membar Size `yaml:"membar,omitempty" json:"membar,omitempty"`
	// Node is the NUMA node of a pxb.
	Node int `yaml:"node,omitempty" json:"node,omitempty"`
	// Window is how much a root port's window for BARs above 4 GiB holds at least.
	// Zero: what is below it needs, and no more.
	Window Size `yaml:"window,omitempty" json:"window,omitempty"`
	// Speed and Width are the generation and the lanes of a link: of a root port
	// what it can do, of a gpu what the link trained at. Zero: as much as the
	// device can.
	Speed int `yaml:"speed,omitempty" json:"speed,omitempty"`
	Width int `yaml:"width,omitempty" json:"width,omitempty"`
	Board `yaml:",inline"`
	// Below holds the devices on the secondary bus of a bridge.
	Below []Device `yaml:"below,omitempty" json:"below,omitempty"`
}

// Board is what makes one gpu differ from another.
type Board struct {
	// Model is a model of package fakegpu, such as rtx-4090.
	Model string `yaml:"model,omitempty" json:"model,omitempty"`
	// BAR is the size that the framebuffer BAR has when the machine starts, Largest
	// the largest in its Resizable BAR capability. Zero: as the model is sold, and
	// as its video BIOS offers at best.
	BAR     Size `yaml:"bar,omitempty" json:"bar,omitempty"`
	Largest Size `yaml:"largest,omitempty" json:"largest,omitempty"`
	// Fixed leaves the Resizable BAR capability out, as hypervisors do.
	Fixed bool `yaml:"fixed,omitempty" json:"fixed,omitempty"`
}

// Kind is the kind of a device.
type Kind string

// The kinds of devices.
const (
	// PXB is a PCIe expander: a root bus of its own, on a NUMA node.
	PXB Kind = "pxb"
	// RootPort has an ACS capability (0x005f in QEMU 7.2: SV TB RR CR UF DT).
	RootPort Kind = "root-port"
	// Upstream and Downstream are the ports of an x3130 switch. QEMU gives
	// them no ACS capability.
	Upstream   Kind = "upstream"
	Downstream Kind = "downstream"
	// TestDev is pci-testdev (1b36:0005), a stand-in for a GPU: a conventional
	// endpoint with one BAR of any size.
	TestDev Kind = "testdev"
	// GPU is an emulated GPU: a device that this program serves to QEMU.
	GPU Kind = "gpu"
	// VirtioNet is a NIC behind QEMU's user-mode network.
	VirtioNet Kind = "virtio-net"
	// VirtioRNG is an entropy source.
	VirtioRNG Kind = "virtio-rng"
)

// driver maps each kind to QEMU's name of the device model.
var driver = map[Kind]string{
	PXB:        "pxb-pcie",
	RootPort:   "pcie-root-port",
	Upstream:   "x3130-upstream",
	Downstream: "xio3130-downstream",
	TestDev:    "pci-testdev",
	GPU:        "vfio-user-pci",
	VirtioNet:  "virtio-net-pci",
	VirtioRNG:  "virtio-rng-pci",
}

// endpoint tells a device that ends the tree from a bridge.
func (k Kind) endpoint() bool {
	return k == TestDev || k == GPU || k == VirtioNet || k == VirtioRNG
}

// GPUs returns the emulated GPUs of the machine, in the order of the tree.
func (m *Machine) GPUs() []*Device {
	var gpus []*Device
	walk(m.PCIe, func(d *Device) {
		if d.Kind == GPU {
			gpus = append(gpus, d)
		}
	})
	return gpus
}

// walk calls fn with each device of a tree, a bridge before what is below it.
func walk(devices []Device, fn func(d *Device)) {
	for i := range devices {
		fn(&devices[i])
		walk(devices[i].Below, fn)
	}
}

// Expect is what the image must report on a machine.
type Expect struct {
	// Verdicts holds the final verdicts that are right; any when empty.
	Verdicts []checks.Verdict `yaml:"verdicts,omitempty" json:"verdicts,omitempty"`
	// Findings that the report must hold.
	Findings []ExpectedFinding `yaml:"findings,omitempty" json:"findings,omitempty"`
	// Trouble, if set, is all that is wrong: the report must hold findings with
	// these IDs and statuses, and no others that are neither passed nor skipped.
	Trouble *Trouble `yaml:"trouble,omitempty" json:"trouble,omitempty"`
	// AsIf is the verdict that the findings about emulated GPUs would give if they
	// were GPUs; any when empty.
	AsIf checks.Verdict `yaml:"as-if,omitempty" json:"as_if,omitempty"`
	// Paths are the predictions of the report for images of one driver release, each
	// for as many pairs of GPUs as it says: "535.261.03: no path; with edits and
	// options: PCIe BAR1 (6 GPU pairs)"; any when empty.
	Paths []string `yaml:"paths,omitempty" json:"paths,omitempty"`
	// BAR is the size that the framebuffer BAR of each emulated GPU has at the end;
	// any when zero.
	BAR Size `yaml:"bar,omitempty" json:"bar,omitempty"`
}

// Trouble lists the IDs of findings by status.
type Trouble struct {
	Fail    []checks.ID `yaml:"fail,omitempty" json:"fail,omitempty"`
	Warn    []checks.ID `yaml:"warn,omitempty" json:"warn,omitempty"`
	Unknown []checks.ID `yaml:"unknown,omitempty" json:"unknown,omitempty"`
}

// ExpectedFinding is met by a finding with this ID, one of these statuses and
// each of these pieces of text in the raw value of some evidence.
type ExpectedFinding struct {
	ID       string          `yaml:"id" json:"id"`
	Status   []checks.Status `yaml:"status" json:"status"`
	Evidence []string        `yaml:"evidence,omitempty" json:"evidence,omitempty"`
}

func (e ExpectedFinding) String() string {
	if len(e.Evidence) == 0 {
		return or(e.Status)
	}
	return or(e.Status) + " with " + strings.Join(e.Evidence, ", ")
}

// Size is a number of bytes, written with a binary suffix: 512M, 16G.
type Size uint64

// Binary multiples of a byte.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

var sizeUnits = []struct {
	suffix string
	size   Size
}{{"T", TiB}, {"G", GiB}, {"M", MiB}, {"K", KiB}}

// ParseSize reads a size such as 512M.
func ParseSize(s string) (Size, error) {
	unit := Size(1)
	digits := s
	for _, u := range sizeUnits {
		if before, ok := strings.CutSuffix(s, u.suffix); ok {
			unit, digits = u.size, before
			break
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n > uint64(^Size(0)/unit) {
		return 0, fmt.Errorf("%q is not a size: want a number with K, M, G or T, such as 16G", s)
	}
	return Size(n) * unit, nil
}

// String gives the size with the largest suffix that leaves it whole.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && s%u.size == 0 {
			return fmt.Sprintf("%d%s", s/u.size, u.suffix)
		}
	}
	return strconv.FormatUint(uint64(s), 10)
}

// MarshalText gives the size as [Size.String] does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalYAML reads a size as [ParseSize] does.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := ParseSize(n.Value)
	if err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %v", n.Line, err)}}
	}
	*s = v
	return nil
}
