package kernels

import (
	"encoding/binary"

	"mkp2pimg/internal/cuda"
)

// wordSize is the size in bytes of a word of a pattern.
const wordSize = 8

// golden is 2^64 divided by the golden ratio, the increment of SplitMix64
// (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014), and
// inverse the number that makes 1 of it modulo 2^64.
const (
	golden  = 0x9e3779b97f4a7c15
	inverse = 0xf1de83e19937733d
)

// A Pattern is data in which each 64-bit word tells where it belongs: word i is a
// bijection of i, so that no two words of a buffer are equal and a word found in
// the wrong place leads back to its own. Patterns of different keys are, but for
// the chance of one in 2^64 for each pair of words, different everywhere. The GPU
// makes and checks it at the speed of its memory: a word costs it one addition
// and one exclusive or.
type Pattern struct{ Key uint64 }

// Word returns word i.
func (p Pattern) Word(i uint64) uint64 {
	y := p.Key + i*golden
	return y ^ y>>32
}

// Index returns the i for which Word(i) is w.
func (p Pattern) Index(w uint64) uint64 { return ((w ^ w>>32) - p.Key) * inverse }

// Fill writes the bytes of the pattern from offset on into b. Both offset and the
// length of b are multiples of 8.
func (p Pattern) Fill(b []byte, offset int64) {
	for i := uint64(offset / wordSize); len(b) > 0; b = b[wordSize:] {
		binary.LittleEndian.PutUint64(b, p.Word(i))
		i++
	}
}

// ChainStride is the distance in bytes between the pointers of a chain, a cache
// line.
const ChainStride = 128

// Chain writes into b, a multiple of [ChainStride] long, the ring of pointers that
// [Kernels.Chase] follows when b's bytes lie at base.
func Chain(b []byte, base cuda.Ptr) {
	for at := 0; at < len(b); at += ChainStride {
		binary.LittleEndian.PutUint64(b[at:], uint64(base)+uint64((at+ChainStride)%len(b)))
	}
}

// ChainEnd returns where a walk over accesses pointers of a chain of size bytes at
// base ends.
func ChainEnd(base cuda.Ptr, size int64, accesses int) cuda.Ptr {
	return base + cuda.Ptr(int64(accesses)*ChainStride%size)
}
