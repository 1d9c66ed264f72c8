package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/ending"
)

// attachConsoles puts what the run says on every console of the kernel.
func (n *Node) attachConsoles() {
	for _, name := range ending.Consoles(n.Root) {
		f, err := os.OpenFile(n.path(filepath.Join("dev", name)), os.O_WRONLY, 0)
		if err != nil {
			n.warnings = append(n.warnings, fmt.Sprintf("console: %v", err))
			continue
		}
		n.console.Attach(name, f)
	}
}

// openReportFile starts the file that keeps the report.
func (n *Node) openReportFile() error {
	if err := os.MkdirAll(filepath.Dir(n.path(ReportFile)), 0o755); err != nil {
		return err
	}
	f, err := os.Create(n.path(ReportFile))
	if err != nil {
		return err
	}
	n.report.Attach("file /"+ReportFile, f)
	return nil
}

// attachStreams attaches the report to the streams that exist by now and were not
// attached before: the virtio port appears when its driver is loaded.
func (n *Node) attachStreams() {
	ports, _ := filepath.Glob(n.path("sys/class/virtio-ports/*/name")) // the pattern is well formed
	for _, p := range ports {
		if name, err := os.ReadFile(p); err == nil && strings.TrimSpace(string(name)) == PortName {
			n.attach(filepath.Base(filepath.Dir(p)), 0)
		}
	}
	for _, s := range n.params.Stream {
		n.attach(s.Device, s.Baud)
	}
	n.attachStick()
}

// attachStick attaches the report to the partition for reports of a stick.
func (n *Node) attachStick() {
	if n.stick != nil {
		return
	}
	device := deliver.FindStick(n.fs())
	if device == "" {
		return // not there yet, or none
	}
	n.stick = &deliver.Stick{Root: n.Root, Device: device, Node: n.params.Node, Mounter: n.System}
	n.report.Attach("stick "+device, n.stick)
}

// kept are the files that hold the report, for a person.
func (n *Node) kept() []string {
	files := []string{"/" + ReportFile}
	if n.stick == nil {
		return files
	}
	if name := n.stick.File(); name != "" {
		files = append(files, fmt.Sprintf("%s in partition %s (%s)", name, layout.ReportPartition, n.stick.Device))
	}
	return files
}

func (n *Node) attach(device string, baud int) {
	if n.attached[device] {
		return
	}
	path := n.path(filepath.Join("dev", device))
	if _, err := os.Stat(path); err != nil {
		return // not there yet
	}
	n.attached[device] = true
	w, err := n.System.Serial(path, baud)
	if err != nil {
		n.warn("report stream: %v", err)
		return
	}
	n.report.Attach("stream "+device, w)
}
