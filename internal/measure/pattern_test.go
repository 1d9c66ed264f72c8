package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda/kernels"
)

func TestPatternsOfPassesDiffer(t *testing.T) {
	seen := map[uint64]string{}
	for _, c := range []struct {
		name string
		p    kernels.Pattern
	}{
		{"base", newPattern(1, "a", "b", Write, CE, Before)},
		{"seed", newPattern(2, "a", "b", Write, CE, Before)},
		{"order of the pair", newPattern(1, "b", "a", Write, CE, Before)},
		{"direction", newPattern(1, "a", "b", Read, CE, Before)},
		{"method", newPattern(1, "a", "b", Write, SM, Before)},
		{"phase", newPattern(1, "a", "b", Write, CE, After)},
	} {
		for i := range uint64(1000) {
			w := c.p.Word(i)
			require.Empty(t, seen[w], "%s word %d", c.name, i)
			seen[w] = c.name
		}
	}
}

func TestCompareNamesWhatItFinds(t *testing.T) {
	const size, offset = 1 << 20, 8192
	m := comparison{
		want:     newPattern(3, "a", "b", Write, CE, After),
		previous: newPattern(3, "a", "b", Write, CE, Before),
		size:     size,
	}
	at := uint64(offset/wordSize + 5) // the word that is damaged
	for _, tc := range []struct {
		name string
		got  uint64
		want Mismatch
	}{
		{"poison", poison<<32 | poison, Mismatch{Kind: Unwritten}},
		{"zero", 0, Mismatch{Kind: Zero}},
		{"ones", ^uint64(0), Mismatch{Kind: Ones}},
		{"previous pass", m.previous.Word(at), Mismatch{Kind: Stale}},
		{"4 KiB further on", m.want.Word(at + 512), Mismatch{Kind: Misplaced, From: offset + 5*8 + 4096}},
		{"one bit flipped", m.want.Word(at) ^ 1<<17, Mismatch{Kind: Foreign}},
		{"pattern beyond the buffer", m.want.Word(size / wordSize), Mismatch{Kind: Foreign}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := make([]byte, 4096)
			m.want.Fill(b, offset)
			var good Check
			m.compare(&good, b, offset)
			assert.Equal(t, Check{Bytes: 4096}, good)

			for i := range 8 {
				b[5*8+i] = byte(tc.got >> (8 * i))
			}
			var c Check
			m.compare(&c, b, offset)
			assert.Equal(t, int64(1), c.Wrong)
			assert.Equal(t, map[WrongKind]int64{tc.want.Kind: 1}, c.Kinds)
			assert.Equal(t, int64(offset+5*8), c.First.Offset)
			assert.Equal(t, tc.want.Kind, c.First.Kind)
			assert.Equal(t, tc.want.From, c.First.From)
			assert.NotEqual(t, c.First.Want, c.First.Got)
		})
	}
}

func FuzzCompareCountsEveryChangedWord(f *testing.F) {
	f.Add(uint64(1), uint16(0), uint64(1))
	f.Add(uint64(2), uint16(511), ^uint64(0))
	f.Fuzz(func(t *testing.T, seed uint64, word uint16, flip uint64) {
		m := comparison{want: newPattern(seed, "a", "b", Write, CE, Before), size: 4096}
		b := make([]byte, 4096)
		m.want.Fill(b, 0)
		i := int(word) % 512
		for k := range 8 {
			b[i*8+k] ^= byte(flip >> (8 * k))
		}
		var c Check
		m.compare(&c, b, 0)
		if flip == 0 {
			assert.Zero(t, c.Wrong)
		} else {
			assert.Equal(t, int64(1), c.Wrong)
			assert.Equal(t, int64(i*8), c.First.Offset)
		}
	})
}
