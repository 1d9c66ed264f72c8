package measure

import (
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

// A buffer is memory with its owner, who alone fills, poisons and inspects it:
// a GPU, or the host in the name of the GPU that copies from and to it.
type buffer struct {
	owner *party
	ptr   cuda.Ptr
	size  int64
	bytes []byte // of the host's memory; nil for a GPU's
	// holds is the pattern that was last known to be in the buffer.
	holds kernels.Pattern
}

func (b *buffer) at(offset int64) cuda.Ptr { return b.ptr + cuda.Ptr(offset) }

// put writes the pattern into parts of the buffer.
func (b *buffer) put(data kernels.Pattern, parts []Window) error {
	b.holds = data
	for _, w := range parts {
		if b.bytes != nil {
			data.Fill(b.bytes[w.Offset:][:w.Size], w.Offset)
			continue
		}
		if err := b.owner.code.Fill(b.owner.stream, b.at(w.Offset), data, w.Offset, w.Size); err != nil {
			return err
		}
	}
	return b.owner.wait()
}

// poison overwrites parts of the buffer with what no pattern holds.
func (b *buffer) poison(parts []Window) error {
	for _, w := range parts {
		if b.bytes != nil {
			fillPoison(b.bytes[w.Offset:][:w.Size])
			continue
		}
		if err := b.owner.stream.Fill(b.at(w.Offset), poison, w.Size); err != nil {
			return err
		}
	}
	return b.owner.wait()
}

// inspect compares what is in the buffer: a kernel of the owner all of parts,
// and the host the windows, after a copy to it. It returns a check of each.
func (b *buffer) inspect(m comparison, parts, windows []Window) ([]Check, error) {
	if b.bytes != nil {
		c := begin(ByCE, windows)
		for _, w := range windows {
			m.compare(&c.Check, b.bytes[w.Offset:][:w.Size], w.Offset)
		}
		return []Check{c.end()}, nil
	}
	sm, err := b.verify(m, parts)
	if err != nil {
		return nil, err
	}
	ce := begin(ByCE, windows)
	err = b.download(windows, func(w Window, got []byte) { m.compare(&ce.Check, got, w.Offset) })
	return []Check{sm, ce.end()}, err
}

// verify lets a kernel of the owner compare parts of the buffer, and adds what it
// finds. Of what is wrong the host looks at the first place.
func (b *buffer) verify(m comparison, parts []Window) (Check, error) {
	c := begin(BySM, parts)
	for _, w := range parts {
		first, err := b.owner.verify(&c.Check, b.at(w.Offset), m, w)
		if err != nil {
			return c.end(), err
		}
		if first < 0 || c.First != nil {
			continue
		}
		var found Check
		page := Window{first, min(wordSize, b.size-first)}
		if err := b.download([]Window{page}, func(w Window, got []byte) { m.compare(&found, got, w.Offset) }); err != nil {
			return c.end(), err
		}
		c.First = found.First
	}
	return c.end(), nil
}

// verify lets a kernel of the party compare its memory at ptr with window w of a
// pattern, and adds what it finds to c. It returns the offset of the first wrong
// word in the pattern, or -1.
func (p *party) verify(c *Check, ptr cuda.Ptr, m comparison, w Window) (int64, error) {
	expect := kernels.Expectation{Pattern: m.want, Offset: w.Offset, Total: m.size, Previous: m.previous, Poison: poison}
	if err := p.code.Verify(p.stream, p.slot, ptr, w.Size, expect); err != nil {
		return -1, err
	}
	if err := p.wait(); err != nil {
		return -1, err
	}
	v := p.slot.Verified()
	c.Bytes += w.Size
	if v.Wrong() == 0 {
		return -1, nil
	}
	c.Wrong += v.Wrong()
	if c.Kinds == nil {
		c.Kinds = map[WrongKind]int64{}
	}
	for kind, n := range map[WrongKind]int64{Unwritten: v.Poison, Zero: v.Zero, Ones: v.Ones, Stale: v.Stale, Misplaced: v.Misplaced, Foreign: v.Foreign} {
		if n > 0 {
			c.Kinds[kind] += n
		}
	}
	return v.First, nil
}

// download copies windows of the buffer to the host, by its owner, and shows
// each piece.
func (b *buffer) download(windows []Window, show func(w Window, got []byte)) error {
	p := b.owner
	for w := range chunks(windows, windowSize) {
		got := p.host.Bytes[:w.Size]
		clear(got)
		if err := p.stream.Copy(p.host.Ptr, b.at(w.Offset), w.Size); err != nil {
			return err
		}
		if err := p.wait(); err != nil {
			return err
		}
		show(w, got)
	}
	return nil
}

// A timedCheck is a check that is going on.
type timedCheck struct {
	Check
	began time.Time
}

func begin(r Reader, windows []Window) timedCheck {
	return timedCheck{Check{Reader: r, Windows: windows}, time.Now()}
}

func (c timedCheck) end() Check {
	c.Seconds = time.Since(c.began).Seconds()
	return c.Check
}
