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
	"sync"
	"time"

	"mkp2pimg/internal/sandbox"
)

// Image is what is booted.
type Image struct {
	Kernel  string   `json:"kernel"` // host path of vmlinuz
	Initrd  string   `json:"initrd"` // host path
	Cmdline []string `json:"cmdline"`
	Driver  string   `json:"driver"`  // driver release in the image, 535.261.03
	Release string   `json:"release"` // kernel release, 6.12.117+deb12-amd64
}

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

	var binds []sandbox.Bind
	show := func(host string, readOnly bool) string {
		b, path := e.bind(host, readOnly)
		binds = append(binds, b)
		return path
	}
	b := Boot{Kernel: show(img.Kernel, true), Cmdline: img.Cmdline, Accel: o.accel}
	if img.Initrd != "" {
		b.Initrd = show(img.Initrd, true)
	}
	b = b.withSockets(show(dir, false))
	if o.accel == KVM {
		binds = append(binds, sandbox.Bind{Host: kvmDevice, Guest: kvmDevice})
	}
	if m.Firmware == OVMF {
		var vars string
		if b.Code, vars, err = e.ovmf(); err != nil {
			return nil, err
		}
		if err := copyFile(filepath.Join(dir, "vars"), vars); err != nil {
			return nil, fmt.Errorf("copy of the OVMF variables: %w", err)
		}
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(o.deadline, func() { cancel(errDeadline) })
	defer timer.Stop()

	start := time.Now()
	console := &stream{start: start, seen: func(text string) {
		if o.follow != nil {
			fmt.Fprintln(o.follow, text)
		}
		if strings.Contains(text, "Kernel panic - not syncing") {
			time.AfterFunc(panicGrace, func() { cancel(errPanic) })
		}
		if o.until != nil && o.until(text) {
			cancel(errSeen)
		}
	}}
	report := &stream{start: start}
	control := &monitor{stopped: func() { cancel(errStopped) }}

	readers := []struct {
		name string
		log  string
		read func(io.ReadWriter, io.Writer)
	}{
		{"console", "console.log", console.read},
		{"report", "report.jsonl", report.read},
		{"control", "", control.read},
	}
	var wg sync.WaitGroup
	var closers []io.Closer
	defer func() {
		for _, c := range closers {
			c.Close() //nolint:errcheck // on the way out
		}
	}()
	for _, reader := range readers {
		ln, err := listen(ctx, filepath.Join(dir, reader.name))
		if err != nil {
			return nil, err
		}
		closers = append(closers, ln)
		log, err := keepFile(o.keep, reader.log)
		if err != nil {
			return nil, err
		}
		wg.Go(func() {
			defer log.Close() //nolint:errcheck // a copy; the run has the lines
			conn, err := ln.Accept()
			if err != nil {
				return // closed: the emulator never came
			}
			defer conn.Close() //nolint:errcheck // read to its end
			reader.read(conn, log)
		})
	}

	r := &Run{Machine: m.Name, Accel: o.accel, Argv: append([]string{e.Binary}, m.Args(b)...)}
	var said bytes.Buffer
	cmd := sandbox.Cmd{Root: e.Root, Binds: binds, Argv: r.Argv, Stdout: &said, Stderr: &said}
	err = cmd.Run(ctx)
	r.Took = time.Since(start)
	for _, c := range closers {
		c.Close() //nolint:errcheck // ends the Accept of a reader whose writer never came
	}
	wg.Wait()

	r.Console, r.Report = console.lines, report.lines
	r.Stderr = strings.TrimSpace(said.String())
	r.Exit = exit(err, context.Cause(ctx), control.reason, r.Stderr, o.deadline)
	if log, err := keepFile(o.keep, "qemu.log"); err == nil {
		fmt.Fprintf(log, "%s\n%s\n", Quote(r.Argv), r.Stderr)
		err = log.Close()
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// exit judges how a run ended: from the error of the emulator's process, the
// cause for which it was killed, and the reason of the monitor's SHUTDOWN event.
func exit(err, cause error, reason, stderr string, deadline time.Duration) Exit {
	switch {
	case errors.Is(cause, errDeadline):
		return Exit{Deadline, fmt.Sprintf("killed after %v", deadline)}
	case errors.Is(cause, errPanic):
		return Exit{Panic, "the kernel panicked and did not reset the machine"}
	case errors.Is(cause, errStopped):
		return Exit{Stopped, "the emulator stopped the guest: an instruction it can't run, or an error of the accelerator"}
	case cause != nil && err != nil:
		return Exit{Interrupted, cause.Error()}
	case err != nil:
		return Exit{Failed, strings.TrimSuffix("the emulator ended: "+err.Error()+": "+lastLine(stderr), ": ")}
	case reason == "guest-shutdown":
		return Exit{Kind: PowerOff}
	case reason == "guest-reset":
		return Exit{Reset, "the guest reset the machine"}
	case reason == "":
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
