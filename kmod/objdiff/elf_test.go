package objdiff

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// image is an ELF object written by hand.
type image struct {
	header   func(*elf.Header64)
	sections []part
	symbols  []elf.Sym64 // without the empty first one; Name is set by names
	names    []string
}

type part struct {
	name  string
	kind  elf.SectionType
	flags elf.SectionFlag
	info  uint32
	size  uint64 // if it has no data
	data  []byte
}

const (
	code       = elf.SHF_ALLOC | elf.SHF_EXECINSTR
	readOnly   = elf.SHF_ALLOC
	relocating = elf.SHT_RELA //nolint:misspell // as in the ELF specification
)

func symbol64(kind elf.SymType, bind elf.SymBind, section uint16, value, size uint64) elf.Sym64 {
	return elf.Sym64{Info: elf.ST_INFO(bind, kind), Shndx: section, Value: value, Size: size}
}

func relocations(relocs ...elf.Rela64) []byte { return encode(relocs) }

func encode(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, order, v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// bytes returns the object: its header, the parts, the symbol table, its strings, the names of
// the sections, and the section headers.
func (m image) bytes() []byte {
	strings := []byte{0}
	symbols := []elf.Sym64{{}}
	for i, s := range m.symbols {
		s.Name = uint32(len(strings))
		strings = append(append(strings, m.names[i]...), 0)
		symbols = append(symbols, s)
	}
	table := uint32(len(m.sections) + 1)
	parts := append(append([]part{{}}, m.sections...),
		part{name: ".symtab", kind: elf.SHT_SYMTAB, data: encode(symbols)},
		part{name: ".strtab", kind: elf.SHT_STRTAB, data: strings})
	names := []byte{0}
	var headers []elf.Section64
	body := make([]byte, binary.Size(elf.Header64{}))
	add := func(p part) {
		h := elf.Section64{
			Name: uint32(len(names)), Type: uint32(p.kind), Flags: uint64(p.flags), Info: p.info,
			Off: uint64(len(body)), Size: uint64(len(p.data)) + p.size, Addralign: 1,
		}
		switch p.kind {
		case elf.SHT_SYMTAB:
			h.Link, h.Entsize = table+1, elf.Sym64Size
		case relocating:
			h.Link, h.Entsize = table, 24
		}
		names = append(append(names, p.name...), 0)
		body = append(body, p.data...)
		headers = append(headers, h)
	}
	for _, p := range parts {
		add(p)
	}
	shstrtab := part{name: ".shstrtab", kind: elf.SHT_STRTAB}
	shstrtab.data = append(append(bytes.Clone(names), shstrtab.name...), 0)
	add(shstrtab)
	h := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: uint64(len(body)),
		Ehsize: 64, Shentsize: 64, Shnum: uint16(len(headers)), Shstrndx: uint16(len(headers) - 1),
	}
	copy(h.Ident[:], elf.ELFMAG+"\x02\x01\x01")
	if m.header != nil {
		m.header(&h)
	}
	copy(body, encode(h))
	return append(body, encode(headers)...)
}

// small has a function that refers to a string, a table and a function of another object.
func small() image {
	return image{
		sections: []part{
			{name: ".text", kind: elf.SHT_PROGBITS, flags: code, data: make([]byte, 32)},
			{name: ".rodata", kind: elf.SHT_PROGBITS, flags: readOnly, data: []byte("hello\x00\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08")},
			{name: ".bss", kind: elf.SHT_NOBITS, flags: elf.SHF_ALLOC | elf.SHF_WRITE, size: 8},
			{name: ".rela.text", kind: relocating, info: 1, data: relocations(
				elf.Rela64{Off: 4, Info: elf.R_INFO(3, uint32(elf.R_X86_64_32S))},
				elf.Rela64{Off: 12, Info: elf.R_INFO(3, uint32(elf.R_X86_64_32S)), Addend: 8},
				elf.Rela64{Off: 20, Info: elf.R_INFO(6, uint32(elf.R_X86_64_PLT32)), Addend: -4},
			)},
		},
		symbols: []elf.Sym64{
			symbol64(elf.STT_FILE, elf.STB_LOCAL, uint16(elf.SHN_ABS), 0, 0),
			symbol64(elf.STT_SECTION, elf.STB_LOCAL, 1, 0, 0),
			symbol64(elf.STT_SECTION, elf.STB_LOCAL, 2, 0, 0),
			symbol64(elf.STT_OBJECT, elf.STB_LOCAL, 2, 8, 8),
			symbol64(elf.STT_FUNC, elf.STB_GLOBAL, 1, 0, 32),
			symbol64(elf.STT_NOTYPE, elf.STB_GLOBAL, 0, 0, 0),
			symbol64(elf.STT_OBJECT, elf.STB_GLOBAL, 3, 0, 8),
		},
		names: []string{"small.c", "", "", "table", "f", "elsewhere", "counter"},
	}
}

