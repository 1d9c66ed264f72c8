package facts

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// aer reads the counters that the kernel has for functions with the AER
// capability, when it handles AER itself (not the firmware, and not switched off
// with pci=noaer).
func (g *gatherer) aer(address, dir string) *AERCounters {
	var c AERCounters
	for _, severity := range []struct {
		file    string
		counter *AERCounter
	}{
		{"aer_dev_correctable", &c.Correctable},
		{"aer_dev_nonfatal", &c.NonFatal},
		{"aer_dev_fatal", &c.Fatal},
	} {
		name := dir + "/" + severity.file
		s, err := g.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			*severity.counter, err = parseAER(s)
		}
		if err != nil {
			g.unknown("PCIe error counts of "+address, name, err)
			return nil
		}
	}
	return &c
}

// parseAER reads lines of an abbreviation and a count, the last of which is
// TOTAL_ERR_COR, TOTAL_ERR_NONFATAL or TOTAL_ERR_FATAL.
func parseAER(s string) (AERCounter, error) {
	var c AERCounter
	total := false
	for line := range strings.Lines(s) {
		kind, count, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseUint(count, 10, 64)
		switch {
		case err != nil:
			return c, fmt.Errorf("line %q: want a kind of error and a count", strings.TrimSpace(line))
		case strings.HasPrefix(kind, "TOTAL_ERR_"):
			c.Total, total = n, true
		case n > 0:
			if c.Kinds == nil {
				c.Kinds = map[string]uint64{}
			}
			c.Kinds[kind] = n
		}
	}
	if !total {
		return c, errors.New("no line with the total")
	}
	return c, nil
}
