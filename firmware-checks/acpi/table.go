package acpi

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// headerSize is the size of the header that every table has (ACPI
// Specification, "System Description Table Header").
const headerSize = 36

// ErrChecksum means that the bytes of a table don't add up to zero: it is
// damaged, or the firmware never got it right.
var ErrChecksum = errors.New("wrong checksum")

// open verifies that b is a whole table with this signature whose fixed part has
// at least size bytes, and returns it without anything behind its end.
func open(b []byte, signature string, size int) ([]byte, error) {
	if len(b) < headerSize {
		return nil, fmt.Errorf("%s: %d bytes are no ACPI table, its header has %d", signature, len(b), headerSize)
	}
	if got := string(b[:4]); got != signature {
		return nil, fmt.Errorf("%s: signature is %q", signature, got)
	}
	length := binary.LittleEndian.Uint32(b[4:])
	if length < uint32(size) || uint64(length) > uint64(len(b)) {
		return nil, fmt.Errorf("%s: header gives a length of %d, want %d to %d", signature, length, size, len(b))
	}
	b = b[:length]
	var sum byte
	for _, c := range b {
		sum += c
	}
	if sum != 0 {
		return nil, fmt.Errorf("%s: %w: bytes add up to 0x%02x", signature, ErrChecksum, sum)
	}
	return b, nil
}

// kinds says how the structures of a table begin: where their type and length
// are, and how long the structure of each type that is decoded must be.
type kinds struct {
	table  string
	header int // bytes that every structure has
	typ    func(s []byte) int
	length func(s []byte) int
	sizes  map[int]int
}

// each calls visit with every structure of a type in k.sizes, from off to the
// end of table b.
func (k kinds) each(b []byte, off int, visit func(typ int, s []byte) error) error {
	for off < len(b) {
		rest := b[off:]
		if len(rest) < k.header {
			return fmt.Errorf("%s: %d bytes left over at offset 0x%x", k.table, len(rest), off)
		}
		typ, length := k.typ(rest), k.length(rest)
		want := max(k.header, k.sizes[typ])
		if length < want || length > len(rest) {
			return fmt.Errorf("%s: structure of type 0x%x at offset 0x%x has a length of %d, want %d to %d",
				k.table, typ, off, length, want, len(rest))
		}
		if k.sizes[typ] > 0 {
			if err := visit(typ, rest[:length]); err != nil {
				return fmt.Errorf("%s: structure of type 0x%x at offset 0x%x: %w", k.table, typ, off, err)
			}
		}
		off += length
	}
	return nil
}

func u8(b []byte, off int) int     { return int(b[off]) }
func u16(b []byte, off int) int    { return int(binary.LittleEndian.Uint16(b[off:])) }
func u32(b []byte, off int) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
func u64(b []byte, off int) uint64 { return binary.LittleEndian.Uint64(b[off:]) }

// function words a requester ID: bus in bits 15:8, device in 7:3, function in
// 2:0.
func function(id int) string {
	return fmt.Sprintf("%02x:%02x.%x", id>>8, id>>3&0x1f, id&7)
}

// address words a requester ID in a segment.
func address(segment, id int) string { return fmt.Sprintf("%04x:%s", segment, function(id)) }
