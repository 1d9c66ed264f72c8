package initramfs

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// section is a section of an ELF file made for a test.
type section struct {
	name string
	typ  elf.SectionType
	link uint32 // index of another section, counted from 1 in the order given
	size uint64 // of an entry
	data []byte
}

// elfBytes makes an x86-64 ELF file of the given sections, with an interpreter
// if interp is not empty.
func elfBytes(t *testing.T, typ elf.Type, interp string, sections ...section) []byte {
	t.Helper()
	const head, phead, shead = 64, 56, 64
	var body, names bytes.Buffer
	names.WriteByte(0)
	headers := []elf.Section64{{}}
	put := func(s section) {
		headers = append(headers, elf.Section64{
			Name: uint32(names.Len()), Type: uint32(s.typ), Link: s.link, Entsize: s.size, Addralign: 1,
			Off: head + phead + uint64(body.Len()), Size: uint64(len(s.data)),
		})
		names.WriteString(s.name + "\x00")
		body.Write(s.data)
	}
	put(section{name: ".interp", typ: elf.SHT_PROGBITS, data: []byte(interp + "\x00")})
	for _, s := range sections {
		if s.link != 0 {
			s.link++ // .interp comes first
		}
		put(s)
	}
	put(section{name: ".shstrtab", typ: elf.SHT_STRTAB})
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

// libraryBytes makes a shared library, or a program if interp is not empty.
func libraryBytes(t *testing.T, interp, soname string, needed ...string) []byte {
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
	return elfBytes(t, elf.ET_DYN, interp,
		section{name: ".dynstr", typ: elf.SHT_STRTAB, data: str.Bytes()},
		section{name: ".dynamic", typ: elf.SHT_DYNAMIC, link: 1, size: 16, data: dyn.Bytes()})
}

// moduleBytes makes a kernel module with the given .modinfo entries.
func moduleBytes(t *testing.T, info ...string) []byte {
	t.Helper()
	return elfBytes(t, elf.ET_REL, "",
		section{name: ".strtab", typ: elf.SHT_STRTAB, data: []byte("\x00init_module\x00")},
		section{name: ".symtab", typ: elf.SHT_SYMTAB, link: 1, size: 24, data: append(make([]byte, 24), 1, 0, 0, 0, 0x12, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
		section{name: ".modinfo", typ: elf.SHT_PROGBITS, data: []byte(strings.Join(info, "\x00") + "\x00")})
}

// writeFiles makes files, or symbolic links for contents that begin with "-> ".
func writeFiles(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if target, ok := strings.CutPrefix(string(data), "-> "); ok {
			require.NoError(t, os.Symlink(target, file))
			continue
		}
		require.NoError(t, os.WriteFile(file, data, 0o600))
	}
}