func read(t *testing.T, m image) *Object {
	t.Helper()
	o, err := Read(bytes.NewReader(m.bytes()))
	require.NoError(t, err)
	return o
}

func TestReadResolves(t *testing.T) {
	o := read(t, small())
	var f *symbol
	for _, s := range o.symbols {
		if s.name == "f" {
			f = s
		}
	}
	require.NotNil(t, f)
	var targets []string
	for _, r := range o.relocsOf(f) {
		targets = append(targets, o.resolve(f, r).String())
	}
	require.Equal(t, []string{`"hello"`, "table", "elsewhere-0x4"}, targets)
}

func TestReadRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*image)
		want  string
	}{
		{"another machine", func(m *image) {
			m.header = func(h *elf.Header64) { h.Machine = uint16(elf.EM_AARCH64) }
		}, "want a relocatable object for x86-64"},
		{"a program", func(m *image) {
			m.header = func(h *elf.Header64) { h.Type = uint16(elf.ET_EXEC) }
		}, "want a relocatable object for x86-64"},
		{"a relocation behind the code", func(m *image) {
			m.sections[3].data = relocations(elf.Rela64{Off: 30, Info: elf.R_INFO(1, uint32(elf.R_X86_64_32))})
		}, "relocation at 0x1e lies outside of its section of 0x20 bytes"},
		{"a relocation without symbol", func(m *image) {
			m.sections[3].data = relocations(elf.Rela64{Info: elf.R_INFO(8, uint32(elf.R_X86_64_32))})
		}, "relocation at 0x0 names symbol 8 of 7"},
		{"a relocation for threads", func(m *image) {
			m.sections[3].data = relocations(elf.Rela64{Off: 8, Info: elf.R_INFO(1, uint32(elf.R_X86_64_TLSGD))})
		}, "relocation at 0x8 is of kind R_X86_64_TLSGD"},
		{"a function longer than the code", func(m *image) {
			m.symbols[4].Size = 33
		}, "symbol f: 0x21 bytes at 0x0 lie outside of section .text of 0x20 bytes"},
		{"a function that ends beyond all offsets", func(m *image) {
			m.symbols[4].Value, m.symbols[4].Size = 8, 1<<64-4
		}, "lie outside of section .text"},
		{"code without a function", func(m *image) {
			m.sections[0].data = make([]byte, 32+64)
		}, "section .text: code at 0x20 to 0x60 belongs to no function"},
		{"a reference without a function", func(m *image) {
			m.symbols[4].Size = 16
		}, "section .text: code at 0x10 to 0x20 belongs to no function"},
		{"compressed code", func(m *image) {
			m.sections[0].flags |= elf.SHF_COMPRESSED
		}, "section 1 (.text): compressed code or data is not expected"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := small()
			tt.spoil(&m)
			_, err := Read(bytes.NewReader(m.bytes()))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestReadTruncated(t *testing.T) {
	data := small().bytes()
	for _, n := range []int{0, 3, 63, 64, len(data) / 2, len(data) - 1} {
		_, err := Read(bytes.NewReader(data[:n]))
		require.Error(t, err, "%d of %d bytes", n, len(data))
	}
}

func TestFunctionWithoutSize(t *testing.T) {
	m := small()
	m.symbols[4].Size = 0
	m.symbols = append(m.symbols, symbol64(elf.STT_FUNC, elf.STB_GLOBAL, 1, 24, 0))
	m.names = append(m.names, "g")
	o := read(t, m)
	sizes := map[string]uint64{}
	for _, s := range o.symbols {
		sizes[s.name] = s.end - s.start
	}
	require.Equal(t, map[string]uint64{"f": 24, "g": 8, "table": 8, "counter": 8}, sizes)
}

func FuzzCompare(f *testing.F) {
	stock := small().bytes()
	other := small()
	other.sections[1].data[0] = 'j'
	f.Add(stock, other.bytes())
	f.Add(stock, stock[:100])
	f.Fuzz(func(t *testing.T, stock, patched []byte) {
		a, err := Read(bytes.NewReader(stock))
		if err != nil {
			return
		}
		b, err := Read(bytes.NewReader(patched))
		if err != nil {
			return
		}
		d := Compare(a, b)
		count := d.Functions.Changed + d.Functions.Added + d.Functions.Removed + d.Data.Changed + d.Data.Added + d.Data.Removed
		require.Len(t, d.Changes, count)
		report, err := Check(d, nil)
		require.Equal(t, len(d.Changes) > 0, err != nil)
		require.NotEmpty(t, report.String())
		require.Empty(t, Compare(a, a).Changes)
	})
}
