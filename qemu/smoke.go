package qemu

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"mkp2pimg/internal/sandbox"
)

// DefaultDeadline is the time a boot may take: a TCG boot of a full image needs
// less than ten seconds on an idle machine, ten times that on a busy one.
const DefaultDeadline = 5 * time.Minute

// Options says what to boot and how.
type Options struct {
	Image    Image
	Machine  *Machine
	Emulator *Emulator // the host's when nil
	Accel    Accel
	Deadline time.Duration // DefaultDeadline when zero
	// Keep is a directory for console.log, report.jsonl and qemu.log of the
	// run, in a folder of the machine's title; nothing is kept when empty.
	Keep string
	// Follow gets the guest's console as it comes, if not nil.
	Follow io.Writer
}

// cmdline adds to the image's command line what makes it run by itself: all it
// has, then off. The kernel's messages stay on, since a panic has to be seen; a
// panic resets the machine, which ends the run. The kernel's check that the
// timer interrupts within a counted loop fails now and then when a busy host
// runs the guest in pieces ("IO-APIC + timer doesn't work!"), so it is left out.
func (o Options) cmdline() []string {
	return append(slices.Clone(o.Image.Cmdline),
		"console=ttyS0", "loglevel=7", "panic=-1", "no_timer_check",
		"p2p.plan=full", "p2p.after=poweroff", "p2p.node="+o.Machine.Name)
}

// Argv returns the emulator's command line without running it; [Auto] counts as
// TCG. The files of a run (sockets, OVMF's variables) are named as if they were
// in a directory DIR.
func (o Options) Argv(ctx context.Context) ([]string, error) {
	e, err := o.emulator(ctx)
	if err != nil {
		return nil, err
	}
	_, kernel := e.bind(o.Image.Kernel, true)
	_, initrd := e.bind(o.Image.Initrd, true)
	b := Boot{Kernel: kernel, Initrd: initrd, Cmdline: o.cmdline(), Accel: o.Accel}.withDir("DIR")
	if o.Machine.Firmware == OVMF {
		if b.Code, _, err = e.ovmf(); err != nil {
			return nil, err
		}
	}
	return append([]string{e.Binary}, o.Machine.Args(b)...), nil
}

// Surroundings says, in comments of a shell, what the command line of [Options.Argv]
// finds around it in a run: where its files are, and who is at its sockets.
func (o Options) Surroundings() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# machine %s\n", o.Machine.Title())
	if o.Emulator != nil && !o.Emulator.Root.Host() {
		fmt.Fprintf(&b, "# in the root %s, where files of the host are below %s\n", o.Emulator.Root.Dir, inside)
	}
	fmt.Fprintf(&b, "# DIR/%s, DIR/%s, DIR/%s: UNIX sockets that smoke listens on\n", controlSocket, consoleSocket, reportSocket)
	if len(o.Machine.GPUs()) > 0 {
		b.WriteString("# DIR/gpu*: UNIX sockets at which smoke serves the functions of the emulated GPUs (vfio-user)\n")
	}
	if o.Machine.Firmware == OVMF {
		fmt.Fprintf(&b, "# DIR/%s: a copy of OVMF's variables\n", varsFile)
	}
	return b.String()
}

func (o Options) emulator(ctx context.Context) (*Emulator, error) {
	if o.Emulator != nil {
		return o.Emulator, nil
	}
	return Find(ctx, sandbox.Root{})
}

// Smoke boots the image on the machine and judges the run. An error means that
// no run took place; a run that went wrong is a Result with failed checks.
func Smoke(ctx context.Context, o Options) (*Result, error) {
	e, err := o.emulator(ctx)
	if err != nil {
		return nil, err
	}
	accel, reason, err := e.accel(ctx, o.Accel, o.Image)
	if err != nil {
		return nil, fmt.Errorf("probe of KVM: %w", err)
	}
	img := o.Image
	img.Cmdline = o.cmdline()
	b := bootOptions{accel: accel, deadline: o.Deadline, follow: o.Follow}
	if b.deadline == 0 {
		b.deadline = DefaultDeadline
	}
	if o.Keep != "" {
		b.keep = filepath.Join(o.Keep, o.Machine.Title())
	}
	run, err := e.boot(ctx, o.Machine, img, b)
	if err != nil {
		return nil, fmt.Errorf("boot of %s: %w", o.Machine.Title(), err)
	}
	return &Result{
		Version:     1,
		Machine:     o.Machine.Title(),
		Image:       o.Image,
		Emulator:    e.Version,
		Accel:       accel,
		AccelReason: reason,
		Argv:        run.Argv,
		Exit:        run.Exit,
		Times:       run.Times(),
		Checks:      Judge(o.Machine, run),
		Logs:        b.keep,
	}, nil
}

// overhead is what an emulator takes beside the memory of its guest: 300 MB were
// seen, with its translations of the guest's code.
const overhead = 384 * MiB

// Jobs is how many of the boots can go on at the same time: one for each
// processor, as far as the host's memory goes.
func Jobs(boots []Options) int {
	var largest Size
	for _, o := range boots {
		largest = max(largest, o.Machine.Memory)
	}
	jobs := runtime.NumCPU()
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		jobs = min(jobs, int(available(string(text))/(largest+overhead)))
	}
	return max(jobs, 1)
}

// available reads MemAvailable of /proc/meminfo (proc_meminfo(5)).
func available(meminfo string) Size {
	_, rest, _ := strings.Cut(meminfo, "MemAvailable:")
	var kib Size
	_, _ = fmt.Sscan(rest, &kib) // 0 where the kernel does not say
	return kib * KiB
}
