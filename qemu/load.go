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
	"strings"

	"gopkg.in/yaml.v3"
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
	walk(m.PCIe, func(d *Device) {
		if d.ID == "" {
			d.ID = fmt.Sprintf("%s.%d", d.Kind, count[d.Kind])
		}
		count[d.Kind]++
	})
}
