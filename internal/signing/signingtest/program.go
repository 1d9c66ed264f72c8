package signingtest

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
)

// Program is the smallest EFI program that tools for signatures accept: headers
// of 512 bytes and a section .text of 512. Nothing runs it.
func Program() []byte {
	const align = 0x200
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a buffer takes all
	b.WriteString("MZ")
	b.Write(make([]byte, 0x3c-2))
	write(uint32(0x40))
	b.WriteString("PE\x00\x00")
	optional := pe.OptionalHeader64{
		Magic: 0x20b, AddressOfEntryPoint: align, BaseOfCode: align, SectionAlignment: align, FileAlignment: align,
		SizeOfCode: align, SizeOfImage: 2 * align, SizeOfHeaders: align, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, NumberOfRvaAndSizes: 16,
	}
	write(pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE,
	})
	write(optional)
	text := pe.SectionHeader32{VirtualSize: align, VirtualAddress: align, SizeOfRawData: align, PointerToRawData: align, Characteristics: 0x60000020}
	copy(text.Name[:], ".text")
	write(text)
	b.Write(make([]byte, align-b.Len()))
	b.Write(bytes.Repeat([]byte{0xc3}, align)) // ret
	return b.Bytes()
}
