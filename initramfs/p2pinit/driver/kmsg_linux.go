package driver

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Log follows the kernel's log.
type Log struct{ fd int }

// maxRecord is more than the kernel gives in one read of /dev/kmsg
// (PRINTK_MESSAGE_MAX, 2048, since 6.4; CONSOLE_EXT_LOG_MAX, 8192, before).
const maxRecord = 16 << 10

// FollowLog opens /dev/kmsg at its end: only what is logged from now on is read.
func FollowLog() (*Log, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/kmsg: %w", err)
	}
	if _, err := unix.Seek(fd, 0, unix.SEEK_END); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("seek to the end of /dev/kmsg: %w", err)
	}
	return &Log{fd}, nil
}

// Lines returns the relevant lines logged since the last call.
func (l *Log) Lines() []string {
	var lines []string
	buf := make([]byte, maxRecord)
	for {
		n, err := unix.Read(l.fd, buf)
		switch {
		case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.EINTR):
			continue // records were overwritten before they were read: go on with the next
		case err != nil || n == 0:
			return lines
		}
		if text, ok := Message(string(buf[:n])); ok && Relevant(text) {
			lines = append(lines, text)
		}
	}
}

// Close closes the log.
func (l *Log) Close() error { return unix.Close(l.fd) }
