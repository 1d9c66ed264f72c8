package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/driver"
	"mkp2pimg/initramfs/p2pinit/modules"
	"mkp2pimg/initramfs/p2pinit/watchdog"
	"mkp2pimg/internal/rm"

	"golang.org/x/sys/unix"
)

// Linux is the running kernel.
type Linux struct{}

// Mount mounts a file system; one that is there already is no error.
func (Linux) Mount(source, target, fstype, data string) error {
	err := unix.Mount(source, target, fstype, 0, data)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	return err
}

// Unmount unmounts a file system.
func (Linux) Unmount(target string) error { return unix.Unmount(target, 0) }

// Insert loads a kernel module.
func (Linux) Insert(file, options string) error { return modules.Insert(file, options) }

// Remove unloads a kernel module. One that is in use stays, whatever uses it.
func (Linux) Remove(module string) error {
	if err := unix.DeleteModule(module, unix.O_NONBLOCK); err != nil {
		return fmt.Errorf("delete_module: %w", err)
	}
	return nil
}

// Mknod makes a character device node that everyone may use.
func (Linux) Mknod(path string, major, minor uint32) error {
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		return err
	}
	return os.Chmod(path, 0o666) // the umask has cut the mode
}

// KernelLog follows /dev/kmsg from now on.
func (Linux) KernelLog() (KernelLog, error) {
	l, err := driver.FollowLog()
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Watchdog arms a watchdog.
func (Linux) Watchdog(path string, timeout time.Duration) (watchdog.Device, error) {
	return watchdog.Open(path, timeout)
}

// Network gets an address by DHCP.
func (Linux) Network(ctx context.Context) (string, error) { return deliver.Up(ctx) }

// Serial opens a port for writing. A terminal is made to pass bytes unchanged;
// a virtio port always does.
func (Linux) Serial(path string, baud int) (io.WriteCloser, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := raw(int(f.Fd()), baud); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// speeds are the constants of the rates that a console may have (termios.h).
var speeds = map[int]uint32{
	9600: unix.B9600, 19200: unix.B19200, 38400: unix.B38400, 57600: unix.B57600,
	115200: unix.B115200, 230400: unix.B230400, 460800: unix.B460800, 921600: unix.B921600,
}

func raw(fd, baud int) error {
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get terminal settings: %w", err)
	}
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag |= unix.CLOCAL // no modem has to answer
	if baud != 0 {
		speed, ok := speeds[baud]
		if !ok {
			return fmt.Errorf("a speed of %d baud is not supported", baud)
		}
		t.Cflag = t.Cflag&^unix.CBAUD | speed
		t.Ispeed, t.Ospeed = speed, speed
	}
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("set terminal settings: %w", err)
	}
	return nil
}

// Survey asks the resource manager of the loaded driver.
func (Linux) Survey(ctx context.Context) (*rm.Survey, error) {
	c, err := rm.Open("/dev")
	if err != nil {
		return nil, err
	}
	s, err := c.Survey(ctx)
	return s, errors.Join(err, c.Close())
}
