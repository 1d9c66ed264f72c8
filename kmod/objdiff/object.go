package objdiff

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

var order = binary.LittleEndian

// Object is a relocatable object, ready to be compared.
type Object struct {
	sections []section // by ELF index
	table    []elf.Symbol
	symbols  []*symbol // functions and data in the order of the symbol table
	tracked  map[uint32]*symbol
}

// section is a part of the object. Its data is nil if it has none in the file, as .bss.
type section struct {
	flags   elf.SectionFlag
	data    []byte
	symbols []*symbol // sorted by start
	relocs  []reloc   // sorted by offset
	aimedAt []uint64  // offsets that relocations without a name of their own aim at, sorted
}

// symbol is a function or a datum.
type symbol struct {
	name string
	// file is the name of the source file of a local symbol. Files of the same name in
	// different folders are told apart by a number.
	file       string
	local      bool
	function   bool
	section    int
	start, end uint64 // offsets in the section
}

type reloc struct {
	offset uint64
	kind   elf.R_X86_64
	symbol uint32 // index in the symbol table
	addend int64
}

// Read reads a relocatable ELF object for x86-64.
func Read(r io.ReaderAt) (*Object, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 || f.Type != elf.ET_REL {
		return nil, fmt.Errorf("%v %v %v: want a relocatable object for x86-64 (ELFCLASS64 EM_X86_64 ET_REL)",
			f.Class, f.Machine, f.Type)
	}
	o := &Object{sections: make([]section, len(f.Sections)), tracked: map[uint32]*symbol{}}
	if o.table, err = f.Symbols(); err != nil {
		return nil, fmt.Errorf("symbol table: %w", err)
	}
	for i, s := range f.Sections {
		if err := o.readSection(i, s); err != nil {
			return nil, fmt.Errorf("section %d (%s): %w", i, s.Name, err)
		}
	}
	for i, s := range f.Sections {
		if err := o.readRelocs(s); err != nil {
			return nil, fmt.Errorf("section %d (%s): %w", i, s.Name, err)
		}
	}
	if err := o.readSymbols(f.Sections); err != nil {
		return nil, err
	}
	o.findAims()
	return o, nil
}

// compared reports whether what is in a section is compared: what is loaded, but not the
// tables for unwinding, which follow from the code, and notes.
func compared(s *elf.Section) bool {
	return s.Flags&elf.SHF_ALLOC != 0 && s.Type != elf.SHT_NOTE && s.Name != ".eh_frame"
}

func (o *Object) readSection(i int, s *elf.Section) error {
	if !compared(s) {
		return nil
	}
	o.sections[i].flags = s.Flags & (elf.SHF_WRITE | elf.SHF_EXECINSTR)
	if s.Type == elf.SHT_NOBITS {
		return nil
	}
	if s.Flags&elf.SHF_COMPRESSED != 0 {
		return errors.New("compressed code or data is not expected in an object")
	}
	data, err := s.Data()
	o.sections[i].data = data
	return err
}

// readRelocs reads the relocations that s holds for a section that is compared.
func (o *Object) readRelocs(s *elf.Section) error {
	if s.Type != elf.SHT_RELA || //nolint:misspell // as in the ELF specification
		s.Info >= uint32(len(o.sections)) || o.sections[s.Info].data == nil {
		return nil
	}
	data, err := s.Data()
	if err != nil {
		return err
	}
	size := binary.Size(elf.Rela64{})
	to := &o.sections[s.Info]
	for ; len(data) >= size; data = data[size:] {
		info := order.Uint64(data[8:])
		r := reloc{
			offset: order.Uint64(data),
			kind:   elf.R_X86_64(elf.R_TYPE64(info)),
			symbol: elf.R_SYM64(info),
			addend: int64(order.Uint64(data[16:])),
		}
		if r.width() == 0 {
			return fmt.Errorf("relocation at 0x%x is of kind %v, which is not expected in the driver", r.offset, r.kind)
		}
		if r.symbol > uint32(len(o.table)) {
			return fmt.Errorf("relocation at 0x%x names symbol %d of %d", r.offset, r.symbol, len(o.table))
		}
		if r.offset > uint64(len(to.data)) || uint64(len(to.data))-r.offset < r.width() {
			return fmt.Errorf("relocation at 0x%x lies outside of its section of 0x%x bytes", r.offset, len(to.data))
		}
		to.relocs = append(to.relocs, r)
	}
	slices.SortStableFunc(to.relocs, func(a, b reloc) int { return cmp.Compare(a.offset, b.offset) })
	return nil
}

// width is the number of bytes that the relocation fills in, or 0 if compilers don't use its kind
// for code and data of the kernel.
func (r reloc) width() uint64 {
	switch r.kind {
	case elf.R_X86_64_64, elf.R_X86_64_PC64:
		return 8
	case elf.R_X86_64_32, elf.R_X86_64_32S, elf.R_X86_64_PC32, elf.R_X86_64_PLT32:
		return 4
	default:
		return 0
	}
}

