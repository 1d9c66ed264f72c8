package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mkp2pimg/internal/sandbox"
)

// Line is a line that came out of the guest.
type Line struct {
	At   time.Duration // arrival, since the emulator was started
	Text string        // without its end
	Cut  bool          // the stream ended before the line did
}

// Run is what one boot left behind.
type Run struct {
	Machine string
	Argv    []string
	Accel   Accel
	Console []Line
	Report  []Line
	BARs    []Size // of the framebuffers of emulated GPUs, as the guest left them
	Stderr  string // the emulator's own complaints
	Exit    Exit
	Took    time.Duration // from the emulator's start to its end
}

// Exit says how a run ended.
type Exit struct {
	Kind   ExitKind `json:"kind"`
	Detail string   `json:"detail,omitempty"`
}

// ExitKind is the kind of an [Exit].
type ExitKind string

// The ways a run ends.
const (
	PowerOff    ExitKind = "power-off"   // the guest switched itself off
	Reset       ExitKind = "reset"       // the guest, or its watchdog, reset the machine
	Panic       ExitKind = "panic"       // the kernel panicked and stayed there
	Deadline    ExitKind = "deadline"    // killed when its time was over
	Stopped     ExitKind = "stopped"     // the emulator paused the guest for an error of its own
	Interrupted ExitKind = "interrupted" // the caller gave up
	Failed      ExitKind = "failed"      // the emulator failed, or never started the guest
)

// bootOptions is what a boot needs beside emulator, machine and image.
type bootOptions struct {
	accel    Accel
	deadline time.Duration
	follow   io.Writer                 // gets the console as it comes, if not nil
	keep     string                    // directory for console.log, report.jsonl and qemu.log, if not empty
	until    func(console string) bool // ends the run early, if not nil
}

// Causes for which a run is ended from outside.
var (
	errDeadline = errors.New("deadline")
	errPanic    = errors.New("kernel panic")
	errStopped  = errors.New("guest stopped by the emulator")
	errSeen     = errors.New("seen what was waited for")
)

// kernelPanic begins the kernel's last words (kernel/panic.c).
const kernelPanic = "Kernel panic - not syncing"

// panicGrace is how long a panicked kernel may go on printing its trace.
const panicGrace = 2 * time.Second

// boot runs the image on the machine to its end, whatever that is. The error
// tells that the run could not be set up.
func (e *Emulator) boot(ctx context.Context, m *Machine, img Image, o bootOptions) (*Run, error) {
	dir, err := socketDir()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // temporary
	b, binds, err := e.stage(m, img, o.accel, dir)
	if err != nil {
		return nil, err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(o.deadline, func() { cancel(errDeadline) }).Stop()

	start := time.Now()
	console := &stream{start: start, seen: func(text string) {
		if o.follow != nil {
			fmt.Fprintln(o.follow, text)
		}
		if strings.Contains(text, kernelPanic) {
			time.AfterFunc(panicGrace, func() { cancel(errPanic) })
		}
		if o.until != nil && o.until(text) {
			cancel(errSeen)
		}
	}}
	report := &stream{start: start}
	control := &monitor{stopped: func() { cancel(errStopped) }}

	ports := ports{dir: dir, keep: o.keep}
	defer ports.close()
	if err := errors.Join(
		ports.open(ctx, consoleSocket, "console.log", console.read),
		ports.open(ctx, reportSocket, "report.jsonl", report.read),
		ports.open(ctx, controlSocket, "", control.read),
	); err != nil {
		return nil, err
	}

	gpus, err := m.serveGPUs(ctx, dir)
	defer gpus.stop() //nolint:errcheck // seen below, unless the run never began
	if err != nil {
		return nil, err
	}

	run := &Run{Machine: m.Name, Accel: o.accel, Argv: append([]string{e.Binary}, m.Args(b)...)}
	var said bytes.Buffer
	cmd := sandbox.Cmd{Root: e.Root, Binds: binds, Argv: run.Argv, Stdout: &said, Stderr: &said}
	err = cmd.Run(ctx)
	run.Took = time.Since(start)
	ports.close()
	run.BARs = gpus.bars()
	run.Stderr = strings.TrimSpace(said.String())
	if err := gpus.stop(); err != nil {
		run.Stderr = strings.TrimSpace(run.Stderr + "\n" + err.Error())
	}

	run.Console, run.Report = console.lines, report.lines
	run.Exit = exit(err, context.Cause(ctx), control.reason, run.Stderr, o.deadline)
	return run, keep(o.keep, "qemu.log", Quote(run.Argv)+"\n"+run.Stderr+"\n")
}

// stage gathers what the emulator has to see: dir with the sockets, the image,
// and a fresh copy of OVMF's variables.
func (e *Emulator) stage(m *Machine, img Image, accel Accel, dir string) (Boot, []sandbox.Bind, error) {
	var binds []sandbox.Bind
	show := func(host string, readOnly bool) string {
		b, path := e.bind(host, readOnly)
		binds = append(binds, b)
		return path
	}
	b := Boot{Kernel: show(img.Kernel, true), Cmdline: img.Cmdline, Accel: accel}.withDir(show(dir, false))
	if img.Initrd != "" {
		b.Initrd = show(img.Initrd, true)
	}
	if accel == KVM {
		binds = append(binds, sandbox.Bind{Host: kvmDevice, Guest: kvmDevice})
	}
	if m.Firmware == OVMF {
		code, vars, err := e.ovmf()
		if err != nil {
			return b, nil, err
		}
		b.Code = code
		if err := copyFile(filepath.Join(dir, varsFile), vars); err != nil {
			return b, nil, fmt.Errorf("copy of the OVMF variables: %w", err)
		}
	}
	return b, binds, nil
}

// exit judges how a run ended: from the error of the emulator's process, the
// cause for which it was killed, and the reason of the monitor's SHUTDOWN event.
func exit(err, cause error, reason, stderr string, deadline time.Duration) Exit {
	if err != nil {
		switch {
		case errors.Is(cause, errDeadline):
			return Exit{Deadline, fmt.Sprintf("killed after %v", deadline)}
		case errors.Is(cause, errPanic):
			return Exit{Panic, "the kernel panicked and did not reset the machine"}
		case errors.Is(cause, errStopped):
			return Exit{Stopped, "the emulator stopped the guest: an instruction it can't run, or an error of the accelerator"}
		case cause != nil:
			return Exit{Interrupted, cause.Error()}
		}
		return Exit{Failed, strings.TrimSuffix("the emulator ended: "+err.Error()+": "+lastLine(stderr), ": ")}
	}
	switch reason {
	case "guest-shutdown":
		return Exit{Kind: PowerOff}
	case "guest-reset":
		return Exit{Reset, "the guest reset the machine"}
	case watchdogReset:
		return Exit{Reset, "the watchdog reset the machine"}
	case "":
		return Exit{Failed, "the emulator ended without saying why"}
	}
	return Exit{Failed, "the emulator ended: " + reason}
}

// Quote writes a command line for a shell.
func Quote(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`&|;<>()*?[]#~{}!") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
