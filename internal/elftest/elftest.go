// Package elftest makes ELF files for tests: with the headers and sections that
// a reader looks at, but nothing that could be run.
package elftest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Section is a section of a file.
type Section struct {
	Name string
	Type elf.SectionType
	Link uint32 // index of another section, counted from 1 in the order given
	Size uint64 // of an entry
	Data []byte
}

// Bytes makes an x86-64 file of the given sections, with an interpreter if
// interp is not empty.
func Bytes(t testing.TB, typ elf.Type, interp string, sections ...Section) []byte {
	t.Helper()
	const head, phead, shead = 64, 56, 64
	var body, names bytes.Buffer
	names.WriteByte(0)
	headers := []elf.Section64{{}}
	put := func(s Section) {
		headers = append(headers, elf.Section64{
			Name: uint32(names.Len()), Type: uint32(s.Type), Link: s.Link, Entsize: s.Size, Addralign: 1,
			Off: head + phead + uint64(body.Len()), Size: uint64(len(s.Data)),
		})
		names.WriteString(s.Name + "\x00")
		body.Write(s.Data)
	}
	put(Section{Name: ".interp", Type: elf.SHT_PROGBITS, Data: []byte(interp + "\x00")})
	for _, s := range sections {
		if s.Link != 0 {
			s.Link++ // .interp comes first
		}
		put(s)
	}
	put(Section{Name: ".shstrtab", Type: elf.SHT_STRTAB})
	headers[len(headers)-1].Size = uint64(names.Len())
	body.Write(names.Bytes())

	h := elf.Header64{
		Type: uint16(typ), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: head,
		Phoff: head, Phentsize: phead, Shoff: head + phead + uint64(body.Len()), Shentsize: shead,
		Shnum: uint16(len(headers)), Shstrndx: uint16(len(headers) - 1),
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	if interp != "" {
		h.Phnum = 1
	}
	program := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: headers[1].Off, Filesz: headers[1].Size}
	var out bytes.Buffer
	for _, v := range []any{h, program, body.Bytes(), headers} {
		require.NoError(t, binary.Write(&out, binary.LittleEndian, v))
	}
	return out.Bytes()
}

// Library makes a shared library that needs others.
func Library(t testing.TB, soname string, needed ...string) []byte {
	t.Helper()
	return dynamic(t, "", soname, needed)
}

// Program makes a program that needs libraries and has an interpreter.
func Program(t testing.TB, interp string, needed ...string) []byte {
	t.Helper()
	return dynamic(t, interp, "", needed)
}

func dynamic(t testing.TB, interp, soname string, needed []string) []byte {
	t.Helper()
	var dyn, str bytes.Buffer
	str.WriteByte(0)
	tag := func(tag elf.DynTag, s string) {
		require.NoError(t, binary.Write(&dyn, binary.LittleEndian, elf.Dyn64{Tag: int64(tag), Val: uint64(str.Len())}))
		str.WriteString(s + "\x00")
	}
	if soname != "" {
		tag(elf.DT_SONAME, soname)
	}
	for _, n := range needed {
		tag(elf.DT_NEEDED, n)
	}
	dyn.Write(make([]byte, 16)) // DT_NULL
	return Bytes(t, elf.ET_DYN, interp,
		Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Data: str.Bytes()},
		Section{Name: ".dynamic", Type: elf.SHT_DYNAMIC, Link: 1, Size: 16, Data: dyn.Bytes()})
}