// readSymbols finds the functions and data in the symbol table. The table lacks the empty first symbol.
func (o *Object) readSymbols(sections []*elf.Section) error {
	file, files := "", map[string]int{}
	for i, s := range o.table { // i+1 is the symbol's index
		kind, local := elf.ST_TYPE(s.Info), elf.ST_BIND(s.Info) == elf.STB_LOCAL
		if kind == elf.STT_FILE {
			file = s.Name
			if files[s.Name]++; files[s.Name] > 1 {
				file = fmt.Sprintf("%s#%d", s.Name, files[s.Name])
			}
		}
		if int(s.Section) >= len(sections) || s.Section == elf.SHN_UNDEF || !compared(sections[s.Section]) {
			continue
		}
		at := sections[s.Section]
		code := at.Flags&elf.SHF_EXECINSTR != 0
		// Assembly gives a function no type unless asked to; labels of the compiler have no size.
		named := kind == elf.STT_FUNC || kind == elf.STT_OBJECT || kind == elf.STT_NOTYPE && s.Size > 0
		if !named {
			continue
		}
		if s.Value > at.Size || s.Size > at.Size-s.Value {
			return fmt.Errorf("symbol %s: 0x%x bytes at 0x%x lie outside of section %s of 0x%x bytes",
				s.Name, s.Size, s.Value, at.Name, at.Size)
		}
		sym := &symbol{
			name: s.Name, local: local, function: code,
			section: int(s.Section), start: s.Value, end: s.Value + s.Size,
		}
		if local {
			sym.file = file
		}
		o.symbols = append(o.symbols, sym)
		o.tracked[uint32(i+1)] = sym
		o.sections[s.Section].symbols = append(o.sections[s.Section].symbols, sym)
	}
	for i := range o.sections {
		o.sections[i].arrange(sections[i].Size)
		if err := o.sections[i].checkCovered(); err != nil {
			return fmt.Errorf("section %s: %w", sections[i].Name, err)
		}
	}
	return nil
}

// maxPadding is the most that the compiler leaves free to align a function: a cache line less a byte.
const maxPadding = 63

// checkCovered checks that all code belongs to a function: what does not would not be compared.
func (s *section) checkCovered() error {
	if s.flags&elf.SHF_EXECINSTR == 0 {
		return nil
	}
	end := uint64(0)
	gap := func(to uint64) error {
		if to > end && (to-end > maxPadding || len(s.relocsIn(end, to)) > 0) {
			return fmt.Errorf("code at 0x%x to 0x%x belongs to no function", end, to)
		}
		return nil
	}
	for _, sym := range s.symbols {
		if err := gap(sym.start); err != nil {
			return err
		}
		end = max(end, sym.end)
	}
	return gap(uint64(len(s.data)))
}

// arrange sorts the symbols, the widest and then a global one first of those at one place,
// and lets symbols without a size reach to the next.
func (s *section) arrange(size uint64) {
	slices.SortStableFunc(s.symbols, func(a, b *symbol) int {
		global := 0
		if a.local != b.local {
			global = 1
			if b.local {
				global = -1
			}
		}
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end), global, strings.Compare(a.name, b.name))
	})
	next := size
	for i, sym := range slices.Backward(s.symbols) {
		if sym.end == sym.start {
			sym.end = next
		}
		if i > 0 && s.symbols[i-1].start < sym.start {
			next = sym.start
		}
	}
}

// at returns the function or datum that covers the offset, or nil.
func (s *section) at(offset uint64) *symbol {
	i, found := slices.BinarySearchFunc(s.symbols, offset, func(sym *symbol, off uint64) int {
		return cmp.Compare(sym.start, off)
	})
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	start := s.symbols[i].start
	for i > 0 && s.symbols[i-1].start == start {
		i--
	}
	if offset < s.symbols[i].end {
		return s.symbols[i]
	}
	return nil
}

// relocsOf returns the relocations inside of sym.
func (o *Object) relocsOf(sym *symbol) []reloc {
	return o.sections[sym.section].relocsIn(sym.start, sym.end)
}

func (s *section) relocsIn(start, end uint64) []reloc {
	byOffset := func(r reloc, offset uint64) int { return cmp.Compare(r.offset, offset) }
	from, _ := slices.BinarySearchFunc(s.relocs, start, byOffset)
	to, _ := slices.BinarySearchFunc(s.relocs, end, byOffset)
	return s.relocs[from:to]
}

// bytesOf returns the bytes of sym with those blanked that relocations fill in, or nil if it
// has none in the file.
func (o *Object) bytesOf(sym *symbol) []byte {
	data := o.sections[sym.section].data
	if data == nil {
		return nil
	}
	code := slices.Clone(data[sym.start:sym.end])
	for _, r := range o.relocsOf(sym) {
		at := r.offset - sym.start
		clear(code[at:min(at+r.width(), uint64(len(code)))])
	}
	return code
}
