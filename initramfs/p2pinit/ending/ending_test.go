package ending

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mkp2pimg/initramfs/p2pinit/params"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// machine plays the kernel: its consoles are files.
type machine struct {
	root   string
	left   []params.After
	broken string          // a console that can't be opened
	lasts  time.Duration   // a shell
	began  []time.Duration // of shells on ttyS0, since the start
	shells chan string     // the terminal of each
	start  time.Time
}

func newMachine(t *testing.T, active string) *machine {
	m := &machine{root: t.TempDir(), start: time.Now(), shells: make(chan string, 1000)}
	for name, content := range map[string]string{"sys/class/tty/console/active": active, "dev/tty0": "", "dev/ttyS0": ""} {
		path := filepath.Join(m.root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return m
}

// do runs the ending for a time on the clock of a synctest bubble.
func (m *machine) do(t *testing.T, after params.After, span time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), span)
	defer cancel()
	m.start = time.Now()
	e := Ending{Root: m.root, System: m}
	e.Do(ctx, after)
	assert.Error(t, ctx.Err(), "it came back before its context ended")
}

func (m *machine) Leave(after params.After) error {
	m.left = append(m.left, after)
	return errors.New("no such thing")
}

func (m *machine) Terminal(path string) (*os.File, error) {
	if m.broken != "" && filepath.Base(path) == m.broken {
		return nil, errors.New("input/output error")
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
}

func (m *machine) Shell(program string, tty *os.File) error {
	if program != filepath.Join(m.root, "bin/sh") {
		return errors.New(program)
	}
	if filepath.Base(tty.Name()) == "ttyS0" {
		m.began = append(m.began, time.Since(m.start))
	}
	m.shells <- filepath.Base(tty.Name())
	time.Sleep(m.lasts)
	return nil
}

func (m *machine) console(t *testing.T, name string) string {
	text, err := os.ReadFile(filepath.Join(m.root, "dev", name))
	require.NoError(t, err)
	return string(text)
}

func TestShellOnEachConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "tty0 ttyS0\n")
		m.lasts = 59 * time.Second
		m.do(t, params.StartShell, 90*time.Second)
		var got []string
		for len(m.shells) > 0 {
			got = append(got, <-m.shells)
		}
		assert.ElementsMatch(t, []string{"tty0", "ttyS0", "tty0", "ttyS0"}, got, "each again after its end")
		for _, name := range []string{"tty0", "ttyS0"} {
			assert.Equal(t, 2, strings.Count(m.console(t, name), "a shell on "+name+`. "poweroff" switches the machine off`))
		}
		assert.Empty(t, m.left)
	})
}

func TestShellsThatEndAtOnceComeSlower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "ttyS0\n")
		m.do(t, params.StartShell, 3*time.Minute)
		var seconds []float64
		for _, d := range m.began {
			seconds = append(seconds, d.Seconds())
		}
		assert.Equal(t, []float64{0, 1, 3, 7, 15, 31, 63, 123}, seconds)
	})
}

func TestConsoleThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "tty0 ttyS0\n")
		m.broken = "tty0"
		m.lasts = time.Hour
		m.do(t, params.StartShell, time.Minute)
		assert.Contains(t, m.console(t, "ttyS0"), "p2pinit: shell on tty0: input/output error\n")
		assert.Equal(t, "ttyS0", <-m.shells)
	})
}

func TestPowerOffFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "ttyS0\n")
		m.lasts = time.Hour
		m.do(t, params.PowerOff, time.Minute)
		assert.Equal(t, []params.After{params.PowerOff}, m.left)
		assert.Contains(t, m.console(t, "ttyS0"), "p2pinit: poweroff failed: no such thing\n")
		assert.Len(t, m.shells, 1)
	})
}

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t, "ttyS0\n")
		m.do(t, params.Hold, 1000*time.Hour)
		assert.Empty(t, m.console(t, "ttyS0"), "the result stays on the screen")
		assert.Empty(t, m.shells)
		assert.Empty(t, m.left)
	})
}

func TestConsoles(t *testing.T) {
	m := newMachine(t, "tty0 ttyS0\n")
	assert.Equal(t, []string{"tty0", "ttyS0"}, Consoles(m.root))
	assert.Equal(t, []string{"console"}, Consoles(t.TempDir()))
	assert.Equal(t, []string{"console"}, Consoles(newMachine(t, "\n").root))
}

// openpty opens a terminal of which the test holds the other end.
func openpty(t *testing.T) (other *os.File, path string) {
	other, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs pseudo terminals: %v", err)
	}
	t.Cleanup(func() { _ = other.Close() })
	n, err := unix.IoctlGetInt(int(other.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(other.Fd()), unix.TIOCSPTLCK, 0))
	path = filepath.Join("/dev/pts", strconv.Itoa(n))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("needs pseudo terminals: %v", err)
	}
	return other, path
}

func TestTerminalUndoesRawMode(t *testing.T) {
	_, path := openpty(t)
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	raw, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	require.NoError(t, err)
	want := *raw
	raw.Lflag, raw.Iflag, raw.Oflag, raw.Cc[unix.VINTR] = 0, 0, 0, 0
	require.NoError(t, unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, raw))

	again, err := Linux{}.Terminal(path)
	require.NoError(t, err)
	defer again.Close()
	got, err := unix.IoctlGetTermios(int(again.Fd()), unix.TCGETS)
	require.NoError(t, err)
	assert.Equal(t, want.Lflag, got.Lflag)
	assert.Equal(t, want.Oflag, got.Oflag)
	assert.Equal(t, want.Cc, got.Cc)
	assert.NotZero(t, got.Iflag&unix.ICRNL)
	assert.Equal(t, want.Cflag&unix.CBAUD, got.Cflag&unix.CBAUD, "the speed stays")
}

func TestShellOwnsItsTerminal(t *testing.T) {
	other, path := openpty(t)
	program := filepath.Join(t.TempDir(), "sh")
	// /dev/tty is the terminal that controls the session.
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nread line && echo \"got $line on $(tty)\" >/dev/tty\n"), 0o755))
	tty, err := Linux{}.Terminal(path)
	require.NoError(t, err)
	defer tty.Close()
	_, err = other.WriteString("hello\n")
	require.NoError(t, err)
	require.NoError(t, Linux{}.Shell(program, tty))
	lines := bufio.NewScanner(other)
	require.True(t, lines.Scan())
	assert.Equal(t, "hello", lines.Text(), "the echo")
	require.True(t, lines.Scan())
	assert.Equal(t, "got hello on "+path, lines.Text())
}

func TestShellMissing(t *testing.T) {
	_, path := openpty(t)
	tty, err := Linux{}.Terminal(path)
	require.NoError(t, err)
	defer tty.Close()
	require.ErrorIs(t, Linux{}.Shell(filepath.Join(t.TempDir(), "sh"), tty), os.ErrNotExist)
}

func TestTerminalMissing(t *testing.T) {
	_, err := Linux{}.Terminal(filepath.Join(t.TempDir(), "ttyS0"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
