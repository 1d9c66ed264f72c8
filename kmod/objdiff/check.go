package objdiff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Kind is where a difference comes from.
type Kind string

const (
	// Edited is a function whose source is edited, or what the compiler made of it.
	Edited Kind = "edited"
	// Inlines is a function that an edited one is inlined in, in one object or both.
	Inlines Kind = "inlines"
	// LineNumbers is a function in which nothing but the numbers of lines behind an edit differs.
	LineNumbers Kind = "line numbers"
	// Reference is something that is in one object only, as only edited functions refer to it there:
	// a stub that lost its last caller, a name for a new message.
	Reference Kind = "reference"
	// Build is the driver's identification that differs only in who built it, where and when.
	Build Kind = "build"
	// Unexplained is a difference that no edit accounts for.
	Unexplained Kind = "unexplained"
)

// Finding is a change and where it comes from.
type Finding struct {
	Change
	Kind Kind
	// Why names the source file, the inlined functions or the functions that refer to it.
	Why string
}

// Report is what [Check] found out.
type Report struct {
	// Functions and Data count what was compared.
	Functions, Data Tally
	// Findings are the changes in the order of the diff.
	Findings []Finding
	// Edited are the functions whose source differs, sorted.
	Edited []string
	// Without are those of Edited of which nothing in the object changed.
	Without []string
}

// Count returns the number of findings of a kind.
func (r *Report) Count(kind Kind) int {
	n := 0
	for _, f := range r.Findings {
		if f.Kind == kind {
			n++
		}
	}
	return n
}

// String lists the counts and the findings, those about line numbers as one number.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "functions: %v\ndata: %v\n", r.Functions, r.Data)
	for _, kind := range []Kind{Unexplained, Edited, Inlines, Reference, Build} {
		for _, f := range r.Findings {
			if f.Kind == kind {
				fmt.Fprintf(&b, "%s: %v%s\n", kind, f.Change, f.reason())
			}
		}
	}
	if n := r.Count(LineNumbers); n > 0 {
		fmt.Fprintf(&b, "%s: %d functions behind an edit\n", LineNumbers, n)
	}
	for _, name := range r.Without {
		fmt.Fprintf(&b, "no difference: %s, which was edited\n", name)
	}
	return b.String()
}

func (f Finding) reason() string {
	switch f.Kind {
	case Edited:
		return " (" + f.Why + ")"
	case Inlines:
		return " (inlines " + f.Why + ")"
	case Reference:
		return " (known only to " + f.Why + ")"
	default:
		return ""
	}
}

// MismatchError says that the differences between two objects are not those that the edits ask for.
type MismatchError struct {
	// Unexplained are the changes that no edit accounts for.
	Unexplained []Finding
	// Without are the edited functions of which nothing in the object changed.
	Without []string
}

func (e *MismatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d differences between the objects that no edit accounts for, %d edited functions that do not differ",
		len(e.Unexplained), len(e.Without))
	for _, f := range e.Unexplained {
		fmt.Fprintf(&b, "\n%s", f.Change)
	}
	for _, name := range e.Without {
		fmt.Fprintf(&b, "\n%s was edited, but is the same in both objects", name)
	}
	return b.String()
}

// Check finds for each change of d the edit that it comes from. Sources are the edited files that
// went into the objects. The error is a [*MismatchError] if a change has no such reason, or if a
// function was edited and nothing changed.
func Check(d *Diff, sources []Source) (*Report, error) {
	c := &checker{diff: d, findings: make([]Finding, len(d.Changes)), concerned: map[*symbol]bool{}}
	for _, s := range sources {
		c.outlines = append(c.outlines, newOutline(s))
	}
	for i, change := range d.Changes {
		c.findings[i] = c.explain(change)
		if k := c.findings[i].Kind; k == Edited || k == Inlines {
			c.concern(change)
		}
	}
	c.explainReferences()
	r := &Report{Functions: d.Functions, Data: d.Data, Findings: c.findings}
	r.Edited, r.Without = c.edited()
	var unexplained []Finding
	for _, f := range r.Findings {
		if f.Kind == Unexplained {
			unexplained = append(unexplained, f)
		}
	}
	if unexplained != nil || r.Without != nil {
		return r, &MismatchError{unexplained, r.Without}
	}
	return r, nil
}

type checker struct {
	diff     *Diff
	outlines []*outline
	findings []Finding
	// concerned are the symbols of both objects that hold edited code.
	concerned map[*symbol]bool
}

func (c *checker) concern(change Change) {
	for _, s := range []*symbol{change.before, change.after} {
		if s != nil {
			c.concerned[s] = true
		}
	}
}

