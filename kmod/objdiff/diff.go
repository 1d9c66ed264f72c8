package objdiff

import (
	"bytes"
	"fmt"
)

// Status is how a function or datum compares.
type Status string

const (
	// Changed means that both objects have it, and it is not the same.
	Changed Status = "changed"
	// Added means that only the patched object has it.
	Added Status = "added"
	// Removed means that only the stock object has it.
	Removed Status = "removed"
)

// Diff is what two objects have in common and what not.
type Diff struct {
	// Functions and Data count what was compared.
	Functions, Data Tally
	// Changes are what is not the same: first those of the stock object, in the order of its
	// symbol table, then what the patched object added.
	Changes []Change

	stock, patched *Object
}

// Tally counts functions or data.
type Tally struct {
	Same, Changed, Added, Removed int
}

func (t Tally) String() string {
	return fmt.Sprintf("%d same, %d changed, %d added, %d removed", t.Same, t.Changed, t.Added, t.Removed)
}

// Change is a function or datum that is not the same.
type Change struct {
	Status Status
	// Function tells code from data.
	Function bool
	// Name is the symbol's, in the patched object if it has one.
	Name string
	// File is the name of the source file without its folder, if the symbol is local to it.
	File string
	// StockSize and PatchedSize are in bytes.
	StockSize, PatchedSize uint64
	// First is where a changed one differs first.
	First *Difference

	before, after *symbol
	// lines may hold other line numbers and nothing else: the size and the references are equal.
	lines                  bool
	stockCode, patchedCode []byte
}

// Difference is one place in which a function or datum is not the same.
type Difference struct {
	// Offset is from the start of the function or datum, in bytes.
	Offset uint64
	// Stock and Patched are up to eight bytes at the offset, those blanked that a relocation fills in.
	Stock, Patched []byte
	// StockTarget and PatchedTarget say what a relocation at the offset refers to, if it is
	// the reference that differs.
	StockTarget, PatchedTarget string
}

func (d *Difference) String() string {
	if d.StockTarget != d.PatchedTarget {
		return fmt.Sprintf("at +0x%x: refers to %s instead of %s", d.Offset, orNothing(d.PatchedTarget), orNothing(d.StockTarget))
	}
	return fmt.Sprintf("at +0x%x: % x instead of % x", d.Offset, d.Patched, d.Stock)
}

func orNothing(target string) string {
	if target == "" {
		return "nothing"
	}
	return target
}

// Compare compares every function and datum of two objects made from the same files.
func Compare(stock, patched *Object) *Diff {
	d := &Diff{stock: stock, patched: patched}
	p := pair(stock, patched)
	for _, s := range stock.symbols {
		other := p[s]
		if other == nil {
			d.note(Removed, s, nil)
			continue
		}
		c := d.compare(p, s, other)
		if c == nil {
			d.tally(s).Same++
			continue
		}
		d.tally(s).Changed++
		d.Changes = append(d.Changes, *c)
	}
	for _, s := range patched.symbols {
		if p[s] == nil {
			d.note(Added, nil, s)
		}
	}
	return d
}

func (d *Diff) tally(s *symbol) *Tally {
	if s.function {
		return &d.Functions
	}
	return &d.Data
}

// note records a symbol that only one object has.
func (d *Diff) note(status Status, before, after *symbol) {
	if status == Added {
		d.tally(after).Added++
	} else {
		d.tally(before).Removed++
	}
	d.Changes = append(d.Changes, change(status, before, after))
}

func change(status Status, before, after *symbol) Change {
	c := Change{Status: status, before: before, after: after}
	for _, s := range []*symbol{before, after} {
		if s != nil {
			c.Name, c.File, c.Function = s.name, s.file, s.function
		}
	}
	if before != nil {
		c.StockSize = before.end - before.start
	}
	if after != nil {
		c.PatchedSize = after.end - after.start
	}
	return c
}

// compare returns the change between two symbols, or nil if they are the same.
func (d *Diff) compare(p pairs, before, after *symbol) *Change {
	c := change(Changed, before, after)
	a, b := d.stock.bytesOf(before), d.patched.bytesOf(after)
	ref := d.firstReference(p, before, after)
	bytesSame := bytes.Equal(a, b) && c.StockSize == c.PatchedSize
	kindSame := d.stock.sections[before.section].flags == d.patched.sections[after.section].flags
	if bytesSame && kindSame && ref == nil {
		return nil
	}
	first := ref
	if at := firstByte(a, b); !bytesSame && (first == nil || at < first.Offset) {
		first = &Difference{Offset: at}
	}
	if first == nil {
		first = &Difference{} // it moved to another kind of section
	}
	first.Stock, first.Patched = window(a, first.Offset), window(b, first.Offset)
	c.First = first
	c.lines = ref == nil && kindSame && len(a) == len(b) && before.function
	c.stockCode, c.patchedCode = a, b
	return &c
}

// firstReference returns the first reference that differs, or nil.
func (d *Diff) firstReference(p pairs, before, after *symbol) *Difference {
	a, b := d.stock.relocsOf(before), d.patched.relocsOf(after)
	for i := range max(len(a), len(b)) {
		switch {
		case i == len(a), i < len(b) && b[i].offset-after.start < a[i].offset-before.start:
			return &Difference{Offset: b[i].offset - after.start, PatchedTarget: d.patched.resolve(after, b[i]).String()}
		case i == len(b), a[i].offset-before.start < b[i].offset-after.start:
			return &Difference{Offset: a[i].offset - before.start, StockTarget: d.stock.resolve(before, a[i]).String()}
		}
		ta, tb := d.stock.resolve(before, a[i]), d.patched.resolve(after, b[i])
		if a[i].kind != b[i].kind || !p.same(ta, tb) {
			diff := &Difference{Offset: a[i].offset - before.start, StockTarget: ta.String(), PatchedTarget: tb.String()}
			if diff.StockTarget == diff.PatchedTarget {
				diff.StockTarget += fmt.Sprintf(" (%v)", a[i].kind)
				diff.PatchedTarget += fmt.Sprintf(" (%v)", b[i].kind)
			}
			return diff
		}
	}
	return nil
}

// same reports whether two references are to the same.
func (p pairs) same(a, b target) bool {
	if a.offset != b.offset || (a.symbol == nil) != (b.symbol == nil) {
		return false
	}
	if a.symbol != nil {
		return p[a.symbol] == b.symbol
	}
	return a.name == b.name
}

// firstByte returns the offset of the first byte that differs, or the length of the shorter.
func firstByte(a, b []byte) uint64 {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return uint64(i)
		}
	}
	return uint64(n)
}

func window(b []byte, offset uint64) []byte {
	n := uint64(len(b))
	return b[min(offset, n):min(offset+8, n)]
}

// String says in one line what changed and where first.
func (c Change) String() string {
	name := c.Name
	if c.File != "" {
		name = c.File + ": " + name
	}
	switch c.Status {
	case Added:
		return fmt.Sprintf("%s: only in the patched object, %d bytes", name, c.PatchedSize)
	case Removed:
		return fmt.Sprintf("%s: only in the stock object, %d bytes", name, c.StockSize)
	default:
		return fmt.Sprintf("%s: %d bytes, were %d; %s", name, c.PatchedSize, c.StockSize, c.First)
	}
}
