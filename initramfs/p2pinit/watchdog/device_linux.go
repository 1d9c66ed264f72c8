package watchdog

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

type device struct {
	f       *os.File
	name    string
	timeout time.Duration
}

// Open arms the watchdog at path (/dev/watchdog0) with a timeout, or with the
// nearest that the hardware can do.
func Open(path string, timeout time.Duration) (Device, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("watchdog: %w", err)
	}
	fd := int(f.Fd())
	d := &device{f: f, name: path, timeout: timeout}
	if info, err := unix.IoctlGetWatchdogInfo(fd); err == nil {
		d.name = unix.ByteSliceToString(info.Identity[:])
	}
	// A driver with a fixed timeout refuses; what it has is read below.
	_ = unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, int(timeout/time.Second))
	if s, err := unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT); err == nil && s > 0 {
		d.timeout = time.Duration(s) * time.Second
	}
	return d, nil
}

func (d *device) Name() string           { return fmt.Sprintf("%s, %v", d.name, d.timeout) }
func (d *device) Timeout() time.Duration { return d.timeout }

func (d *device) Pet() error {
	_, err := d.f.Write([]byte{0})
	return err
}

// Disarm writes the magic character V, without which closing leaves the watchdog
// running (Documentation/watchdog/watchdog-api.rst).
func (d *device) Disarm() error {
	if _, err := d.f.WriteString("V"); err != nil {
		_ = d.f.Close()
		return fmt.Errorf("watchdog %s: disarm: %w", d.name, err)
	}
	return d.f.Close()
}

// Release disarms the watchdog that a dead process left armed. There may be none.
func Release(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	return (&device{f: f, name: path}).Disarm()
}
