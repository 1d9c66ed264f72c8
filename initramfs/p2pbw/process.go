package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"mkp2pimg/internal/measure"
)

const (
	// grace is how much longer than its own timeout a child may be silent, to
	// load the driver and to say itself what hangs.
	grace = 15 * time.Second
	// killTime is how long a killed child may take to end. One that is stuck in
	// the kernel never does.
	killTime = 5 * time.Second
)

// A process is a running child.
type process struct {
	cmd    *exec.Cmd     // nil if it could not be started
	heard  chan struct{} // holds a value if a message came in since the last look
	exited chan struct{} // closed when the child has ended
	err    error         // of starting, reading or waiting; valid after exited

	mu   sync.Mutex
	last message
	tail tail
}

// An outcome is what became of a child.
type outcome struct {
	last message
	err  error               // why last is not all, or nil
	kind measure.ProblemKind // of err
}

// problem returns why the child's result is not whole, or nil.
func (o outcome) problem() *measure.Problem {
	switch {
	case o.err != nil:
		return &measure.Problem{Kind: o.kind, Text: o.err.Error()}
	case o.last == message{}:
		return &measure.Problem{Kind: measure.Crashed, Text: "the measuring process said nothing"}
	default:
		return o.last.Problem
	}
}

var errInterrupted = errors.New("the run was interrupted")

// startProcess starts this program with args and with env besides its own
// environment. It is killed when ctx ends. An error to start it is reported by
// wait.
func startProcess(ctx context.Context, args, env []string) *process {
	p := &process{heard: make(chan struct{}, 1), exited: make(chan struct{})}
	out, err := p.start(ctx, args, env)
	if err != nil {
		p.cmd, p.err = nil, err
		close(p.exited)
		return p
	}
	go func() {
		err := p.read(out)
		p.err = errors.Join(p.cmd.Wait(), err)
		close(p.exited)
	}()
	return p
}

func (p *process) start(ctx context.Context, args, env []string) (io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.cmd = exec.CommandContext(ctx, self, args...)
	p.cmd.Cancel = func() error {
		p.kill()
		return nil
	}
	p.cmd.WaitDelay = killTime
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = &p.tail
	// A group of its own keeps a ^C of the terminal away from it, and lets kill
	// reach what libcuda may have started.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return out, p.cmd.Start()
}

// read keeps the last message of a child.
func (p *process) read(out io.Reader) error {
	dec := json.NewDecoder(out)
	for {
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("its output: %w", err)
		}
		p.mu.Lock()
		p.last = m
		p.mu.Unlock()
		select {
		case p.heard <- struct{}{}:
		default:
		}
	}
}

// loaded tells whether the child's last message was that it loads a link.
func (p *process) loaded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.last
	switch {
	case m.Pair != nil:
		return measure.Loading(m.Pair.Step)
	case m.Device != nil:
		return measure.Loading(m.Device.Step)
	case m.Traffic != nil:
		return measure.Loading(m.Traffic.Step)
	}
	return false
}

// wait waits for the child to end. It kills the child if nothing is heard from it
// for longer than timeout, or if ctx ends, and returns soon after that even if
// the child can't be killed.
func (p *process) wait(ctx context.Context, timeout time.Duration) outcome {
	var o outcome
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-p.heard:
			timer.Reset(timeout)
			waiting = true
		case <-p.exited:
			switch {
			case ctx.Err() != nil:
				o.err, o.kind = errInterrupted, measure.Interrupted
			case p.err != nil:
				o.err = fmt.Errorf("the measuring process failed: %w%s", p.err, p.tail.text())
				o.kind = measure.Crashed
			}
		case <-timer.C:
			o.err = fmt.Errorf("nothing heard from the measuring process for %v", timeout)
			o.kind = measure.Timeout
		case <-ctx.Done():
			o.err, o.kind = errInterrupted, measure.Interrupted
		}
	}
	if o.kind == measure.Timeout || o.kind == measure.Interrupted {
		p.kill()
		select {
		case <-p.exited:
		case <-time.After(killTime):
			o.err = fmt.Errorf("%w and can't be killed: it is stuck in the kernel", o.err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o.last = p.last
	return o
}

// kill ends the child and does not wait for that.
func (p *process) kill() {
	if p.cmd != nil {
		// It fails if the child has ended already, which is all that matters.
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const tailSize = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b...)
	if n := len(t.kept) - tailSize; n > 0 {
		t.kept = append([]byte(nil), t.kept[n:]...)
	}
	return len(b), nil
}

// text returns what was kept, to be put behind an error.
func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.kept)); s != "" {
		return "; it wrote: " + s
	}
	return ""
}
