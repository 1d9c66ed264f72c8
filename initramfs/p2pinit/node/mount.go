package node

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
)

// mounts are the file systems that the run needs. u-root's init has mounted most
// of them before (pkg/libinit, Namespace); one that is mounted is left as it is.
var mounts = []struct {
	source, target, fstype, data string
	optional                     bool // for a kernel or machine without it
}{
	{source: "proc", target: "/proc", fstype: "proc"},
	{source: "sysfs", target: "/sys", fstype: "sysfs"},
	{source: "devtmpfs", target: "/dev", fstype: "devtmpfs"},
	{source: "devpts", target: "/dev/pts", fstype: "devpts", data: "ptmxmode=666", optional: true},
	{source: "tmpfs", target: "/run", fstype: "tmpfs", data: "mode=0755"},
	{source: "tmpfs", target: "/tmp", fstype: "tmpfs"},
	{source: "efivarfs", target: "/sys/firmware/efi/efivars", fstype: "efivarfs", optional: true},
	{source: "debugfs", target: "/sys/kernel/debug", fstype: "debugfs", optional: true},
	{source: "securityfs", target: "/sys/kernel/security", fstype: "securityfs", optional: true},
}

// mount makes the file systems available, starts the report file and verifies
// that the image was unpacked whole.
func (n *Node) mount(_ context.Context, t *stage.Task) error {
	mounted := n.mounted()
	for _, m := range mounts {
		if mounted[m.target] {
			continue
		}
		t.Doing("mounting %s", m.target)
		// The kernel makes the mount points below /sys itself, where they apply.
		if strings.HasPrefix(m.target, "/sys/") {
			if _, err := os.Stat(n.path(m.target)); err != nil {
				continue
			}
		} else if err := os.MkdirAll(n.path(m.target), 0o755); err != nil {
			return fmt.Errorf("mount point: %w", err)
		}
		err := n.System.Mount(m.source, m.target, m.fstype, m.data)
		switch {
		case err != nil && m.optional:
			t.Log(report.Debug, "mount %s on %s: %v", m.fstype, m.target, err)
		case err != nil:
			return fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err)
		}
	}
	if err := n.openReportFile(); err != nil {
		t.Log(report.Failed, "the report is not kept in a file: %v", err)
	}
	t.Doing("verifying the image")
	text, err := n.verify()
	d := report.Diagnosis{Verdict: ImageIntact, Type: report.DiagnosisPass, Message: text}
	switch {
	case err != nil && n.params.Driver == params.Loaded:
		// The installed system's libraries may stand in the place of the image's.
		d.Type, d.Message, err = report.DiagnosisUnknown, "some files are not the image's: "+err.Error(), nil
	case err != nil:
		d.Type, d.Message = report.DiagnosisFail, err.Error()
	}
	t.Diagnosis(d)
	t.Summary("%s", d.Message)
	return err
}

// ImageIntact is the verdict of the diagnosis about the files of the image.
const ImageIntact = "IMAGE-INTACT"

func (n *Node) mounted() map[string]bool {
	targets := map[string]bool{}
	f, err := os.Open(n.path("proc/self/mounts"))
	if err != nil {
		return targets // nothing is mounted yet
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if fields := strings.Fields(s.Text()); len(fields) > 1 {
			targets[fields[1]] = true
		}
	}
	return targets
}

// verify compares the image's files with their list, by presence and size: a
// kernel short of memory unpacks a truncated image and starts init all the same.
func (n *Node) verify() (string, error) {
	if n.imageErr != nil {
		return "", fmt.Errorf("image incomplete: its list of files can't be used: %w", n.imageErr)
	}
	var size int64
	for _, f := range n.image.Files {
		size += f.Size
	}
	if err := n.image.Verify(n.fs(), false); err != nil {
		lines := strings.Split(err.Error(), "\n")
		more := ""
		if len(lines) > 1 {
			more = fmt.Sprintf(" (and %d more files)", len(lines)-1)
		}
		return "", fmt.Errorf("image incomplete: %s%s; give the machine at least %d MiB of memory, or boot an undamaged initrd",
			lines[0], more, memoryNeeded(size))
	}
	return fmt.Sprintf("%d files, %d MiB, all present with their sizes", len(n.image.Files), size>>20), nil
}

// memoryNeeded is the memory in MiB that a machine needs to unpack an image of
// this size: the initramfs is a tmpfs, which takes half of the memory at most
// (mm/shmem.c, shmem_default_max_blocks), and 256 MiB for the kernel and the
// packed image; rounded up to 256.
func memoryNeeded(size int64) int64 {
	const mib, step = 1 << 20, 256
	need := (2*size+mib-1)/mib + step
	return (need + step - 1) / step * step
}
