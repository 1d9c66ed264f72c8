package qemu

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	checks "mkp2pimg/firmware-checks"
)

//go:embed machines/*.yaml
var builtin embed.FS

// Names lists the built-in machines in order.
func Names() []string {
	entries, err := builtin.ReadDir("machines")
	if err != nil {
		panic(err) // the directory is part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Lookup returns the built-in machine of that name or, for a name that ends in
// .yaml or holds a slash, the machine described in that file.
func Lookup(name string) (*Machine, error) {
	if strings.HasSuffix(name, ".yaml") || strings.Contains(name, "/") {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("machine description: %w", err)
		}
		return Parse(name, data)
	}
	file := path.Join("machines", name+".yaml")
	data, err := builtin.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("no machine is named %q: use one of %s, or the path of a .yaml file", name, strings.Join(Names(), ", "))
	}
	return Parse(file, data)
}

// A ParseError is a mistake in a machine description.
type ParseError struct {
	File  string
	Line  int    // 1-based; 0 when the mistake has no place
	Field string // such as pcie[0].below[1].membar; empty for a syntax error
	Msg   string
}

func (e *ParseError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Msg
}

// Parse reads and validates a machine description; file is its name in errors,
// each of which is a [ParseError]: all mistakes are reported, joined.
func Parse(file string, data []byte) (*Machine, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var m Machine
	switch err := dec.Decode(&m); {
	case errors.Is(err, io.EOF):
		return nil, &ParseError{File: file, Msg: "the file is empty"}
	case err != nil:
		return nil, yamlError(file, err)
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &ParseError{File: file, Msg: "more than one YAML document: describe one machine per file"}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return nil, yamlError(file, err)
	}
	var errs []error
	for _, e := range m.mistakes() {
		e.File, e.Line = file, lineOf(&root, e.Field)
		errs = append(errs, e)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	m.nameDevices()
	return &m, nil
}

var (
	yamlLine     = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	unknownField = regexp.MustCompile(`^field (\S+) not found in type \S+$`)
)

// yamlError splits the decoder's error into one ParseError per mistake.
func yamlError(file string, err error) error {
	msgs := []string{err.Error()}
	if te := (*yaml.TypeError)(nil); errors.As(err, &te) {
		msgs = te.Errors
	}
	var errs []error
	for _, msg := range msgs {
		e := &ParseError{File: file, Msg: strings.TrimPrefix(msg, "yaml: ")}
		if g := yamlLine.FindStringSubmatch(msg); g != nil {
			_, _ = fmt.Sscan(g[1], &e.Line) // the pattern admits digits only
			e.Msg = g[2]
		}
		if g := unknownField.FindStringSubmatch(e.Msg); g != nil {
			e.Msg = "unknown field " + g[1]
		}
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

var pathElem = regexp.MustCompile(`[^.\[\]]+`)

// lineOf finds the line of a field such as pcie[0].below[1].membar, or of the
// nearest enclosing one that is in the file.
func lineOf(n *yaml.Node, field string) int {
	if n.Kind == yaml.DocumentNode && len(n.Content) > 0 {
		n = n.Content[0]
	}
	line := n.Line
	for _, elem := range pathElem.FindAllString(field, -1) {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == elem {
					line, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			var i int
			if _, err := fmt.Sscan(elem, &i); err == nil && i < len(n.Content) {
				next = n.Content[i]
				line = next.Line
			}
		}
		if next == nil {
			break
		}
		n = next
	}
	return line
}

// Limits that keep a description within what q35 can hold.
const (
	maxDevices = 64
	maxCPUs    = 255 // xAPIC ids
	maxRoot    = 24  // device numbers on pcie.0 left beside QEMU's own
)

var (
	nameRE = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	wordRE = regexp.MustCompile(`^[!-~]+$`)
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
	oneOf(bad, "firmware", m.Firmware, "", SeaBIOS, OVMF)
	oneOf(bad, "iommu", m.IOMMU, "", NoIOMMU, IntelIOMMU, AMDIOMMU)
	oneOf(bad, "report", m.Report, "", VirtioReport, SerialReport)
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
	for i, f := range m.Expect.Findings {
		field := fmt.Sprintf("expect.findings[%d]", i)
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
	for i, v := range m.Expect.Verdicts {
		oneOf(bad, fmt.Sprintf("expect.verdicts[%d]", i), v,
			checks.VerdictReady, checks.VerdictDegraded, checks.VerdictBlocked, checks.VerdictNoGPU, checks.VerdictUnknown)
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
	"":         {PXB, RootPort, TestDev, VirtioNet, VirtioRNG},
	PXB:        {RootPort},
	RootPort:   {Upstream, TestDev, VirtioNet, VirtioRNG},
	Upstream:   {Downstream},
	Downstream: {Upstream, TestDev, VirtioNet, VirtioRNG},
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
		t.bad(field+".kind", "%q is not a kind of device: want pxb, root-port, upstream, downstream, testdev, virtio-net or virtio-rng", d.Kind)
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

// Append adds words to the kernel's command line.
func (m *Machine) Append(words ...string) error {
	for _, w := range words {
		if !wordRE.MatchString(w) {
			return fmt.Errorf("%q is not one word of printable ASCII", w)
		}
	}
	m.Cmdline = append(m.Cmdline, words...)
	return nil
}

// nameDevices gives each device without an id one made of its kind and number.
// The dot, which ids in a file can't hold, is what makes it unique.
func (m *Machine) nameDevices() {
	count := map[Kind]int{}
	var name func([]Device)
	name = func(devices []Device) {
		for i := range devices {
			d := &devices[i]
			if d.ID == "" {
				d.ID = fmt.Sprintf("%s.%d", d.Kind, count[d.Kind])
			}
			count[d.Kind]++
			name(d.Below)
		}
	}
	name(m.PCIe)
}
