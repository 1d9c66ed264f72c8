// Package kmsg reads the kernel's log from /dev/kmsg.
package kmsg

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Device is where the kernel gives its log, to root or with CAP_SYSLOG if
// kernel.dmesg_restrict is set.
const Device = "/dev/kmsg"

// MaxRecord is more bytes than the kernel gives in one read
// (PRINTK_MESSAGE_MAX, 2048, since 6.4; CONSOLE_EXT_LOG_MAX, 8192, before).
const MaxRecord = 16 << 10

// Reader reads the records that the log holds now. It goes around package os,
// whose reader would wait for records to come.
type Reader struct{ fd int }

// Open opens [Device], or the file called name in its place, at the oldest
// record.
func Open(name string) (*Reader, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &Reader{fd}, nil
}

// SkipToEnd skips all records that the log holds now.
func (r *Reader) SkipToEnd() error {
	if _, err := unix.Seek(r.fd, 0, unix.SEEK_END); err != nil {
		return &os.SyscallError{Syscall: "lseek", Err: err}
	}
	return nil
}

// Read gives one record: "6,339,5140900,-;text" and lines of properties that
// begin with a blank. The error is io.EOF when no record is left now; later there
// may be more. p must have room for [MaxRecord] bytes.
func (r *Reader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(r.fd, p)
		switch {
		case err == nil && n > 0:
			return n, nil
		case err == nil, errors.Is(err, unix.EAGAIN):
			return 0, io.EOF
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			// EPIPE: records were overwritten before they were read; the next read
			// goes on after them.
		default:
			return 0, &os.SyscallError{Syscall: "read", Err: err}
		}
	}
}

// Close closes the log.
func (r *Reader) Close() error { return unix.Close(r.fd) }
