package facts

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"

	"mkp2pimg/internal/kmsg"
)

const (
	kmsgDevice = "dev/kmsg"

	// maxLogLines and maxLogLine bound a log that one fault has flooded. The
	// oldest lines are kept: they name the cause.
	maxLogLines = 200
	maxLogLine  = 400 // bytes
)

// relevant are the messages that the checks, or a person reading the report,
// can use: BAR and window assignment, links that went down or are narrow, the
// NVIDIA driver and its Xid errors, other drivers of GPUs, IOMMU set-up and
// faults, PCIe error reports, ACS parameters, payload sizes, Secure Boot and
// refused modules.
var relevant = regexp.MustCompile(`(?i)` +
	`can't assign|no space for|failed to assign|BAR \d+.*(failed|no space|no compatible)|can't claim|` +
	`BAR \d+.*resiz|Link Down|available PCIe bandwidth|Max[_ ]Payload|` +
	`NVRM|nvidia|nouveau|\bnova[-_ ]|vfio-pci|\bXid\b|` +
	`AMD-Vi|DMAR|IO_PAGE_FAULT|iommu: Default domain|` +
	`\bAER\b|PCIe Bus Error|` +
	`PCI: (Unknown option|Can't parse)|\bACS\b|` +
	`Key was rejected|module verification failed|Lockdown:|secureboot:`)

// kernelLog keeps the relevant lines of log, or of the log below the root when
// log is nil: that of the running kernel, or the file in its place in a copy of a
// machine.
func (g *gatherer) kernelLog(log io.Reader) {
	if log == nil {
		k, err := kmsg.Open(g.path(kmsgDevice))
		if err != nil {
			g.unknown("kernel log", kmsgDevice, err)
			return
		}
		defer k.Close() // only read
		log = k
	}
	lines, dropped, err := filterLog(log, g.redact)
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

func filterLog(log io.Reader, redact func(string) string) (lines []string, dropped int, err error) {
	s := bufio.NewScanner(log)
	// A scanner offers at least half of its buffer to a Read, which must hold a record.
	s.Buffer(make([]byte, 2*kmsg.MaxRecord), 1<<20)
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
		line = redact(line) // first: what is cut in two is not recognised
		if len(line) > maxLogLine {
			line = strings.ToValidUTF8(line[:maxLogLine], "") + " …"
		}
		lines = append(lines, line)
	}
	return lines, dropped, s.Err()
}
