package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mkp2pimg/internal/cuda"
)

// A session holds what is allocated for one measurement, to be freed by close.
type session struct {
	context  context.Context
	settings Settings
	beat     func() // called whenever a GPU has finished something
	undo     []func() error
}

// defers makes close call f, before the functions given earlier.
func (s *session) defers(f func() error) { s.undo = append(s.undo, f) }

// close frees everything, unless the GPU hangs: then freeing would wait for it.
func (s *session) close() error {
	select {
	case <-s.context.Done():
		return nil
	default:
	}
	var errs []error
	for _, f := range slices.Backward(s.undo) {
		errs = append(errs, f())
	}
	s.undo = nil
	return errors.Join(errs...)
}

// finish closes the session after it ended with err, and returns the first error.
func (s *session) finish(err error) error {
	if closing := s.close(); err == nil {
		return closing
	}
	return err
}

// A party is a GPU with what it needs to take part: a context, a stream, a
// buffer in its memory and pinned memory of one window.
type party struct {
	s      *session
	bdf    string
	ctx    cuda.Context
	stream cuda.Stream
	buffer cuda.Ptr
	host   cuda.HostMemory
}

// join prepares a party on the device.
func (s *session) join(d cuda.Device, bdf string) (*party, error) {
	p := &party{s: s, bdf: bdf}
	var err error
	if p.ctx, err = d.Retain(); err != nil {
		return nil, fmt.Errorf("GPU %s: primary context: %w", bdf, err)
	}
	s.defers(p.ctx.Release)
	if p.stream, err = p.ctx.NewStream(); err != nil {
		return nil, fmt.Errorf("GPU %s: stream: %w", bdf, err)
	}
	s.defers(p.stream.Close)
	if p.buffer, err = p.alloc(); err != nil {
		return nil, err
	}
	if p.host, err = p.ctx.AllocHost(windowSize); err != nil {
		return nil, fmt.Errorf("GPU %s: %d bytes of pinned host memory: %w", bdf, windowSize, err)
	}
	s.defers(func() error { return p.ctx.FreeHost(p.host) })
	return p, nil
}

// alloc returns a buffer of Settings.Size bytes in the party's memory.
func (p *party) alloc() (cuda.Ptr, error) {
	b, err := p.ctx.Alloc(p.s.settings.Size)
	if err != nil {
		return 0, fmt.Errorf("GPU %s: %d bytes of its memory: %w", p.bdf, p.s.settings.Size, err)
	}
	p.s.defers(func() error { return p.ctx.Free(b) })
	return b, nil
}

// Pauses between two looks at a stream.
const (
	shortPause = 10 * time.Microsecond
	longPause  = time.Millisecond
)

// wait waits until the party's stream is empty. It polls, because a waiting
// call of the driver can't be left when the GPU hangs.
func (p *party) wait() error {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		done, err := p.stream.Done()
		if err != nil {
			return err
		}
		if done {
			p.s.beat()
			return nil
		}
		select {
		case <-p.s.context.Done():
			return context.Cause(p.s.context)
		case <-time.After(pause):
		}
	}
}

// copy copies the whole of src to dst with the party's engine and waits for it.
func (p *party) copy(dst, src cuda.Ptr) error {
	if err := p.stream.Copy(dst, src, p.s.settings.Size); err != nil {
		return err
	}
	return p.wait()
}

// poison fills the party's buffer at b, by its owner.
func (p *party) poison(b cuda.Ptr) error {
	if err := p.stream.Fill(b, poison, p.s.settings.Size); err != nil {
		return err
	}
	return p.wait()
}

// put writes the pattern into the windows of the party's buffer at b, by its
// owner.
func (p *party) put(b cuda.Ptr, data pattern, ws []Window) error {
	for w := range chunks(ws) {
		data.fill(p.host.Bytes[:w.Size], w.Offset)
		if err := p.stream.Copy(b+cuda.Ptr(w.Offset), p.host.Ptr, w.Size); err != nil {
			return err
		}
		if err := p.wait(); err != nil {
			return err
		}
	}
	return nil
}

// inspect reads the windows of the party's buffer at b back to the host, by its
// owner, and adds to c how they compare.
func (p *party) inspect(b cuda.Ptr, m comparison, ws []Window, c *Check) error {
	for w := range chunks(ws) {
		got := p.host.Bytes[:w.Size]
		clear(got)
		if err := p.stream.Copy(p.host.Ptr, b+cuda.Ptr(w.Offset), w.Size); err != nil {
			return err
		}
		if err := p.wait(); err != nil {
			return err
		}
		m.compare(c, got, w.Offset)
	}
	return nil
}

const (
	// warmUpCopies and warmUpTime are the least warm-up. An idle link needs some
	// tens of milliseconds of traffic to reach its full speed.
	warmUpCopies = 4
	warmUpTime   = 50 * time.Millisecond
	// sampleTime is how long a sample should last, so that events (0.5 µs of
	// resolution) and the gap before the first copy weigh nothing.
	sampleTime = 20 * time.Millisecond
	maxCopies  = 4096
)

// sample measures the bandwidth of issue, which queues one copy of
// Settings.Size bytes on the party's stream.
func (p *party) sample(d Direction, method Method, issue func() error) (Measurement, error) {
	size := p.s.settings.Size
	m := Measurement{Quantity: Bandwidth, Direction: d, Method: method, Unit: GBps, Size: size, Copies: 1}
	start, err := p.ctx.NewEvent()
	if err != nil {
		return m, err
	}
	p.s.defers(start.Close)
	end, err := p.ctx.NewEvent()
	if err != nil {
		return m, err
	}
	p.s.defers(end.Close)

	timed := func(copies int) (time.Duration, error) {
		if err := p.stream.Record(start); err != nil {
			return 0, err
		}
		for range copies {
			if err := issue(); err != nil {
				return 0, err
			}
		}
		if err := p.stream.Record(end); err != nil {
			return 0, err
		}
		if err := p.wait(); err != nil {
			return 0, err
		}
		t, err := end.Since(start)
		if err == nil && t <= 0 {
			err = fmt.Errorf("the GPU's clock says that %d copies of %d bytes took %v", copies, size, t)
		}
		return t, err
	}

	var total, last time.Duration
	for n := 0; n < warmUpCopies || total < warmUpTime; n++ {
		if last, err = timed(1); err != nil {
			return m, err
		}
		total += last
	}
	m.Copies = int(min(max(sampleTime/last, 1), maxCopies))
	for range p.s.settings.Samples {
		t, err := timed(m.Copies)
		if err != nil {
			return m, err
		}
		// Bytes per nanosecond are 10^9 bytes per second.
		m.Samples = append(m.Samples, float64(size)*float64(m.Copies)/float64(t))
	}
	m.Summary = Summarise(m.Samples)
	return m, nil
}
