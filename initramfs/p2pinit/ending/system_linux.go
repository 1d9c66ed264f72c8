package ending

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"mkp2pimg/initramfs/p2pinit/params"

	"golang.org/x/sys/unix"
)

// Linux is the running kernel.
type Linux struct{}

// Leave powers the machine off or reboots it.
func (Linux) Leave(after params.After) error {
	unix.Sync()
	how := unix.LINUX_REBOOT_CMD_POWER_OFF
	if after == params.Reboot {
		how = unix.LINUX_REBOOT_CMD_RESTART
	}
	if err := unix.Reboot(how); err != nil {
		return err
	}
	return errors.New("the kernel came back from it")
}

// Terminal opens a terminal, undoing what the program that used it last, which may
// have been killed, did to its mode. What isn't a terminal is opened as it is.
func (Linux) Terminal(path string) (*os.File, error) {
	tty, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		return tty, nil //nolint:nilerr // not a terminal, or one that refuses at its first use
	}
	usual(t)
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, t); err != nil {
		_ = tty.Close()
		return nil, fmt.Errorf("%s: set terminal settings: %w", path, err)
	}
	return tty, nil
}

// usual sets the mode in which a terminal edits lines, echoes and sends signals
// (stty sane), but leaves the speed and format of a serial line.
func usual(t *unix.Termios) {
	t.Iflag = unix.BRKINT | unix.ICRNL | unix.IXON | unix.IMAXBEL | unix.IUTF8
	t.Oflag = unix.OPOST | unix.ONLCR
	t.Lflag = unix.ISIG | unix.ICANON | unix.IEXTEN | unix.ECHO | unix.ECHOE | unix.ECHOK | unix.ECHOCTL | unix.ECHOKE
	t.Cflag |= unix.CREAD | unix.CLOCAL // no modem has to answer
	// The kernel's own (include/asm-generic/termios-base.h, INIT_C_CC).
	for key, c := range map[int]uint8{
		unix.VINTR: 3, unix.VQUIT: 28, unix.VERASE: 127, unix.VKILL: 21, unix.VEOF: 4, unix.VMIN: 1, unix.VTIME: 0,
		unix.VSTART: 17, unix.VSTOP: 19, unix.VSUSP: 26, unix.VREPRINT: 18, unix.VWERASE: 23, unix.VLNEXT: 22,
		unix.VEOL: 0, unix.VEOL2: 0,
	} {
		t.Cc[key] = c
	}
}

// Shell runs a shell that leads a session on the terminal, so that its job control
// and Ctrl-C work, until it ends. How it ended doesn't matter.
func (Linux) Shell(program string, tty *os.File) error {
	cmd := exec.CommandContext(context.Background(), program) // ends when its person ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // taken from p2pinit's own session
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = cmd.Wait()
	return nil
}
