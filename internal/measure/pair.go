package measure

import (
	"errors"
	"fmt"
	"slices"

	"mkp2pimg/internal/cuda"
)

// A pairProbe measures one ordered pair.
type pairProbe struct {
	*run
	pair *Pair
	bar1 int64 // of the peer, or zero

	initiator, peer *party
	mine, theirs    [2]*buffer // of the initiator and of the peer
	back            bool       // the peer may access the initiator as well

	// kind is what a failure now says: until peer access is on, nothing about the
	// link.
	kind ProblemKind
}

// all measures and verifies everything that the settings ask for. Where data is
// wrong, only what is left of the ways is still tried.
func (p *pairProbe) all(drv cuda.Driver) error {
	for _, step := range []func(cuda.Driver) error{p.prepareBoth, p.staged, p.enable} {
		if err := step(drv); err != nil {
			return err
		}
	}
	sound := true
	for _, m := range []Method{CE, SM} {
		for _, d := range []Direction{Write, Read} {
			p.pair.Ways = append(p.pair.Ways, Way{Direction: d, Method: m})
			ok, err := p.take(p.path(d, m))
			if err != nil {
				return err
			}
			sound = sound && ok
		}
	}
	steps := []func() error{p.handshakes, p.reach}
	if p.settings.Opposed && p.back {
		steps = append(steps, p.opposed)
	}
	if p.settings.Latency {
		steps = append(steps, p.latencies)
	}
	steps = append(steps, p.sweep, p.atomics)
	for _, step := range steps {
		if !sound {
			break
		}
		if err := step(); err != nil {
			return err
		}
		sound = !slices.ContainsFunc(p.pair.Checks, Check.Failed)
	}
	return nil
}

// path returns the way between the first buffers of both.
func (p *pairProbe) path(d Direction, m Method) path {
	if d == Read {
		return path{d, m, p.initiator, p.theirs[0], p.mine[0], p.settings.Size}
	}
	return path{d, m, p.initiator, p.mine[0], p.theirs[0], p.settings.Size}
}

// opposite returns the way that the peer's engine takes between the second
// buffers.
func (p *pairProbe) opposite(d Direction, m Method) path {
	if d == Read {
		return path{d, m, p.peer, p.mine[1], p.theirs[1], p.settings.Size}
	}
	return path{d, m, p.peer, p.theirs[1], p.mine[1], p.settings.Size}
}

func (p *pairProbe) prepareBoth(drv cuda.Driver) error {
	p.begin("prepare " + p.pair.Initiator)
	dev, err := find(drv, p.pair.Initiator)
	if err != nil {
		return err
	}
	peerDev, err := find(drv, p.pair.Peer)
	if err != nil {
		return err
	}
	if p.pair.CanAccess, err = dev.CanAccessPeer(peerDev); err != nil {
		return err
	}
	if p.pair.Attributes, err = dev.P2PAttributes(peerDev); err != nil {
		return err
	}
	if p.back, err = peerDev.CanAccessPeer(dev); err != nil {
		return err
	}
	if p.initiator, p.mine, err = p.member(dev, p.pair.Initiator); err != nil {
		return err
	}
	p.begin("prepare " + p.pair.Peer)
	p.peer, p.theirs, err = p.member(peerDev, p.pair.Peer)
	return err
}

// member returns a party of the pair with its buffers, which are known to hold
// what is put into them.
func (p *pairProbe) member(d cuda.Device, bdf string) (*party, [2]*buffer, error) {
	var buffers [2]*buffer
	m, err := p.join(d, bdf)
	if err != nil {
		return nil, buffers, err
	}
	for i := range buffers {
		if buffers[i], err = m.buffer(slices.Max(append(p.settings.Sweep, p.settings.Size))); err != nil {
			return nil, buffers, err
		}
		if err := p.control(buffers[i]); err != nil {
			return nil, buffers, err
		}
	}
	return m, buffers, nil
}

