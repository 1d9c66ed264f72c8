package objdiff

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// target is what a relocation aims at.
type target struct {
	symbol *symbol // a function or datum of the object, or nil
	// name is that of a symbol that the object does not define, or the content of a datum
	// without a name, such as a string literal, as it would stand in source.
	name   string
	offset int64 // from the start of symbol, or what is added to the address of name
}

func (t target) String() string {
	name := t.name
	if t.symbol != nil {
		name = t.symbol.name
	}
	if t.offset == 0 {
		return name
	}
	return fmt.Sprintf("%s%+#x", name, t.offset)
}

// aim returns the section and the offset in it that a relocation of section from aims at.
// It is not ok if the object does not define the symbol.
func (o *Object) aim(from *section, r reloc) (to int, offset uint64, ok bool) {
	if r.symbol == 0 {
		return 0, 0, false
	}
	s := o.table[r.symbol-1]
	if s.Section == elf.SHN_UNDEF || int(s.Section) >= len(o.sections) {
		return 0, 0, false
	}
	offset = s.Value + uint64(r.addend)
	if from.flags&elf.SHF_EXECINSTR != 0 && relative(r.kind) {
		offset += instructionRest(from.data, r.offset)
	}
	return int(s.Section), offset, true
}

// relative reports whether the processor adds the address of the next instruction.
func relative(kind elf.R_X86_64) bool {
	switch kind {
	case elf.R_X86_64_PC32, elf.R_X86_64_PLT32:
		return true
	default:
		return false
	}
}

// instructionRest returns how many bytes lie between the displacement at offset in code and
// the next instruction, itself included: 4, and an immediate operand if there is one. The
// opcodes are those of the Intel SDM, volume 2, appendix A, that have both.
func instructionRest(code []byte, offset uint64) uint64 {
	if offset < 2 {
		return 4
	}
	opcode, modRM := code[offset-2], code[offset-1]
	if modRM&0xc7 != 0x05 { // not relative to RIP: a call or a jump
		return 4
	}
	before := func(n uint64) byte {
		if n > offset {
			return 0
		}
		return code[offset-n]
	}
	register := modRM >> 3 & 7
	switch opcode {
	case 0x6b, 0x80, 0x83, 0xc6: // imul, arithmetic, mov with one byte
		return 5
	case 0xc0, 0xc1: // shift, or lock xadd
		xadd := before(3) == 0x0f && (before(4) == 0xf0 || before(5) == 0xf0)
		if !xadd {
			return 5
		}
	case 0xa4, 0xac, 0xba: // shld, shrd, bt with one byte
		if before(3) == 0x0f {
			return 5
		}
	case 0xf6: // test
		if register < 2 {
			return 5
		}
	case 0x69, 0x81: // imul, arithmetic
		return 4 + immediate(before)
	case 0xc7, 0xf7: // mov, test; others of these opcodes have no immediate operand
		if register == 0 || opcode == 0xf7 && register == 1 {
			return 4 + immediate(before)
		}
	}
	return 4
}

// immediate returns the size of a full immediate operand: two bytes after an operand size
// prefix, which may stand before a REX prefix.
func immediate(before func(uint64) byte) uint64 {
	if before(3) == 0x66 || before(3)&0xf0 == 0x40 && before(4) == 0x66 {
		return 2
	}
	return 4
}

// findAims notes the places without a name that relocations aim at: each ends the one before.
func (o *Object) findAims() {
	for i := range o.sections {
		from := &o.sections[i]
		for _, r := range from.relocs {
			to, offset, ok := o.aim(from, r)
			if ok && o.sections[to].at(offset) == nil {
				o.sections[to].aimedAt = append(o.sections[to].aimedAt, offset)
			}
		}
	}
	for i := range o.sections {
		slices.Sort(o.sections[i].aimedAt)
		o.sections[i].aimedAt = slices.Compact(o.sections[i].aimedAt)
	}
}

// resolve finds what a relocation of sym aims at. Offsets in a section say nothing, as they
// move when anything before them changes.
func (o *Object) resolve(sym *symbol, r reloc) target {
	return o.locate(&o.sections[sym.section], r, 0)
}

func (o *Object) locate(from *section, r reloc, nesting int) target {
	to, offset, ok := o.aim(from, r)
	if !ok {
		name := ""
		if r.symbol > 0 {
			name = o.table[r.symbol-1].Name
		}
		return target{name: name, offset: r.addend}
	}
	aimed := o.tracked[r.symbol]
	if aimed == nil {
		aimed = o.sections[to].at(offset)
	}
	if aimed != nil {
		return target{symbol: aimed, offset: int64(offset - aimed.start)}
	}
	return target{name: o.content(&o.sections[to], offset, nesting)}
}

// maxNesting bounds how deep data without names may refer to each other.
const maxNesting = 2

// content returns the text at offset in s, or the bytes and references up to the next place that is
// known to be something else. Zeros at the end of the bytes may be padding and don't count.
func (o *Object) content(s *section, offset uint64, nesting int) string {
	size := uint64(len(s.data))
	if offset >= size || nesting > maxNesting {
		return fmt.Sprintf("nothing known at 0x%x", offset)
	}
	if text, _, ok := bytes.Cut(s.data[offset:], []byte{0}); ok && len(text) > 0 && printable(text) {
		return strconv.Quote(string(text))
	}
	end := s.next(offset)
	data := slices.Clone(s.data[offset:end])
	var references strings.Builder
	for _, r := range s.relocsIn(offset, end) {
		clear(data[r.offset-offset : min(r.offset-offset+r.width(), uint64(len(data)))])
		t := o.locate(s, r, nesting+1)
		if t.symbol != nil {
			t.name, t.symbol = unnumbered(t.symbol.name), nil
		}
		fmt.Fprintf(&references, " %+#x %v", r.offset-offset, t)
	}
	return fmt.Sprintf("{%x%s}", bytes.TrimRight(data, "\x00"), &references)
}

// next returns the first offset behind the given one at which something else begins.
func (s *section) next(offset uint64) uint64 {
	end := uint64(len(s.data))
	if i, _ := slices.BinarySearch(s.aimedAt, offset+1); i < len(s.aimedAt) {
		end = min(end, s.aimedAt[i])
	}
	i, _ := slices.BinarySearchFunc(s.symbols, offset+1, func(sym *symbol, off uint64) int {
		return cmp.Compare(sym.start, off)
	})
	if i < len(s.symbols) {
		end = min(end, s.symbols[i].start)
	}
	return end
}

// printable reports whether text may be a string of the driver's source.
func printable(text []byte) bool {
	const escape = 0x1b // colours on terminals
	for _, c := range text {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' && c != escape {
			return false
		}
	}
	return utf8.Valid(text)
}
