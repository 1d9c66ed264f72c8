package qemu

import (
	"fmt"
	"path"
	"strings"
)

// Boot is what one start of the emulator needs beside the machine. All paths
// are as the emulator sees them.
type Boot struct {
	Kernel  string
	Initrd  string   // none when empty
	Cmdline []string // the image's own; the machine's words follow
	Accel   Accel    // TCG when empty
	// Console, Report and Control are UNIX sockets to which the emulator
	// connects: first serial port, report port, and QMP monitor.
	Console, Report, Control string
	// Code and Vars are the flash images of OVMF; Vars is written to, so it
	// has to be a fresh copy: a boot over used variables may hang.
	Code, Vars string
}

// Names of the files of a run in its directory.
const (
	consoleSocket = "console"
	reportSocket  = "report"
	controlSocket = "control"
	varsFile      = "vars"
)

// withDir gives the files of a run the paths they have in its directory.
func (b Boot) withDir(dir string) Boot {
	b.Console = path.Join(dir, consoleSocket)
	b.Report = path.Join(dir, reportSocket)
	b.Control = path.Join(dir, controlSocket)
	b.Vars = path.Join(dir, varsFile)
	return b
}

// Args returns the emulator's arguments, without its name. The machine has to
// be one that [Parse] accepted.
func (m *Machine) Args(b Boot) []string {
	args := []string{
		"-name", "mkp2pimg-" + m.Name,
		"-nodefaults", "-no-user-config",
		"-display", "none",
		"-no-reboot",
	}
	add := func(opt string, value ...string) { args = append(args, opt, strings.Join(value, ",")) }

	if m.IOMMU == IntelIOMMU {
		add("-machine", "q35", "kernel-irqchip=split") // intremap=on needs it under KVM
	} else {
		add("-machine", "q35")
	}
	if b.Accel == KVM {
		add("-accel", "kvm")
		add("-cpu", "host")
	} else {
		add("-accel", "tcg", "thread=multi")
	}
	// The chipset's own watchdog resets the machine, as on a board; before QEMU 8.0
	// that is off by default.
	add("-global", "ICH9-LPC.noreboot=off")
	args = append(args, m.memory()...)
	if m.Firmware == OVMF {
		add("-drive", "if=pflash", "unit=0", "format=raw", "readonly=on", "file="+escape(b.Code))
		add("-drive", "if=pflash", "unit=1", "format=raw", "file="+escape(b.Vars))
	}

	args = append(args, "-kernel", b.Kernel)
	if b.Initrd != "" {
		args = append(args, "-initrd", b.Initrd)
	}
	words := append(append([]string{}, b.Cmdline...), m.Cmdline...)
	if m.Report == SerialReport {
		words = append(words, "p2p.stream=ttyS1")
	}
	args = append(args, "-append", strings.Join(words, " "))

	add("-chardev", "socket", "id=control", "path="+escape(b.Control))
	add("-mon", "chardev=control", "mode=control")
	add("-chardev", "socket", "id=console", "path="+escape(b.Console))
	add("-serial", "chardev:console")
	add("-chardev", "socket", "id=report", "path="+escape(b.Report))
	if m.Report == SerialReport {
		add("-serial", "chardev:report")
	}

	switch m.IOMMU {
	case IntelIOMMU:
		add("-device", "intel-iommu", "intremap=on")
	case AMDIOMMU:
		add("-device", "amd-iommu")
	}
	t := treeArgs{add: add}
	for i := range m.PCIe {
		t.device(&m.PCIe[i], "pcie.0")
	}
	// After the tree, so that the tree's device numbers don't depend on them.
	if m.Report != SerialReport {
		add("-device", "virtio-serial-pci", "id=vserial", "bus=pcie.0")
		add("-device", "virtserialport", "bus=vserial.0", "chardev=report", "name="+ReportPortName)
	}
	if m.Watchdog {
		add("-device", "i6300esb", "bus=pcie.0")
		add("-action", "watchdog=reset")
	}
	return args
}

func (m *Machine) memory() []string {
	args := []string{"-m", fmt.Sprintf("%dM", m.Memory/MiB)}
	if m.Nodes == 0 {
		return append(args, "-smp", fmt.Sprint(m.CPUs))
	}
	each := m.CPUs / m.Nodes
	args = append(args, "-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=1", m.CPUs, m.Nodes, each))
	for i := range m.Nodes {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=mem%d,size=%dM", i, m.Memory/MiB/Size(m.Nodes)),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d-%d,memdev=mem%d", i, i*each, (i+1)*each-1, i))
	}
	// 21 against 10 for a node's own memory is what two-socket boards state.
	for i := range m.Nodes {
		for j := range i {
			args = append(args, "-numa", fmt.Sprintf("dist,src=%d,dst=%d,val=21", j, i))
		}
	}
	return args
}

type treeArgs struct {
	add  func(opt string, value ...string)
	slot int // physical slot and chassis number of the last port
	bus  int // last bus number given to a pxb
}

func (t *treeArgs) device(d *Device, bus string) {
	props := []string{driver[d.Kind], "id=" + d.ID, "bus=" + bus}
	switch d.Kind {
	case PXB:
		// 32 buses for what lies below each.
		t.bus += 32
		props = append(props, fmt.Sprintf("bus_nr=%d", t.bus), fmt.Sprintf("numa_node=%d", d.Node))
	case RootPort, Downstream:
		t.slot++
		props = append(props, fmt.Sprintf("chassis=%d", t.slot), fmt.Sprintf("slot=%d", t.slot))
	case TestDev:
		if d.Membar != 0 {
			props = append(props, "membar="+d.Membar.String())
		}
	case VirtioNet:
		t.add("-netdev", "user", "id="+d.ID+".net")
		props = append(props, "netdev="+d.ID+".net", "romfile=")
	}
	t.add("-device", props...)
	for i := range d.Below {
		t.device(&d.Below[i], d.ID)
	}
}

// escape doubles the commas of a value, as QEMU's option syntax asks.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