// staged measures the copies of both directions while peer access is off.
func (p *pairProbe) staged(cuda.Driver) error {
	if !p.settings.Staged {
		return nil
	}
	for _, d := range []Direction{Write, Read} {
		w := p.path(d, Staged)
		p.begin(fmt.Sprintf("%s through host memory%s", d, loading))
		if err := p.prepare(w, After); err != nil {
			return err
		}
		m, err := p.bandwidth(w)
		if err != nil {
			return err
		}
		found, err := p.found(w)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(found, Check.Failed) {
			return fmt.Errorf("with peer access off, a copy from %s to %s through host memory gives wrong data", w.from.owner.bdf, w.to.owner.bdf)
		}
		for _, c := range found {
			c.Direction, c.Method, c.Phase = d, Staged, After
			*p.checks = append(*p.checks, c)
		}
		p.add(m)
	}
	return nil
}

// found returns what the owner of a path's destination finds in it.
func (p *pairProbe) found(w path) (found []Check, err error) {
	err = p.unclocked(func() error {
		m := comparison{want: w.from.holds, previous: w.to.holds, size: w.size}
		found, err = w.to.inspect(m, w.parts(p.settings.Seed), w.windows(p.settings.Seed))
		return err
	})
	return found, err
}

func (p *pairProbe) enable(cuda.Driver) error {
	p.begin("enable peer access")
	p.kind = Refused
	if !p.pair.CanAccess {
		return errors.New("the driver does not allow this GPU to access its peer (cuDeviceCanAccessPeer)")
	}
	if err := p.initiator.ctx.EnablePeer(p.peer.ctx); err != nil {
		return err
	}
	if p.back {
		if err := p.peer.ctx.EnablePeer(p.initiator.ctx); err != nil {
			return fmt.Errorf("from the peer to the initiator: %w", err)
		}
	}
	p.kind = Failed
	return nil
}

// opposed measures each way while the peer does the same.
func (p *pairProbe) opposed() error {
	for _, m := range []Method{CE, SM} {
		for _, d := range []Direction{Write, Read} {
			ways := []path{p.path(d, m), p.opposite(d, m)}
			p.begin(fmt.Sprintf("%s, both ways%s", ways[0], loading))
			timings, copies, err := p.rush(ways)
			if err != nil {
				return err
			}
			if ok, err := p.check(ways[0], Together); err != nil || !ok {
				return err
			}
			// Wrong data on the way back is the business of the other order of the
			// pair, but then the figures of both mean nothing.
			back, err := p.found(ways[1])
			if err != nil || slices.ContainsFunc(back, Check.Failed) {
				return err
			}
			bytes := p.settings.Size * int64(copies)
			one := Measurement{Direction: d, Method: m, Load: Opposed, Size: p.settings.Size, Copies: copies}
			p.add(one.bandwidth(of(timings, 0), bytes))
			one.Load = Total
			p.add(one.bandwidth(together(timings), 2*bytes))
		}
	}
	return nil
}

// sweep measures each way with copies of the sizes of the sweep.
func (p *pairProbe) sweep() error {
	for _, m := range []Method{CE, SM} {
		for _, d := range []Direction{Write, Read} {
			for _, size := range p.settings.Sweep {
				w := p.path(d, m)
				w.size = size
				p.begin(fmt.Sprintf("%s, %d bytes%s", w, size, loading))
				if err := p.prepare(w, Swept); err != nil {
					return err
				}
				got, err := p.bandwidth(w)
				if err != nil {
					return err
				}
				p.pair.Sweep = append(p.pair.Sweep, got)
				if ok, err := p.check(w, Swept); err != nil || !ok {
					return err
				}
			}
		}
	}
	return nil
}

// rush prepares paths and measures them all at the same time.
func (r *run) rush(ways []path) ([]timing, int, error) {
	var flows []*flow
	for _, w := range ways {
		if err := r.prepare(w, Together); err != nil {
			return nil, 0, err
		}
		f, err := w.engine.flow(w.issue)
		if err != nil {
			return nil, 0, err
		}
		flows = append(flows, f)
	}
	race, err := r.race(flows...)
	if err != nil {
		return nil, 0, err
	}
	return race.sample()
}

// checkAll verifies paths that were rushed, until one has wrong data.
func (r *run) checkAll(ways []path) (bool, error) {
	for _, w := range ways {
		if ok, err := r.check(w, Together); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}
