package uki

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// section is one that is added to the stub.
type section struct {
	name string // 8 bytes or fewer
	data io.Reader
	size int64
}

// page is the alignment in memory of the sections that are added: the kernel's
// own are run from there, and a page holds no two of them.
const page = 4096

// initialized is the characteristics of a section that is only read:
// IMAGE_SCN_CNT_INITIALIZED_DATA and IMAGE_SCN_MEM_READ.
const initialized = 0x40000040

// Offsets in a PE file, from its signature (PE format, "COFF File Header",
// "Optional Header").
const (
	fileHeader     = 4
	optionalHeader = fileHeader + 20
)

// write writes the stub with sections added to w and returns the number of bytes,
// a multiple of 8. What the stub has after its last section, symbols for a
// debugger, is left out.
func write(w io.Writer, stub []byte, sections []section) (int64, error) {
	file, err := pe.NewFile(bytes.NewReader(stub))
	if err != nil {
		return 0, fmt.Errorf("stub: %w", err)
	}
	optional, ok := file.OptionalHeader.(*pe.OptionalHeader64)
	if !ok {
		return 0, errors.New("stub: not a 64-bit EFI program")
	}
	at := int64(binary.LittleEndian.Uint32(stub[0x3c:])) // checked by pe.NewFile
	table := at + optionalHeader + int64(file.SizeOfOptionalHeader)
	end := table + int64(binary.Size(pe.SectionHeader32{})*(len(file.Sections)+len(sections)))
	if end > int64(optional.SizeOfHeaders) {
		return 0, fmt.Errorf("stub: its headers end at %d of %d bytes: no room for %d sections", table, optional.SizeOfHeaders, len(sections))
	}
	raw, err := rawEnd(file, int64(len(stub)))
	if err != nil {
		return 0, fmt.Errorf("stub: %w", err)
	}

	l := layout{
		file: alignUp(raw, int64(optional.FileAlignment)), memory: alignUp(int64(optional.SizeOfImage), page),
		fileAlign: int64(optional.FileAlignment), memoryAlign: max(page, int64(optional.SectionAlignment)),
	}
	head := bytes.Clone(stub[:raw])
	into := head[table+int64(binary.Size(pe.SectionHeader32{})*len(file.Sections)):]
	for _, s := range sections {
		header, err := l.place(s)
		if err != nil {
			return 0, err
		}
		n, err := binary.Encode(into, binary.LittleEndian, header)
		if err != nil {
			return 0, err
		}
		into = into[n:]
		optional.SizeOfInitializedData += header.SizeOfRawData
	}
	file.NumberOfSections += uint16(len(sections))
	file.PointerToSymbolTable, file.NumberOfSymbols = 0, 0
	optional.SizeOfImage = uint32(alignUp(l.memory, int64(optional.SectionAlignment)))
	optional.CheckSum = 0 // firmware looks at none
	for offset, v := range map[int64]any{at + fileHeader: file.FileHeader, at + optionalHeader: optional} {
		if _, err := binary.Encode(head[offset:], binary.LittleEndian, v); err != nil {
			return 0, err
		}
	}
	return l.file, writeAll(w, head, sections, l.fileAlign)
}

// rawEnd is where the last section of the stub ends in its file.
func rawEnd(file *pe.File, size int64) (int64, error) {
	var end int64
	for _, s := range file.Sections {
		end = max(end, int64(s.Offset)+int64(s.Size))
	}
	if end == 0 || end > size {
		return 0, fmt.Errorf("its sections end at %d, it has %d bytes", end, size)
	}
	return end, nil
}

// layout is where the next section comes.
type layout struct{ file, memory, fileAlign, memoryAlign int64 }

// limit is a bound on positions in a PE file: they are numbers of 32 bits.
const limit = 1<<32 - 1<<20

func (l *layout) place(s section) (*pe.SectionHeader32, error) {
	h := &pe.SectionHeader32{
		VirtualSize: uint32(s.size), VirtualAddress: uint32(l.memory),
		SizeOfRawData: uint32(alignUp(s.size, l.fileAlign)), PointerToRawData: uint32(l.file), Characteristics: initialized,
	}
	copy(h.Name[:], s.name)
	l.file = alignUp(l.file+s.size, l.fileAlign)
	l.memory = alignUp(l.memory+s.size, l.memoryAlign)
	if s.size <= 0 || len(s.name) > len(h.Name) || l.file > limit || l.memory > limit {
		return nil, fmt.Errorf("section %s of %d bytes does not fit into an EFI program", s.name, s.size)
	}
	return h, nil
}

func writeAll(w io.Writer, head []byte, sections []section, align int64) error {
	pad := func(n int64) error {
		_, err := w.Write(make([]byte, alignUp(n, align)-n))
		return err
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	if err := pad(int64(len(head))); err != nil {
		return err
	}
	for _, s := range sections {
		n, err := io.Copy(w, s.data)
		if err != nil {
			return fmt.Errorf("section %s: %w", s.name, err)
		}
		if n != s.size {
			return fmt.Errorf("section %s: %d bytes became %d while they were read", s.name, s.size, n)
		}
		if err := pad(n); err != nil {
			return err
		}
	}
	return nil
}

func alignUp(n, to int64) int64 { return (n + to - 1) / to * to }
