package measure

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// wordSize is the size in bytes of a word of a pattern.
const wordSize = 8

// poison is what an owner fills its memory with before data is to arrive in
// it, as a 32-bit word. A pattern holds it no more often than any other value.
const poison = 0xb5c0ffee

// A pattern is data in which each word tells where it belongs: word i is a
// bijection of i and the key, so that no two words of a buffer are equal and a
// word found in the wrong place leads back to its own.
type pattern struct {
	key uint64
}

// newPattern returns the pattern of one pass between two GPUs. Passes that
// differ in any argument have unrelated patterns.
func newPattern(seed uint64, initiator, peer string, d Direction, phase Phase) pattern {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s %s %s", seed, initiator, peer, d, phase)
	return pattern{h.Sum64()}
}

// word returns word i.
func (p pattern) word(i uint64) uint64 { return mix(i + p.key) }

// index returns the i for which word(i) is w.
func (p pattern) index(w uint64) uint64 { return unmix(w) - p.key }

// fill writes the pattern of a buffer's bytes at offset into b. Both are
// multiples of wordSize.
func (p pattern) fill(b []byte, offset int64) {
	i := uint64(offset / wordSize)
	for ; len(b) > 0; b = b[wordSize:] {
		binary.LittleEndian.PutUint64(b, p.word(i))
		i++
	}
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014; constants of Stafford's variant 13).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unmix is the inverse of mix: its factors are the inverses modulo 2^64.
func unmix(z uint64) uint64 {
	z = (z ^ z>>31 ^ z>>62) * 0x319642b2d24d8ec3
	z = (z ^ z>>27 ^ z>>54) * 0x96de1b173f119089
	return z ^ z>>30 ^ z>>60
}

// A comparison says what a window should hold and what may be there instead.
type comparison struct {
	want     pattern
	previous pattern // of the pass before, or the zero pattern
	size     int64   // of the buffer, in bytes
}

// compare adds what is wrong with b, the bytes at offset of the buffer, to c.
func (m comparison) compare(c *Check, b []byte, offset int64) {
	c.Bytes += int64(len(b))
	i := uint64(offset / wordSize)
	for ; len(b) > 0; b = b[wordSize:] {
		got, want := binary.LittleEndian.Uint64(b), m.want.word(i)
		if got != want {
			m.add(c, i, got, want)
		}
		i++
	}
}

// add records that word i is got instead of want.
func (m comparison) add(c *Check, i, got, want uint64) {
	kind := m.classify(i, got)
	c.Wrong++
	if c.Kinds == nil {
		c.Kinds = map[WrongKind]int64{}
	}
	c.Kinds[kind]++
	if c.First != nil {
		return
	}
	c.First = &Mismatch{
		Offset: int64(i) * wordSize,
		Want:   fmt.Sprintf("%016x", want),
		Got:    fmt.Sprintf("%016x", got),
		Kind:   kind,
	}
	if kind == Misplaced {
		c.First.From = int64(m.want.index(got)) * wordSize
	}
}

// classify names what got is, in place of word i.
func (m comparison) classify(i, got uint64) WrongKind {
	switch {
	case got == poison<<32|poison:
		return Unwritten
	case got == 0:
		return Zero
	case got == ^uint64(0):
		return Ones
	case m.previous != pattern{} && got == m.previous.word(i):
		return Stale
	case m.want.index(got) < uint64(m.size/wordSize):
		return Misplaced
	}
	return Foreign
}
