package facts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/pcicfg"
)

// Options adjust [Gather].
type Options struct {
	// StandIn, when set, is the vendor and device ID ("1b36:0005", hexadecimal)
	// of devices to treat as if they were GPUs, so that the checks can be
	// exercised on an emulated machine.
	StandIn string
	// KernelLog is the kernel's log, one message a line as dmesg prints it.
	// When nil, /dev/kmsg below the root is read.
	KernelLog io.Reader
	// Private keeps serial numbers, UUIDs, MAC addresses and credentials.
	Private bool
	// NVML is what "nvidia-smi -q -x" printed, nil when it was not run.
	NVML io.Reader
}

// maxFile bounds the reading of one small text file: sysfs gives at most a
// page, and the largest of procfs read here is cpuinfo of a big machine.
const maxFile = 8 << 20

// Gather reads the facts of the machine whose file system is at root. It fails
// only when root is no directory or opt is invalid.
func Gather(root string, opt Options) (*Facts, error) {
	standIn, err := parseStandIn(opt.StandIn)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(root); err != nil {
		return nil, fmt.Errorf("gathering facts: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("gathering facts: %s is not a directory", root)
	}
	g := &gatherer{root: root, standIn: standIn, private: opt.Private, facts: &Facts{Version: Version}}
	g.kernel()
	g.firmware()
	g.acpi()
	g.cpu()
	g.nodes()
	g.iommu()
	g.devices()
	g.memoryMap()
	g.framebuffers()
	g.modules()
	g.installed()
	g.nvidia(opt.NVML)
	g.kernelLog(opt.KernelLog)
	g.facts.clean()
	return g.facts, nil
}

// pciID is a vendor and device ID.
type pciID struct{ vendor, device pcicfg.Hex }

func parseStandIn(s string) (*pciID, error) {
	if s == "" {
		return nil, nil
	}
	v, d, ok := strings.Cut(s, ":")
	vendor, err1 := strconv.ParseUint(v, 16, 16)
	device, err2 := strconv.ParseUint(d, 16, 16)
	if !ok || err1 != nil || err2 != nil {
		return nil, fmt.Errorf("stand-in device %q: want a vendor and a device ID in hexadecimal, such as 1b36:0005", s)
	}
	return &pciID{pcicfg.Hex(vendor), pcicfg.Hex(device)}, nil
}

type gatherer struct {
	root    string
	standIn *pciID
	private bool // keep what identifies the machine
	facts   *Facts
}

// path returns where the machine's file name, given without a leading slash,
// is found.
func (g *gatherer) path(name string) string { return filepath.Join(g.root, name) }

func (g *gatherer) unknown(what, name string, why error) {
	g.facts.Unknown = append(g.facts.Unknown, Unknown{What: what, Where: "/" + name, Why: reason(why)})
}

// reason strips the path from err, which Unknown.Where already has.
func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// read returns the content of a file of the machine without surrounding white
// space.
func (g *gatherer) read(name string) (string, error) {
	b, err := g.readRaw(name)
	return strings.TrimSpace(string(b)), err
}

// want reads a file that every machine has; its absence is an unknown.
func (g *gatherer) want(what, name string) string {
	s, err := g.read(name)
	if err != nil {
		g.unknown(what, name, err)
	}
	return s
}

// may reads a file that a machine may lack; only another error is an unknown.
func (g *gatherer) may(what, name string) string {
	s, err := g.read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.unknown(what, name, err)
	}
	return s
}

// list returns the sorted names in a directory. A directory that does not exist
// has none; known is false when it could not be read.
func (g *gatherer) list(what, name string) (names []string, known bool) {
	entries, err := os.ReadDir(g.path(name))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, true
		}
		g.unknown(what, name, err)
		return nil, false
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, true
}

// readRaw returns the whole content of a small file of the machine.
func (g *gatherer) readRaw(name string) ([]byte, error) {
	f, err := os.Open(g.path(name))
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	return io.ReadAll(io.LimitReader(f, maxFile))
}
