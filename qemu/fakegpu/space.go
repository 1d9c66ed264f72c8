package fakegpu

import (
	"encoding/binary"
)

// configSize is the length of an extended configuration space.
const configSize = 4096

// A space is a configuration space: values, and how writes change them.
type space struct {
	value [configSize]byte
	// write has ones where bits are writable, clear where writing one clears
	// the bit.
	write, clear [configSize]byte

	lastCap int // of the capability list, 0 while it is empty
	lastExt int // of the extended capability list, 0 while it is empty
}

func (s *space) u16(off int) uint16 { return binary.LittleEndian.Uint16(s.value[off:]) }
func (s *space) u32(off int) uint32 { return binary.LittleEndian.Uint32(s.value[off:]) }

// writable32 is the mask of a register's writable bits.
func (s *space) writable32(off int) uint32 { return binary.LittleEndian.Uint32(s.write[off:]) }

// set16 and set32 give a register a value and its writable bits.
func (s *space) set16(off int, v, writable uint16) {
	binary.LittleEndian.PutUint16(s.value[off:], v)
	binary.LittleEndian.PutUint16(s.write[off:], writable)
}

func (s *space) set32(off int, v, writable uint32) {
	binary.LittleEndian.PutUint32(s.value[off:], v)
	binary.LittleEndian.PutUint32(s.write[off:], writable)
}

// clear16 and clear32 say which bits of a register writing one clears.
func (s *space) clear16(off int, bits uint16) { binary.LittleEndian.PutUint16(s.clear[off:], bits) }
func (s *space) clear32(off int, bits uint32) { binary.LittleEndian.PutUint32(s.clear[off:], bits) }

// store is a write by software.
func (s *space) store(off int, p []byte) {
	for i, b := range p {
		w, c := s.write[off+i], s.clear[off+i]
		s.value[off+i] = (s.value[off+i]&^w | b&w) &^ (b & c)
	}
}

// capability appends a capability to the list.
func (s *space) capability(id uint8, off int) {
	s.value[off] = id
	prev := 0x34 // Capabilities Pointer, PCIe 6.0, 7.5.1.1.11
	if s.lastCap != 0 {
		prev = s.lastCap + 1
	}
	s.value[prev] = uint8(off)
	s.value[6] |= 1 << 4 // Status: capabilities list
	s.lastCap = off
}

// extended appends an extended capability to the list. The first must be at
// offset 0x100.
func (s *space) extended(id uint16, version uint8, off int) {
	s.set32(off, uint32(id)|uint32(version)<<16, 0)
	if s.lastExt != 0 {
		s.set32(s.lastExt, s.u32(s.lastExt)&0xfffff|uint32(off)<<20, 0)
	}
	s.lastExt = off
}
