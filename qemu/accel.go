package qemu

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"
)

// Accel is what runs the guest's instructions.
type Accel string

// The accelerators. Auto is KVM where it proves to work, else TCG.
const (
	Auto Accel = ""
	TCG  Accel = "tcg"
	KVM  Accel = "kvm"
)

// ParseAccel reads auto, tcg or kvm.
func ParseAccel(s string) (Accel, error) {
	switch s {
	case "auto", "":
		return Auto, nil
	case string(TCG), string(KVM):
		return Accel(s), nil
	}
	return "", fmt.Errorf("%q is not an accelerator: want auto, tcg or kvm", s)
}

const kvmDevice = "/dev/kvm"

// kvmProbe is the time within which a kernel under KVM has to print its
// first line. Hardware needs less than a second; a /dev/kvm without hardware
// behind it (a nested or paravirtual one) lets a kernel spin for minutes.
const kvmProbe = 10 * time.Second

var kernelLine = regexp.MustCompile(`^\[ *(\d+\.\d{6})\] `)

// accel settles Auto: the reason says why KVM was or was not taken.
func (e *Emulator) accel(ctx context.Context, want Accel, img Image) (got Accel, reason string, err error) {
	if want != Auto {
		return want, "asked for", nil
	}
	dev, err := os.OpenFile(kvmDevice, os.O_RDWR, 0)
	if err != nil {
		return TCG, fmt.Sprintf("no KVM: %v", err), nil
	}
	if err := dev.Close(); err != nil {
		return "", "", err
	}
	probe := &Machine{Version: 1, Name: "kvm-probe", Memory: 256 * MiB, CPUs: 1}
	kernel := Image{Kernel: img.Kernel, Cmdline: []string{"console=ttyS0", "panic=-1"}}
	run, err := e.boot(ctx, probe, kernel, bootOptions{accel: KVM, deadline: kvmProbe, until: kernelLine.MatchString})
	if err != nil {
		return "", "", err
	}
	return judgeProbe(run)
}

// judgeProbe takes KVM if the kernel spoke.
func judgeProbe(run *Run) (Accel, string, error) {
	for _, l := range run.Console {
		if kernelLine.MatchString(l.Text) {
			return KVM, "a kernel started under KVM", nil
		}
	}
	return TCG, fmt.Sprintf("%s opens, but no kernel starts under it: %s", kvmDevice, run.Exit.Detail), nil
}
