package qemu

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	checks "mkp2pimg/firmware-checks"
)

// Limits that keep a description within what q35 can hold.
const (
	maxDevices = 64
	maxCPUs    = 255 // xAPIC ids
	maxRoot    = 24  // device numbers on pcie.0 left beside QEMU's own
	// The largest window that OVMF takes from its setting X-PciMmio64Mb
	// (OvmfPkg/Library/PlatformInitLib/MemDetect.c).
	maxAbove4G = 16 * TiB
)

var (
	nameRE  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	wordRE  = regexp.MustCompile(`^[!-~]+$`)
	modelRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`) // of QEMU's processors
	valueRE = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)        // of knobs
)

// mistakes validates m. The errors lack file and line.
func (m *Machine) mistakes() []*ParseError {
	var errs []*ParseError
	bad := func(field, format string, args ...any) {
		errs = append(errs, &ParseError{Field: field, Msg: fmt.Sprintf(format, args...)})
	}
	if m.Version != 1 {
		bad("version", "is %d: this program reads version 1", m.Version)
	}
	if !nameRE.MatchString(m.Name) {
		bad("name", "%q is not a name: want small letters, digits and dashes", m.Name)
	}
	if m.Memory < 64*MiB || m.Memory > TiB || m.Memory%MiB != 0 {
		bad("memory", "is %s: want whole megabytes from 64M to 1T", m.Memory)
	}
	if m.CPUs < 1 || m.CPUs > maxCPUs {
		bad("cpus", "is %d: want 1 to %d", m.CPUs, maxCPUs)
	}
	if m.Nodes < 0 || m.Nodes > 8 {
		bad("nodes", "is %d: want at most 8", m.Nodes)
	} else if m.Nodes > 0 && (m.CPUs%m.Nodes != 0 || m.Memory%(Size(m.Nodes)*MiB) != 0) {
		bad("nodes", "%d CPUs and %s of memory can't be shared evenly by %d nodes", m.CPUs, m.Memory, m.Nodes)
	}
	if m.CPU != "" && !modelRE.MatchString(m.CPU) {
		bad("cpu", "%q is not the name of a processor of QEMU's", m.CPU)
	}
	if m.Hypervisor && m.CPU == "" {
		bad("hypervisor", "without a cpu, QEMU's default says that it is a virtual one anyway")
	}
	oneOf(bad, "firmware", m.Firmware, "", SeaBIOS, OVMF)
	oneOf(bad, "iommu", m.IOMMU, "", NoIOMMU, IntelIOMMU, AMDIOMMU)
	oneOf(bad, "report", m.Report, "", VirtioReport, SerialReport)
	if m.Above4G != nil {
		switch {
		case m.Firmware != OVMF:
			bad("above4g", "only ovmf takes the size of this window from the machine")
		case *m.Above4G%MiB != 0 || *m.Above4G > maxAbove4G:
			bad("above4g", "is %s: want whole megabytes up to %s", m.Above4G, maxAbove4G)
		}
	}
	for i, w := range m.Cmdline {
		if !wordRE.MatchString(w) {
			bad(fmt.Sprintf("cmdline[%d]", i), "%q is not one word of printable ASCII", w)
		}
	}
	if len(m.PCIe) > maxRoot {
		bad("pcie", "%d devices: the root bus has room for %d", len(m.PCIe), maxRoot)
	}
	t := treeCheck{machine: m, bad: bad, ids: map[string]bool{}}
	for i := range m.PCIe {
		t.check(&m.PCIe[i], "", fmt.Sprintf("pcie[%d]", i))
	}
	if t.count > maxDevices {
		bad("pcie", "%d devices in the tree: want at most %d", t.count, maxDevices)
	}
	m.Expect.mistakes(bad, "expect")
	if len(errs) == 0 {
		m.knobMistakes(bad)
	}
	return errs
}

func oneOf[T ~string](bad func(string, string, ...any), field string, v T, allowed ...T) {
	if !slices.Contains(allowed, v) {
		names := make([]string, 0, len(allowed))
		for _, a := range allowed {
			if a != "" {
				names = append(names, string(a))
			}
		}
		bad(field, "%q is not one of %s", v, strings.Join(names, ", "))
	}
}

// children says which kinds may sit below which; "" is the root bus.
var children = map[Kind][]Kind{
	"":         {PXB, RootPort, TestDev, GPU, VirtioNet, VirtioRNG},
	PXB:        {RootPort},
	RootPort:   {Upstream, TestDev, GPU, VirtioNet, VirtioRNG},
	Upstream:   {Downstream},
	Downstream: {Upstream, TestDev, GPU, VirtioNet, VirtioRNG},
}

type treeCheck struct {
	machine *Machine
	bad     func(field, format string, args ...any)
	ids     map[string]bool
	count   int
}

func (t *treeCheck) check(d *Device, parent Kind, field string) {
	if t.count++; t.count > maxDevices {
		return
	}
	if _, ok := driver[d.Kind]; !ok {
		t.bad(field+".kind", "%q is not a kind of device: want pxb, root-port, upstream, downstream, testdev, gpu, virtio-net or virtio-rng", d.Kind)
		return
	}
	if !slices.Contains(children[parent], d.Kind) {
		where := "below a " + string(parent)
		if parent == "" {
			where = "on the root bus"
		}
		t.bad(field+".kind", "a %s can't be %s", d.Kind, where)
	}
	if d.ID != "" {
		if !nameRE.MatchString(d.ID) {
			t.bad(field+".id", "%q is not a name: want small letters, digits and dashes", d.ID)
		}
		if t.ids[d.ID] {
			t.bad(field+".id", "%q is already taken", d.ID)
		}
		t.ids[d.ID] = true
	}
	if d.Membar != 0 && d.Kind != TestDev {
		t.bad(field+".membar", "a %s has no membar: only a testdev has", d.Kind)
	}
	if d.Membar&(d.Membar-1) != 0 || d.Membar > TiB || d.Membar != 0 && d.Membar < 4*KiB {
		t.bad(field+".membar", "is %s: want a power of two from 4K to 1T", d.Membar)
	}
	t.link(d, field)
	t.gpu(d, field)
	switch {
	case d.Kind != PXB && d.Node != 0:
		t.bad(field+".node", "only a pxb has a node")
	case d.Kind == PXB && (d.Node < 0 || d.Node >= t.machine.Nodes):
		t.bad(field+".node", "is %d: the machine has %d nodes", d.Node, t.machine.Nodes)
	}
	switch {
	case d.Kind.endpoint() && len(d.Below) > 0:
		t.bad(field+".below", "a %s has no bus below it", d.Kind)
		return
	case (d.Kind == RootPort || d.Kind == Downstream) && len(d.Below) > 1:
		t.bad(field+".below", "%d devices below a port: a link has one end", len(d.Below))
	case len(d.Below) > 32:
		t.bad(field+".below", "%d devices: a bus has room for 32", len(d.Below))
	}
	for i := range d.Below {
		t.check(&d.Below[i], d.Kind, fmt.Sprintf("%s.below[%d]", field, i))
	}
}

// link checks what a device says about its link and its window.
func (t *treeCheck) link(d *Device, field string) {
	if d.Window != 0 && d.Kind != RootPort {
		t.bad(field+".window", "a %s has no window of a given size: only a root-port has", d.Kind)
	}
	if d.Window%MiB != 0 || d.Window > maxAbove4G {
		t.bad(field+".window", "is %s: want whole megabytes up to %s", d.Window, maxAbove4G)
	}
	if (d.Speed != 0 || d.Width != 0) && d.Kind != RootPort && d.Kind != GPU {
		t.bad(field, "the link of a %s is what QEMU makes it: only a root-port and a gpu have speed and width", d.Kind)
	}
	if d.Speed < 0 || d.Speed > 6 {
		t.bad(field+".speed", "is %d: want a generation of PCIe from 1 to 6", d.Speed)
	}
	if !slices.Contains([]int{0, 1, 2, 4, 8, 16}, d.Width) {
		t.bad(field+".width", "is %d: want 1, 2, 4, 8 or 16 lanes", d.Width)
	}
}

// gpu checks the description of an emulated GPU.
func (t *treeCheck) gpu(d *Device, field string) {
	switch {
	case d.Kind == GPU && d.Model == "":
		t.bad(field, "a gpu has to say its model")
	case d.Kind == GPU:
		if name, err := d.mistake(); err != nil {
			t.bad(field+"."+name, "%v", err)
		}
	case d.Board != Board{}:
		t.bad(field, "a %s has no model, bar, largest and fixed: only a gpu has", d.Kind)
	}
}

// mistakes validates e, which is at field.
func (e *Expect) mistakes(bad func(field, format string, args ...any), field string) {
	for i, f := range e.Findings {
		field := fmt.Sprintf("%s.findings[%d]", field, i)
		if f.ID == "" {
			bad(field, "has no id")
		}
		if len(f.Status) == 0 {
			bad(field, "has no status")
		}
		for k, status := range f.Status {
			oneOf(bad, fmt.Sprintf("%s.status[%d]", field, k), status, checks.Pass, checks.Warn, checks.Fail, checks.Skip, checks.Unknown)
		}
	}
	for i, v := range e.Verdicts {
		oneOf(bad, fmt.Sprintf("%s.verdicts[%d]", field, i), v, verdicts...)
	}
	oneOf(bad, field+".as-if", e.AsIf, append([]checks.Verdict{""}, verdicts...)...)
}

var verdicts = []checks.Verdict{checks.VerdictReady, checks.VerdictDegraded, checks.VerdictBlocked, checks.VerdictNoGPU, checks.VerdictUnknown}

// knobMistakes validates the knobs of a machine that is right otherwise: their
// words, and the machine that each value makes of it.
func (m *Machine) knobMistakes(bad func(field, format string, args ...any)) {
	named := map[string]bool{}
	walk(m.PCIe, func(d *Device) { named[string(d.Kind)], named[d.ID] = true, true })
	seen := map[string]bool{}
	for i, k := range m.Knobs {
		field := fmt.Sprintf("knobs[%d]", i)
		if !nameRE.MatchString(k.Name) {
			bad(field+".name", "%q is not a name: want small letters, digits and dashes", k.Name)
		}
		if seen[k.Name] {
			bad(field+".name", "%q is already taken", k.Name)
		}
		seen[k.Name] = true
		if k.Summary == "" {
			bad(field, "has no summary")
		}
		described := 0
		for n, v := range k.Values {
			field := fmt.Sprintf("%s.values[%d]", field, n)
			if !valueRE.MatchString(v.Value) {
				bad(field+".value", "%q is not a value: want small letters, digits, dots and dashes", v.Value)
			}
			if slices.Index(values(k), v.Value) < n {
				bad(field+".value", "%q is already taken", v.Value)
			}
			if v.Expect != nil {
				v.Expect.mistakes(bad, field+".expect")
			}
			if v.described() {
				described++
				continue
			}
			for name := range v.Change.Devices {
				if !named[name] {
					bad(field+".change.devices", "no device has the id or the kind %q", name)
				}
			}
			c := m.clone()
			c.Knobs = nil
			c.apply(v.Change)
			for _, e := range c.mistakes() {
				bad(field+".change", "in the machine that it makes, %s: %s", e.Field, e.Msg)
			}
		}
		if described != 1 {
			bad(field, "%d of its values change nothing: one has to, which is how the machine is described", described)
		}
	}
}
