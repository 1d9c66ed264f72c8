package facts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	kmsgDevice = "dev/kmsg"

	// maxLogLines and maxLogLine bound a log that one fault has flooded. The
	// oldest lines are kept: they name the cause.
	maxLogLines = 200
	maxLogLine  = 400  // bytes
	maxRecord   = 8192 // largest record that /dev/kmsg gives (CONSOLE_EXT_LOG_MAX)
)

// relevant are the messages that the checks, or a person reading the report,
// can use: BAR and window assignment, the NVIDIA driver and its Xid errors,
// IOMMU set-up and faults, PCIe error reports, ACS parameters, refused modules.
var relevant = regexp.MustCompile(`(?i)` +
	`can't assign|no space for|failed to assign|BAR \d+.*(failed|no space|no compatible)|can't claim|` +
	`NVRM|nvidia|nouveau|\bXid\b|` +
	`AMD-Vi|DMAR|IO_PAGE_FAULT|iommu: Default domain|` +
	`\bAER\b|PCIe Bus Error|` +
	`PCI: (Unknown option|Can't parse)|\bACS\b|` +
	`Key was rejected|module verification failed|Lockdown:`)

// kernelLog keeps the relevant lines of log, or of the running kernel's when
// log is nil and the root is the running system.
func (g *gatherer) kernelLog(log io.Reader) {
	if log == nil {
		if g.root != "/" {
			return
		}
		k, err := openKmsg("/" + kmsgDevice)
		if err != nil {
			g.unknown("kernel log", kmsgDevice, err)
			return
		}
		defer k.Close() // only read
		log = k
	}
	lines, dropped, err := filterLog(log)
	g.facts.KernelLog = lines
	if err != nil {
		g.unknown("kernel log", kmsgDevice, err)
	}
	if dropped > 0 {
		g.unknown("kernel log", kmsgDevice, fmt.Errorf("%d further relevant lines left out", dropped))
	}
}

// stamp is what precedes a message: "[   12.345678] " from dmesg, or the
// priority, sequence, time and flags of a /dev/kmsg record.
var stamp = regexp.MustCompile(`^(?:\[[ 0-9.]+\] ?|\d+,\d+,\d+,[^;]*;)`)

func filterLog(log io.Reader) (lines []string, dropped int, err error) {
	s := bufio.NewScanner(log)
	// A scanner offers at least half of its buffer to a Read, which must hold a record.
	s.Buffer(make([]byte, 2*maxRecord), 1<<20)
	for s.Scan() {
		line := s.Text()
		if strings.HasPrefix(line, " ") && !strings.HasPrefix(strings.TrimSpace(line), "[") {
			continue // a key of the dictionary of the /dev/kmsg record before
		}
		line = strings.ToValidUTF8(stamp.ReplaceAllString(line, ""), "?")
		if !relevant.MatchString(line) {
			continue
		}
		if len(lines) == maxLogLines {
			dropped++
			continue
		}
		if len(line) > maxLogLine {
			line = strings.ToValidUTF8(line[:maxLogLine], "") + " …"
		}
		lines = append(lines, redact(line))
	}
	return lines, dropped, s.Err()
}

// kmsg reads the records that /dev/kmsg holds now and then ends. It goes around
// package os, whose reader would wait for records to come.
type kmsg struct{ fd int }

func openKmsg(name string) (*kmsg, error) {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &kmsg{fd}, nil
}

// Read gives one record per call. p must hold a whole record.
func (k *kmsg) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(k.fd, p)
		switch {
		case err == nil && n > 0:
			return n, nil
		case err == nil, errors.Is(err, unix.EAGAIN):
			return 0, io.EOF
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR):
			// EPIPE: records were overwritten; the next read goes on after them.
		default:
			return 0, err
		}
	}
}

// Close closes the device.
func (k *kmsg) Close() error { return unix.Close(k.fd) }
