package measure

import (
	"fmt"

	"mkp2pimg/internal/cuda"
)

const (
	// reserve is what is left free of a peer's memory, for the driver.
	reserve = 256 << 20
	// physicalPage is the size of the pages that the driver hands out in large
	// allocations.
	physicalPage = 2 << 20
)

// reach verifies, by each way, memory from all over what the peer has free: the
// exposed window may end, wrap around or be shifted far from where the bandwidth
// was measured.
func (p *pairProbe) reach() error {
	p.begin("reach: allocate the peer's memory")
	return p.unclocked(func() error {
		far, err := p.farBuffer()
		if err != nil {
			return err
		}
		_, total, err := p.peer.ctx.MemInfo()
		if err != nil {
			return err
		}
		p.pair.Reach = &Reach{Size: far.size, Memory: total, Windows: reachWindows(far.size, p.bar1, p.settings.Full, p.settings.Seed)}
		for _, m := range []Method{CE, SM} {
			p.begin(fmt.Sprintf("reach: %s by %s", Write, m))
			if ok, err := p.reachWrite(far, m); err != nil || !ok {
				return err
			}
			p.begin(fmt.Sprintf("reach: %s by %s", Read, m))
			if ok, err := p.reachRead(far, m); err != nil || !ok {
				return err
			}
		}
		return nil
	})
}

// farBuffer returns as much of the peer's memory as the settings ask for and
// there is, but not less than half of what is free: it may be in pieces.
func (p *pairProbe) farBuffer() (*buffer, error) {
	free, _, err := p.peer.ctx.MemInfo()
	if err != nil {
		return nil, err
	}
	if n := p.settings.Window; n > 0 {
		if n > free {
			p.kind = NoMemory // which says nothing about the link
			return nil, fmt.Errorf("GPU %s: %d bytes of its memory are free, not the %d of the window to verify", p.peer.bdf, free, n)
		}
		return p.peer.buffer(n)
	}
	all := max((free-reserve)&^(physicalPage-1), physicalPage)
	for n := all; ; n = (n - n/8) &^ (physicalPage - 1) {
		b, err := p.peer.buffer(n)
		if err == nil || n <= max(all/2, physicalPage) {
			return b, err
		}
	}
}

// reachWrite lets the initiator write into the windows, and the peer verify them.
func (p *pairProbe) reachWrite(far *buffer, m Method) (bool, error) {
	ws := p.pair.Reach.Windows
	want := comparison{want: newPattern(p.settings.Seed, p.pair.Initiator, p.pair.Peer, Write, m, Reached), previous: far.holds, size: far.size}
	if err := far.poison(ws); err != nil {
		return false, err
	}
	near := p.mine[0]
	for batch := range batches(ws, near.size) {
		for _, b := range batch {
			if err := p.initiator.code.Fill(p.initiator.stream, near.at(b.at), want.want, b.Offset, b.Size); err != nil {
				return false, err
			}
			if err := p.initiator.copy(p.initiator.stream, m, far.at(b.Offset), near.at(b.at), b.Size, 1); err != nil {
				return false, err
			}
		}
		if err := p.initiator.wait(); err != nil {
			return false, err
		}
	}
	sm, err := far.verify(want, ws)
	if err != nil {
		return false, err
	}
	ce := begin(ByCE, nil)
	sample := reachWindows(far.size, p.bar1, false, p.settings.Seed)
	err = far.download(sample, func(w Window, got []byte) { want.compare(&ce.Check, got, w.Offset) })
	return p.reached(Write, m, want, far, sm, ce.end()), err
}

// reachRead lets the initiator read the windows, which the peer has written, and
// verify what it got.
func (p *pairProbe) reachRead(far *buffer, m Method) (bool, error) {
	ws := p.pair.Reach.Windows
	want := comparison{want: newPattern(p.settings.Seed, p.pair.Initiator, p.pair.Peer, Read, m, Reached), previous: far.holds, size: far.size}
	if err := far.put(want.want, ws); err != nil {
		return false, err
	}
	near := p.mine[0]
	sm, ce := begin(BySM, nil), begin(ByCE, nil)
	for batch := range batches(ws, near.size) {
		if err := near.poison([]Window{{0, batchSize(batch)}}); err != nil {
			return false, err
		}
		for _, b := range batch {
			if err := p.initiator.copy(p.initiator.stream, m, near.at(b.at), far.at(b.Offset), b.Size, 1); err != nil {
				return false, err
			}
		}
		if err := p.initiator.wait(); err != nil {
			return false, err
		}
		for _, b := range batch {
			if err := p.readBack(&sm.Check, &ce.Check, near.at(b.at), want, b.Window); err != nil {
				return false, err
			}
		}
	}
	return p.reached(Read, m, want, far, sm.end(), ce.end()), nil
}

// readBack verifies window w of a pattern, which lies at ptr in the initiator's
// memory: by a kernel all of it, by the host its ends.
func (p *pairProbe) readBack(sm, ce *Check, ptr cuda.Ptr, m comparison, w Window) error {
	if _, err := p.initiator.verify(sm, ptr, m, w); err != nil {
		return err
	}
	for _, at := range []int64{0, w.Size - windowAlign} {
		got := p.initiator.host.Bytes[:windowAlign]
		clear(got)
		if err := p.initiator.stream.Copy(p.initiator.host.Ptr, ptr+cuda.Ptr(at), windowAlign); err != nil {
			return err
		}
		if err := p.initiator.wait(); err != nil {
			return err
		}
		m.compare(ce, got, w.Offset+at)
	}
	return nil
}

// reached adds the checks of one way, and tells whether nothing was wrong.
func (p *pairProbe) reached(d Direction, m Method, want comparison, far *buffer, checks ...Check) bool {
	ok := true
	for _, c := range checks {
		c.Direction, c.Method, c.Phase, c.Windows = d, m, Reached, nil
		*p.checks = append(*p.checks, c)
		ok = ok && !c.Failed()
	}
	if ok {
		far.holds = want.want
	}
	return ok
}

// batchSize returns the bytes that a batch takes.
func batchSize(batch []piece) int64 {
	last := batch[len(batch)-1]
	return last.at + last.Size
}
