package signingtest

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
)

// Program is a small EFI program: headers of 1024 bytes, in which there is room
// for sections to be added, and a section .text of 512. Nothing runs it.
func Program() []byte {
	const align, headers = 0x200, 0x400
	var b bytes.Buffer
	write := func(v any) { _ = binary.Write(&b, binary.LittleEndian, v) } // a buffer takes all
	b.WriteString("MZ")
	b.Write(make([]byte, 0x3c-2))
	write(uint32(0x40))
	b.WriteString("PE\x00\x00")
	optional := pe.OptionalHeader64{
		Magic: 0x20b, AddressOfEntryPoint: headers, BaseOfCode: headers, SectionAlignment: align, FileAlignment: align,
		SizeOfCode: align, SizeOfImage: headers + align, SizeOfHeaders: headers, Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, NumberOfRvaAndSizes: 16,
	}
	write(pe.FileHeader{
		Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(optional)),
		Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE,
	})
	write(optional)
	text := pe.SectionHeader32{VirtualSize: align, VirtualAddress: headers, SizeOfRawData: align, PointerToRawData: headers, Characteristics: 0x60000020}
	copy(text.Name[:], ".text")
	write(text)
	b.Write(make([]byte, headers-b.Len()))
	b.Write(bytes.Repeat([]byte{0xc3}, align)) // ret
	return b.Bytes()
}
