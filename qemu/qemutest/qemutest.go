// Package qemutest runs machines of QEMU for tests that wait for what a console
// says.
package qemutest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Machine is one that runs. It ends with the test, if not before.
type Machine struct {
	console string
	began   time.Time
	cmd     *exec.Cmd
	ended   chan error
}

// Start starts QEMU with two processors, without a display, and with the first serial
// port in a file; args attach the rest. The test is skipped where QEMU is not
// installed.
func Start(t *testing.T, args ...string) *Machine {
	t.Helper()
	qemu, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skip("qemu-system-x86_64 is not installed")
	}
	m := &Machine{console: filepath.Join(t.TempDir(), "console"), ended: make(chan error, 1)}
	m.cmd = exec.CommandContext(t.Context(), qemu, append([]string{
		"-machine", "q35", "-accel", "tcg,thread=multi", "-smp", "2", "-display", "none", "-serial", "file:" + m.console,
	}, args...)...)
	m.cmd.Stderr = os.Stderr
	m.began = time.Now()
	require.NoError(t, m.cmd.Start())
	go func() { m.ended <- m.cmd.Wait() }()
	t.Cleanup(m.Kill)
	return m
}

// Said is what the console said so far.
func (m *Machine) Said() []byte {
	text, _ := os.ReadFile(m.console) // not there before it says anything
	return text
}

// Wait waits until the console says a text. A machine that hangs never does; the
// test's own deadline ends it.
func (m *Machine) Wait(t *testing.T, text string) {
	t.Helper()
	for {
		said := m.Said()
		if bytes.Contains(said, []byte(text)) {
			t.Logf("%q after %.1f s", text, time.Since(m.began).Seconds())
			return
		}
		select {
		case err := <-m.ended:
			t.Fatalf("the emulator ended (%v) before %q; the console said:\n%s", err, text, Tail(said))
		case <-time.After(100 * time.Millisecond):
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < 20*time.Second {
			t.Fatalf("no %q; the console said:\n%s", text, Tail(said))
		}
	}
}

// Signal sends a signal to QEMU: SIGSTOP makes a machine hang, to the world.
func (m *Machine) Signal(s os.Signal) error { return m.cmd.Process.Signal(s) }

// Kill takes the power away.
func (m *Machine) Kill() {
	if m.cmd.Process.Kill() == nil {
		<-m.ended //nolint:errcheck // killed, as it says
	}
}

// Tail is the end of a text.
func Tail(text []byte) []byte { return text[max(0, len(text)-3000):] }
