// Package ending does what comes after a run: it switches the machine off, leaves
// the result on the screen or gives a person a shell on each console.
//
// It never comes back. When p2pinit ends, so does u-root's init: its fallback
// shell writes through pipes to terminals which were hung up with p2pinit's
// session, dies of that, and the kernel panics for want of an init.
package ending

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/internal/report"
)

// System is the part of the kernel that an ending uses.
type System interface {
	Leave(after params.After) error           // power off or reboot; returns only on failure
	Terminal(path string) (*os.File, error)   // opens a terminal in its usual mode
	Shell(program string, tty *os.File) error // runs a shell that owns the terminal until it ends
}

// Consoles are the names in /dev of the kernel's consoles, the main one last;
// /dev/console stands for them when the kernel doesn't list them.
func Consoles(root string) []string {
	text, err := os.ReadFile(filepath.Join(root, "sys/class/tty/console/active"))
	if names := strings.Fields(string(text)); err == nil && len(names) > 0 {
		return names
	}
	return []string{"console"}
}

// Ending is the end of a run on a machine.
type Ending struct {
	Root   string // "/" on the machine
	System System
}

// Do does what comes after the run, until the context ends. A machine that can't
// be switched off gets shells.
func (e *Ending) Do(ctx context.Context, after params.After) {
	switch after {
	case params.Hold:
		<-ctx.Done()
		return
	case params.PowerOff, params.Reboot:
		err := e.System.Leave(after)
		e.Say("%s failed: %v", after, err)
	}
	var all sync.WaitGroup
	for _, name := range Consoles(e.Root) {
		all.Go(func() { e.shells(ctx, name) })
	}
	all.Wait()
}

const (
	flushLimit = 20 * time.Second // for a message on slow consoles
	quick      = 10 * time.Second // a shell that ends sooner may not have had a terminal that works
	firstPause = time.Second
	lastPause  = time.Minute
)

// shells gives a shell on one console again and again. The terminal is opened for
// each: the kernel hangs it up when a shell, its session's leader, ends.
func (e *Ending) shells(ctx context.Context, name string) {
	pause := firstPause
	for {
		began := time.Now()
		err := e.shell(name)
		if err != nil {
			e.Say("shell on %s: %v", name, err)
		}
		if time.Since(began) >= quick {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

func (e *Ending) shell(name string) error {
	tty, err := e.System.Terminal(e.path("dev/" + name))
	if err != nil {
		return err
	}
	defer tty.Close()
	if _, err := io.WriteString(tty, greeting(name)); err != nil {
		return err
	}
	return e.System.Shell(e.path(layout.Shell), tty)
}

func greeting(name string) string {
	return fmt.Sprintf("\np2pinit: a shell on %s. \"poweroff\" switches the machine off, \"shutdown -r\" restarts it; \"exit\" starts a new shell.\n", name)
}

// Say writes a line to all consoles, opened anew.
func (e *Ending) Say(format string, args ...any) {
	var s report.Stream
	for _, name := range Consoles(e.Root) {
		if tty, err := e.System.Terminal(e.path("dev/" + name)); err == nil {
			s.Attach(name, tty)
		}
	}
	_, _ = fmt.Fprintf(&s, "\np2pinit: "+format+"\n", args...) // a Stream takes everything
	s.Close(flushLimit)                                        // there is no other place to tell of a console that takes nothing
}

func (e *Ending) path(name string) string { return filepath.Join(e.Root, name) }
