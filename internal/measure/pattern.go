package measure

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"mkp2pimg/internal/cuda/kernels"
)

// wordSize is the size in bytes of a word of a pattern.
const wordSize = 8

// poison is what an owner fills its memory with before data is to arrive in
// it, as a 32-bit word. A pattern holds it no more often than any other value.
const poison = 0xb5c0ffee

// newPattern returns the pattern of one pass between two GPUs. Passes that
// differ in any argument have unrelated patterns.
func newPattern(seed uint64, initiator, peer string, d Direction, m Method, phase Phase) kernels.Pattern {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s %s %s %s", seed, initiator, peer, d, m, phase)
	return kernels.Pattern{Key: h.Sum64()}
}

// fillPoison fills b with poison.
func fillPoison(b []byte) {
	for i := 0; i+4 <= len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], poison)
	}
}

// A comparison says what a window should hold and what may be there instead.
type comparison struct {
	want     kernels.Pattern
	previous kernels.Pattern // of the pass before, or the zero pattern
	size     int64           // of the buffer, in bytes
}

// compare adds what is wrong with b, the bytes at offset of the buffer, to c.
func (m comparison) compare(c *Check, b []byte, offset int64) {
	c.Bytes += int64(len(b))
	i := uint64(offset / wordSize)
	for ; len(b) > 0; b = b[wordSize:] {
		got, want := binary.LittleEndian.Uint64(b), m.want.Word(i)
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
		c.First.From = int64(m.want.Index(got)) * wordSize
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
	case m.previous != kernels.Pattern{} && got == m.previous.Word(i):
		return Stale
	case m.want.Index(got) < uint64(m.size/wordSize):
		return Misplaced
	}
	return Foreign
}
