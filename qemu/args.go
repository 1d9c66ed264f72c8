package qemu

import (
	"encoding/json"
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
	// GPUs is the directory of the sockets on which this program serves the
	// functions of emulated GPUs; see [gpuSocket].
	GPUs string
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
	b.GPUs = dir
	return b
}

// gpuSocket names the socket of a function of the emulated GPU with this number
// in the order of the tree.
func gpuSocket(gpu, function int) string { return fmt.Sprintf("gpu%d.%d", gpu, function) }

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

	machine := []string{"q35"}
	if m.IOMMU == IntelIOMMU {
		machine = append(machine, "kernel-irqchip=split") // intremap=on needs it under KVM
	}
	if len(m.GPUs()) > 0 && m.Nodes == 0 {
		machine = append(machine, "memory-backend="+sharedMemory)
	}
	add("-machine", machine...)
	if b.Accel == KVM {
		add("-accel", "kvm")
	} else {
		add("-accel", "tcg", "thread=multi")
	}
	switch {
	case m.CPU != "" && m.Hypervisor:
		add("-cpu", m.CPU)
	case m.CPU != "":
		add("-cpu", m.CPU, "hypervisor=off")
	case b.Accel == KVM:
		add("-cpu", "host")
	}
	// The chipset's own watchdog resets the machine, as on a board; before QEMU 8.0
	// that is off by default.
	add("-global", "ICH9-LPC.noreboot=off")
	args = append(args, m.memory()...)
	if m.Firmware == OVMF {
		add("-drive", "if=pflash", "unit=0", "format=raw", "readonly=on", "file="+escape(b.Code))
		add("-drive", "if=pflash", "unit=1", "format=raw", "file="+escape(b.Vars))
	}
	if m.Above4G != nil {
		add("-global", fmt.Sprintf("q35-pcihost.pci-hole64-size=%d", *m.Above4G))
		add("-fw_cfg", "name=opt/ovmf/X-PciMmio64Mb", fmt.Sprintf("string=%d", *m.Above4G/MiB))
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
		iommu := []string{"intel-iommu", "intremap=on"}
		if len(m.GPUs()) > 0 {
			// A device outside QEMU has to hear of every change of the tables.
			iommu = append(iommu, "caching-mode=on")
		}
		add("-device", iommu...)
	case AMDIOMMU:
		iommu := []string{"amd-iommu"}
		if len(m.GPUs()) > 0 {
			iommu = append(iommu, "dma-remap=on")
		}
		add("-device", iommu...)
	}
	t := treeArgs{add: add, gpus: len(m.GPUs()), dir: b.GPUs}
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

// sharedMemory is the guest's memory where devices outside QEMU reach it.
const sharedMemory = "mem"

func (m *Machine) memory() []string {
	args := []string{"-m", fmt.Sprintf("%dM", m.Memory/MiB)}
	backend, share := "memory-backend-ram", ""
	if len(m.GPUs()) > 0 {
		backend, share = "memory-backend-memfd", ",share=on"
	}
	if m.Nodes == 0 {
		args = append(args, "-smp", fmt.Sprint(m.CPUs))
		if share != "" {
			args = append(args, "-object", fmt.Sprintf("%s,id=%s,size=%dM%s", backend, sharedMemory, m.Memory/MiB, share))
		}
		return args
	}
	each := m.CPUs / m.Nodes
	args = append(args, "-smp", fmt.Sprintf("%d,sockets=%d,cores=%d,threads=1", m.CPUs, m.Nodes, each))
	for i := range m.Nodes {
		args = append(args,
			"-object", fmt.Sprintf("%s,id=mem%d,size=%dM%s", backend, i, m.Memory/MiB/Size(m.Nodes), share),
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
	gpus int // how many there are
	gpu  int // number of the next one
	dir  string
}

func (t *treeArgs) device(d *Device, bus string) {
	if d.Kind == GPU {
		t.emulated(d, bus)
		return
	}
	props := []string{driver[d.Kind], "id=" + d.ID, "bus=" + bus}
	switch d.Kind {
	case PXB:
		// 32 buses for what lies below each.
		t.bus += 32
		props = append(props, fmt.Sprintf("bus_nr=%d", t.bus), fmt.Sprintf("numa_node=%d", d.Node))
	case RootPort, Downstream:
		t.slot++
		props = append(props, fmt.Sprintf("chassis=%d", t.slot), fmt.Sprintf("slot=%d", t.slot))
		switch {
		case d.Window != 0:
			props = append(props, fmt.Sprintf("pref64-reserve=%d", d.Window))
		case t.gpus > 0:
			// OVMF gives a slot that takes cards at run time room to spare; those of
			// GPUs are none.
			props = append(props, "hotplug=off")
		}
		if d.Speed != 0 {
			props = append(props, "x-speed="+gigatransfers[d.Speed])
		}
		if d.Width != 0 {
			props = append(props, fmt.Sprintf("x-width=%d", d.Width))
		}
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

// gigatransfers are the speeds of PCIe generations as QEMU words them.
var gigatransfers = [...]string{1: "2_5", 2: "5", 3: "8", 4: "16", 5: "32", 6: "64"}

// emulated adds the functions of an emulated GPU. A socket's address has parts,
// which QEMU takes in its JSON syntax only.
func (t *treeArgs) emulated(d *Device, bus string) {
	n := d.functions()
	for f := range n {
		props := map[string]any{
			"driver": driver[GPU], "id": d.ID, "bus": bus, "addr": fmt.Sprintf("0.%d", f),
			"socket": map[string]string{"type": "unix", "path": path.Join(t.dir, gpuSocket(t.gpu, f))},
		}
		if f > 0 {
			props["id"] = fmt.Sprintf("%s.%d", d.ID, f)
		}
		if f == 0 && n > 1 {
			props["multifunction"] = true
		}
		text, err := json.Marshal(props)
		if err != nil {
			panic(err) // strings, numbers and a bool
		}
		t.add("-device", string(text))
	}
	t.gpu++
}

// escape doubles the commas of a value, as QEMU's option syntax asks.
func escape(value string) string { return strings.ReplaceAll(value, ",", ",,") }
