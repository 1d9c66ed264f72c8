package farmtest

import (
	"bytes"
	"debug/pe"
	"encoding/binary"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// bootSector is a disk of 1 MiB whose boot sector sends a text to the first
// serial port and halts.
func bootSector(text string) []byte {
	disk := make([]byte, 1<<20)
	copy(disk, []byte{
		0xfa,       // cli
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0xbe, 0x40, 0x7c, // mov si, 0x7c40: the text
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x12, // jz end
		0x88, 0xc4, // mov ah, al
		0xba, 0xfd, 0x03, // mov dx, 0x3fd: line status
		0xec,       // wait: in al, dx
		0xa8, 0x20, // test al, 0x20: room for a byte
		0x74, 0xfb, // jz wait
		0x88, 0xe0, // mov al, ah
		0xba, 0xf8, 0x03, // mov dx, 0x3f8: data
		0xee,       // out dx, al
		0xeb, 0xe9, // jmp next
		0xf4,       // end: hlt
		0xeb, 0xfd, // jmp end
	})
	copy(disk[0x40:], text) // a zero follows
	disk[510], disk[511] = 0x55, 0xaa
	return disk
}

// efiProgram is an EFI program that says a text on the console and halts.
func efiProgram(t *testing.T, text string) []byte {
	t.Helper()
	const header, page = 0x200, 0x1000 // where the code is in the file, and in memory
	code := []byte{
		0x48, 0x83, 0xec, 0x28, // sub rsp, 0x28
		0x48, 0x8b, 0x4a, 0x40, // mov rcx, [rdx+0x40]: ConOut of the system table
		0x48, 0x8d, 0x15, 0x06, 0, 0, 0, // lea rdx, [rip+6]: the text
		0xff, 0x51, 0x08, // call [rcx+8]: OutputString
		0xf4,       // end: hlt
		0xeb, 0xfd, // jmp end
	}
	for _, unit := range append(utf16.Encode([]rune(text)), 0) {
		code = binary.LittleEndian.AppendUint16(code, unit)
	}
	var b bytes.Buffer
	b.WriteString("MZ")
	b.Write(make([]byte, 0x3c-b.Len()))
	for _, part := range []any{
		uint32(0x40), [4]byte{'P', 'E'},
		pe.FileHeader{
			Machine: pe.IMAGE_FILE_MACHINE_AMD64, NumberOfSections: 1, SizeOfOptionalHeader: uint16(binary.Size(pe.OptionalHeader64{})),
			Characteristics: pe.IMAGE_FILE_EXECUTABLE_IMAGE | pe.IMAGE_FILE_LARGE_ADDRESS_AWARE,
		},
		pe.OptionalHeader64{
			Magic: 0x20b, AddressOfEntryPoint: page, BaseOfCode: page, SizeOfCode: page,
			SectionAlignment: page, FileAlignment: header, SizeOfImage: 2 * page, SizeOfHeaders: header,
			Subsystem: pe.IMAGE_SUBSYSTEM_EFI_APPLICATION, NumberOfRvaAndSizes: 16,
		},
		pe.SectionHeader32{
			Name: [8]uint8{'.', 't', 'e', 'x', 't'}, VirtualSize: page, VirtualAddress: page, SizeOfRawData: header, PointerToRawData: header,
			Characteristics: pe.IMAGE_SCN_CNT_CODE | pe.IMAGE_SCN_MEM_EXECUTE | pe.IMAGE_SCN_MEM_READ,
		},
	} {
		require.NoError(t, binary.Write(&b, binary.LittleEndian, part))
	}
	b.Write(make([]byte, header-b.Len()))
	b.Write(code)
	b.Write(make([]byte, 2*header-b.Len()))
	return b.Bytes()
}