// explain explains a change by the source of the function itself.
func (c *checker) explain(change Change) Finding {
	f := Finding{Change: change, Kind: Unexplained}
	if !change.Function {
		if change.Name == "NVRM_ID" && sameDriver(change.stockCode, change.patchedCode) {
			f.Kind = Build
		}
		return f
	}
	name := base(change.Name)
	for _, o := range c.outlines {
		if !o.holds(change.symbol()) {
			continue
		}
		if o.edited[name] {
			f.Kind, f.Why = Edited, o.path
			return f
		}
		if change.lines && o.lines.explain(change.stockCode, change.patchedCode) {
			f.Kind, f.Why = LineNumbers, o.path
			return f
		}
		if via := c.inlined(o, change, name, map[string]bool{name: true}, nil); via != nil {
			f.Kind, f.Why = Inlines, strings.Join(via, ", ")
			return f
		}
	}
	return f
}

// sameDriver reports whether two identifications are equal up to the parenthesis with who built the
// driver (utils.mk of its source, GENERATE_NVIDSTRING).
func sameDriver(stock, patched []byte) bool {
	a, _, okA := bytes.Cut(stock, []byte("  ("))
	b, _, okB := bytes.Cut(patched, []byte("  ("))
	return okA && okB && bytes.Equal(a, b)
}

func (c Change) symbol() *symbol {
	if c.after != nil {
		return c.after
	}
	return c.before
}

// inlined returns the functions through which the source of the changed function comes to an
// edited one, each called by the one before and missing among the references of the object code.
// If want is not nil, only these edited functions count.
func (c *checker) inlined(o *outline, change Change, name string, seen, want map[string]bool) []string {
	for _, callee := range sortedKeys(o.calls[name]) {
		if seen[callee] || c.refers(change, callee) {
			continue
		}
		seen[callee] = true
		if o.edited[callee] && (want == nil || want[callee]) {
			return []string{callee}
		}
		if via := c.inlined(o, change, callee, seen, want); via != nil {
			return append([]string{callee}, via...)
		}
	}
	return nil
}

// refers reports whether the changed function refers to the named one in both objects.
func (c *checker) refers(change Change, name string) bool {
	return refersTo(c.diff.stock, change.before, name) && refersTo(c.diff.patched, change.after, name)
}

func refersTo(o *Object, s *symbol, name string) bool {
	if s == nil {
		return true
	}
	for _, r := range o.relocsOf(s) {
		if t := o.resolve(s, r); t.symbol != nil && base(t.symbol.name) == name {
			return true
		}
	}
	return false
}

// explainReferences explains what is in one object only by who refers to it there. What is
// explained so may itself be all that refers to something else.
func (c *checker) explainReferences() {
	stock, patched := c.diff.stock.referrers(), c.diff.patched.referrers()
	for again := true; again; {
		again = false
		for i := range c.findings {
			f := &c.findings[i]
			if f.Kind != Unexplained || f.Status == Changed {
				continue
			}
			by := stock[f.before]
			if f.Status == Added {
				by = patched[f.after]
			}
			if len(by) == 0 || slices.ContainsFunc(by, func(s *symbol) bool { return !c.concerned[s] }) {
				continue
			}
			names := map[string]bool{}
			for _, s := range by {
				names[s.name] = true
			}
			f.Kind, f.Why = Reference, strings.Join(sortedKeys(names), ", ")
			c.concern(f.Change)
			again = true
		}
	}
}

// referrers returns the functions and data that refer to each other one.
func (o *Object) referrers() map[*symbol][]*symbol {
	by := map[*symbol][]*symbol{}
	for _, s := range o.symbols {
		for _, r := range o.relocsOf(s) {
			if t := o.resolve(s, r); t.symbol != nil && t.symbol != s {
				by[t.symbol] = append(by[t.symbol], s)
			}
		}
	}
	return by
}

// edited returns the functions whose source is edited and those of which nothing changed.
func (c *checker) edited() (edited, without []string) {
	for _, o := range c.outlines {
		for name, differs := range o.edited {
			if !differs {
				continue
			}
			edited = append(edited, name)
			if !c.changed(o, name) {
				without = append(without, name)
			}
		}
	}
	slices.Sort(edited)
	slices.Sort(without)
	return edited, without
}

// changed reports whether the named function of o changed, or one with a copy of it.
func (c *checker) changed(o *outline, name string) bool {
	for _, f := range c.findings {
		if !f.Function || f.Kind == LineNumbers || !o.holds(f.symbol()) {
			continue
		}
		of := base(f.Name)
		if of == name || c.inlined(o, f.Change, of, map[string]bool{of: true}, map[string]bool{name: true}) != nil {
			return true
		}
	}
	return false
}

func sortedKeys(m map[string]bool) []string {
	var keys []string
	for k, ok := range m {
		if ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}
