package runtest

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// Library returns a shared library for x86-64 that has a soname and needs
// others, but nothing that could be run.
func Library(t testing.TB, soname string, needed ...string) []byte {
	t.Helper()
	return object(t, "", soname, needed)
}

// Program returns a dynamically linked program, as Library does.
func Program(t testing.TB, needed ...string) []byte {
	t.Helper()
	return object(t, "/lib64/ld-linux-x86-64.so.2", "", needed)
}

// object lays out an ELF file: its header, the header of the segment with the
// interpreter's name, the sections' content, the sections' headers.
func object(t testing.TB, interp, soname string, needed []string) []byte {
	t.Helper()
	var dynamic, dynstr bytes.Buffer
	dynstr.WriteByte(0)
	tag := func(tag elf.DynTag, s string) {
		require.NoError(t, binary.Write(&dynamic, binary.LittleEndian, elf.Dyn64{Tag: int64(tag), Val: uint64(dynstr.Len())}))
		dynstr.WriteString(s + "\x00")
	}
	if soname != "" {
		tag(elf.DT_SONAME, soname)
	}
	for _, name := range needed {
		tag(elf.DT_NEEDED, name)
	}
	dynamic.Write(make([]byte, 16)) // DT_NULL

	const head, segment, section = 64, 56, 64
	const names = "\x00.interp\x00.dynstr\x00.dynamic\x00.shstrtab\x00"
	var body bytes.Buffer
	sections := []elf.Section64{{}}
	for _, s := range []struct {
		name string
		elf.Section64
		data []byte
	}{
		{".interp", elf.Section64{Type: uint32(elf.SHT_PROGBITS)}, []byte(interp + "\x00")},
		{".dynstr", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, dynstr.Bytes()},
		{".dynamic", elf.Section64{Type: uint32(elf.SHT_DYNAMIC), Link: 2, Entsize: 16}, dynamic.Bytes()},
		{".shstrtab", elf.Section64{Type: uint32(elf.SHT_STRTAB)}, []byte(names)},
	} {
		s.Name = uint32(bytes.Index([]byte(names), []byte(s.name+"\x00")))
		s.Off, s.Size, s.Addralign = head+segment+uint64(body.Len()), uint64(len(s.data)), 1
		sections = append(sections, s.Section64)
		body.Write(s.data)
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: head,
		Phoff: head, Phentsize: segment, Shoff: head + segment + uint64(body.Len()),
		Shentsize: section, Shnum: uint16(len(sections)), Shstrndx: uint16(len(sections) - 1),
	}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	if interp != "" {
		h.Phnum = 1
	}
	program := elf.Prog64{Type: uint32(elf.PT_INTERP), Off: sections[1].Off, Filesz: sections[1].Size}
	var out bytes.Buffer
	for _, part := range []any{h, program, body.Bytes(), sections} {
		require.NoError(t, binary.Write(&out, binary.LittleEndian, part))
	}
	return out.Bytes()
}
