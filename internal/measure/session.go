package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
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

// Pauses between two looks at a stream.
const (
	shortPause = 10 * time.Microsecond
	longPause  = time.Millisecond
)

// wait waits until the streams are empty. It polls, because a waiting call of
// the driver can't be left when the GPU hangs.
func (s *session) wait(streams ...cuda.Stream) error {
	for pause := shortPause; ; pause = min(2*pause, longPause) {
		all := true
		for _, q := range streams {
			done, err := q.Done()
			if err != nil {
				return err
			}
			all = all && done
		}
		if all {
			s.beat()
			return nil
		}
		select {
		case <-s.context.Done():
			return context.Cause(s.context)
		case <-time.After(pause):
		}
	}
}

// A party is a GPU with what it needs to take part: a context, a stream, its
// kernels and pinned memory of one window.
type party struct {
	s      *session
	bdf    string
	ctx    cuda.Context
	stream cuda.Stream
	code   *kernels.Kernels
	sms    int           // multiprocessors
	slot   *kernels.Slot // where its kernels leave their results
	host   cuda.HostMemory
}

// join prepares a party on the device.
func (s *session) join(d cuda.Device, bdf string) (*party, error) {
	info, err := d.Info()
	if err != nil {
		return nil, fmt.Errorf("GPU %s: %w", bdf, err)
	}
	p := &party{s: s, bdf: bdf, sms: max(info.SMs, 1)}
	if p.ctx, err = d.Retain(); err != nil {
		return nil, fmt.Errorf("GPU %s: primary context: %w", bdf, err)
	}
	s.defers(p.ctx.Release)
	if p.stream, err = p.newStream(); err != nil {
		return nil, err
	}
	if p.host, err = p.allocHost(windowSize); err != nil {
		return nil, err
	}
	if p.code, err = kernels.Load(p.ctx, p.sms); err != nil {
		return nil, fmt.Errorf("GPU %s: %w", bdf, err)
	}
	s.defers(p.code.Unload)
	if p.slot, err = p.code.NewSlot(); err != nil {
		return nil, fmt.Errorf("GPU %s: %w", bdf, err)
	}
	s.defers(p.slot.Close)
	return p, nil
}

func (p *party) newStream() (cuda.Stream, error) {
	q, err := p.ctx.NewStream()
	if err != nil {
		return nil, fmt.Errorf("GPU %s: stream: %w", p.bdf, err)
	}
	p.s.defers(q.Close)
	return q, nil
}

func (p *party) newEvent() (cuda.Event, error) {
	e, err := p.ctx.NewEvent()
	if err != nil {
		return nil, fmt.Errorf("GPU %s: event: %w", p.bdf, err)
	}
	p.s.defers(e.Close)
	return e, nil
}

func (p *party) allocHost(n int64) (cuda.HostMemory, error) {
	h, err := p.ctx.AllocHost(n)
	if err != nil {
		return h, fmt.Errorf("GPU %s: %d bytes of pinned host memory: %w", p.bdf, n, err)
	}
	p.s.defers(func() error { return p.ctx.FreeHost(h) })
	return h, nil
}

// wait waits until the party's stream is empty.
func (p *party) wait() error { return p.s.wait(p.stream) }

// buffer returns n bytes of the party's memory.
func (p *party) buffer(n int64) (*buffer, error) {
	ptr, err := p.ctx.Alloc(n)
	if err != nil {
		return nil, fmt.Errorf("GPU %s: %d bytes of its memory: %w", p.bdf, n, err)
	}
	p.s.defers(func() error { return p.ctx.Free(ptr) })
	return &buffer{owner: p, ptr: ptr, size: n}, nil
}

// hostBuffer returns n bytes of pinned memory of the host, for copies of the
// party.
func (p *party) hostBuffer(n int64) (*buffer, error) {
	h, err := p.allocHost(n)
	return &buffer{owner: p, ptr: h.Ptr, size: n, bytes: h.Bytes}, err
}

// copy queues n copies of size bytes by a method, on a stream of the party.
func (p *party) copy(q cuda.Stream, m Method, dst, src cuda.Ptr, size int64, n int) error {
	if m == SM {
		return p.code.Copy(q, dst, src, size, n)
	}
	for range n {
		if err := q.Copy(dst, src, size); err != nil {
			return err
		}
	}
	return nil
}
