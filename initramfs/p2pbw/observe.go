package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mkp2pimg/internal/kmsg"
	"mkp2pimg/internal/measure"
)

// samplePeriod is the time between two looks at a link under load.
const samplePeriod = 50 * time.Millisecond

// sysPCI is where the kernel shows PCI functions.
const sysPCI = "/sys/bus/pci/devices"

// locate finds out where a GPU is, from the path of its directory in sysfs:
//
//	/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/0000:42:10.0/0000:43:00.0
//	             host bridge   root port  upstream and downstream   GPU
//
// It returns the place and the functions on the way, from the GPU to the root
// port. What sysfs does not show is left out.
func locate(pci, bdf string) (measure.Place, []string) {
	place := measure.Place{BDF: bdf}
	dir, err := filepath.EvalSymlinks(filepath.Join(pci, bdf))
	if err != nil {
		return place, []string{bdf}
	}
	place.BAR1 = largestBAR(dir)
	ports := []string{path.Base(dir)}
	for up := path.Dir(dir); ; up = path.Dir(up) {
		name := path.Base(up)
		if _, err := parseBDF(name); err != nil {
			if root, ok := strings.CutPrefix(name, "pci"); ok {
				place.Root = root
			}
			break
		}
		ports = append(ports, name)
	}
	// A switch has two ports on the way; the topmost switch is the one that
	// leads to the root port.
	if n := len(ports); n >= 4 {
		place.Switch = ports[n-2]
	}
	return place, ports
}

// largestBAR returns the size of a function's largest BAR, which is BAR1 of an
// NVIDIA GPU, its framebuffer's, whatever its number. The file has a line for each
// BAR: start, end and flags. Zero: not known.
func largestBAR(dir string) int64 {
	text, err := os.ReadFile(filepath.Join(dir, "resource"))
	if err != nil {
		return 0
	}
	const bars = 6 // the lines behind are the ROM, SR-IOV and a bridge's windows
	var size uint64
	for i, line := range strings.Split(string(text), "\n") {
		f := strings.Fields(line)
		if i >= bars || len(f) != 3 {
			break
		}
		start, err1 := strconv.ParseUint(f[0], 0, 63)
		end, err2 := strconv.ParseUint(f[1], 0, 63)
		if err1 == nil && err2 == nil && end > start {
			size = max(size, end-start+1)
		}
	}
	return int64(size)
}

// An observer watches links and the kernel's log from outside while a child
// measures. It touches no GPU.
type observer struct {
	pci    string
	links  []measure.Link
	before []map[string]int64 // errors of each link at the start
	log    *kmsg.Reader       // nil if the log can't be read

	stop chan struct{}
	done sync.WaitGroup
}

// observe starts to watch the links of functions, and those above them. A link
// is sampled only while loaded says that there is load: idle ones slow down.
func observe(pci, log string, functions []string, loaded func() bool) *observer {
	o := &observer{pci: pci, stop: make(chan struct{})}
	var names []string
	for _, bdf := range functions {
		_, ports := locate(pci, bdf)
		names = append(names, ports...)
	}
	slices.Sort(names)
	for _, bdf := range slices.Compact(names) {
		l := measure.Link{BDF: bdf, MaxSpeed: o.read(bdf, "max_link_speed")}
		l.MaxWidth, _ = strconv.Atoi(o.read(bdf, "max_link_width"))
		o.links = append(o.links, l)
		o.before = append(o.before, o.errors(bdf))
	}
	if r, err := kmsg.Open(log); err == nil {
		if err := r.SkipToEnd(); err == nil {
			o.log = r
		} else {
			_ = r.Close()
		}
	}
	o.done.Go(func() {
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for {
			select {
			case <-o.stop:
				return
			case <-tick.C:
				if loaded() {
					o.sample()
				}
			}
		}
	})
	return o
}

func (o *observer) read(bdf, file string) string {
	text, err := os.ReadFile(filepath.Join(o.pci, bdf, file))
	if err != nil {
		return "" // a root complex or a virtual machine may have no link to show
	}
	return strings.TrimSpace(string(text))
}

// sample adds the state of each link now.
func (o *observer) sample() {
	for i := range o.links {
		l := &o.links[i]
		speed := o.read(l.BDF, "current_link_speed")
		width, err := strconv.Atoi(o.read(l.BDF, "current_link_width"))
		if err != nil || speed == "" {
			continue
		}
		at := slices.IndexFunc(l.Seen, func(s measure.LinkState) bool { return s.Speed == speed && s.Width == width })
		if at < 0 {
			at = len(l.Seen)
			l.Seen = append(l.Seen, measure.LinkState{Speed: speed, Width: width})
		}
		l.Seen[at].Samples++
	}
}

// severities are the files of AER's counters, whose last line is the total.
var severities = []string{"correctable", "nonfatal", "fatal"}

// errors returns the counts of AER by severity, of those that are known.
func (o *observer) errors(bdf string) map[string]int64 {
	counts := map[string]int64{}
	for _, severity := range severities {
		f := strings.Fields(o.read(bdf, "aer_dev_"+severity))
		if len(f) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(f[len(f)-1], 10, 64); err == nil {
			counts[severity] = n
		}
	}
	return counts
}

// end stops watching and returns what was seen.
func (o *observer) end() *measure.Watch {
	close(o.stop)
	o.done.Wait()
	w := &measure.Watch{Links: o.links}
	for i := range w.Links {
		l := &w.Links[i]
		slices.SortStableFunc(l.Seen, func(a, b measure.LinkState) int { return b.Samples - a.Samples })
		for severity, n := range o.errors(l.BDF) {
			if was, known := o.before[i][severity]; known && n > was {
				if l.Errors == nil {
					l.Errors = map[string]int64{}
				}
				l.Errors[severity] = n - was
			}
		}
	}
	w.Kernel = o.lines()
	return w
}

// maxLines bounds the lines kept of one pair: a fault at each page floods the log.
const maxLines = 50

// lines returns what the kernel's log said meanwhile, and closes it.
func (o *observer) lines() []string {
	if o.log == nil {
		return nil
	}
	defer o.log.Close() // only read
	var lines []string
	buf := make([]byte, kmsg.MaxRecord)
	for {
		n, err := o.log.Read(buf)
		if err != nil {
			return lines // all read, or nothing more can be
		}
		// A record is "6,339,5140900,-;text", and lines of properties below.
		_, text, ok := strings.Cut(string(buf[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		if text = strings.ToValidUTF8(text, "?"); ok && measure.Concerns(text) && len(lines) < maxLines {
			lines = append(lines, text)
		}
	}
}
