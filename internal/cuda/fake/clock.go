package fake

import (
	"iter"
	"math"
	"time"
)

// A clock is virtual time, in nanoseconds, and what goes on in it.
type clock struct {
	now     float64
	streams []*stream
	flows   []*flow
}

// forever is the deadline of what never ends by itself.
var forever = math.Inf(1)

// idleTime is the time that passes while the host asks in vain.
const idleTime = float64(10 * time.Millisecond)

// A program is a queued operation of a stream. It runs as a coroutine: whenever it
// waits, through its thread, others go on.
type program func(*thread)

// A thread runs the programs of a stream.
type thread struct {
	next  func() (pause, bool)
	yield func(pause) bool
	wait  pause
}

// A pause ends when ready says so, if there is such a condition, and at the
// latest at the deadline.
type pause struct {
	ready    func() bool
	deadline float64
}

func (p pause) over(now float64) bool { return now >= p.deadline || p.ready != nil && p.ready() }

func (t *thread) running() bool { return t.next != nil }

// start begins to run p.
func (t *thread) start(p program) {
	t.next, _ = iter.Pull(func(yield func(pause) bool) {
		t.yield = yield
		p(t)
	})
	t.resume()
}

// resume lets the program go on until its next pause or its end.
func (t *thread) resume() {
	wait, more := t.next()
	if t.wait = wait; !more {
		t.next = nil
	}
}

// until pauses the program and tells whether ready holds at the end. A program
// that never ends is left where it is.
func (t *thread) until(ready func() bool, deadline float64) bool {
	if ready != nil && ready() {
		return true
	}
	t.yield(pause{ready, deadline})
	return ready == nil || ready()
}

// step lets the stream go on as far as it gets without time passing, and tells
// whether it did anything.
func (s *stream) step(now float64) bool {
	moved := false
	for {
		switch {
		case s.running() && s.wait.over(now):
			s.resume()
		case !s.running() && len(s.queue) > 0 && s.ctx.sys.broken[s.ctx.index] == nil:
			p := s.queue[0]
			s.queue = s.queue[1:]
			s.start(p)
		default:
			return moved
		}
		moved = true
	}
}

// run lets everything happen that happens without the host.
func (s *System) run() {
	for {
		moved := false
		for _, q := range s.streams {
			moved = q.step(s.now) || moved
		}
		if moved {
			continue
		}
		next := forever
		for _, f := range s.flows {
			next = min(next, s.now+f.left/s.rate(f))
		}
		for _, q := range s.streams {
			if q.running() && q.wait.ready == nil {
				next = min(next, q.wait.deadline)
			}
		}
		if math.IsInf(next, 1) {
			return
		}
		s.advance(next)
	}
}

// idle lets time pass while nothing happens, and what follows from that.
func (s *System) idle() {
	next := s.now + idleTime
	for _, q := range s.streams {
		if q.running() {
			next = min(next, q.wait.deadline)
		}
	}
	s.advance(next)
	s.run()
}

// advance moves the clock, no further than to the end of the first flow.
func (s *System) advance(to float64) {
	rates := make([]float64, len(s.flows))
	for i, f := range s.flows {
		rates[i] = s.rate(f)
	}
	var still []*flow
	for i, f := range s.flows {
		if f.left -= rates[i] * (to - s.now); f.left > 1e-3 {
			still = append(still, f)
		} else {
			f.left = 0
		}
	}
	s.now, s.flows = to, still
}

// A flow is data on its way, in bytes; rates are in bytes per nanosecond, which
// are GB/s.
type flow struct {
	left     float64
	from, to int // GPUs, or host
	route    Route
	write    bool
	peer     bool
	alone    func(now float64) float64 // its rate when nothing else is under way
}

// flow lets bytes flow and waits for the last of them.
func (s *stream) flow(t *thread, f flow) {
	if f.left <= 0 {
		return
	}
	s.ctx.sys.flows = append(s.ctx.sys.flows, &f)
	t.until(func() bool { return f.left == 0 }, forever)
}

// rate returns the rate of f among all flows: an equal share of each thing it
// shares with others.
func (s *System) rate(f *flow) float64 {
	var same, out, in float64
	for _, x := range s.flows {
		if x.from == f.from && x.to == f.to {
			same++
		}
		if x.from != x.to && x.from == f.from {
			out++
		}
		if x.from != x.to && x.to == f.to {
			in++
		}
	}
	r := f.alone(s.now) / same
	if f.from != f.to {
		for _, port := range []struct {
			gpu int
			n   float64
		}{{f.from, out}, {f.to, in}} {
			if port.gpu != host && s.GPUs[port.gpu].Port > 0 {
				r = min(r, s.GPUs[port.gpu].Port/port.n)
			}
		}
	}
	if f.peer && f.write && s.collapsed(s.GPUs[f.route.Initiator].Switch) && s.crosses(f) {
		r = min(r, s.Collapse.GBps)
	}
	return r
}

// crosses tells whether f leaves the switch above its initiator.
func (s *System) crosses(f *flow) bool {
	a, b := s.GPUs[f.route.Initiator], s.GPUs[f.route.Peer]
	return a.Switch != 0 && a.Switch != b.Switch
}

// collapsed tells whether the writes that leave the switch are more than it can
// order.
func (s *System) collapsed(under int) bool {
	sources, roots := map[int]bool{}, map[int]bool{}
	for _, f := range s.flows {
		if f.peer && f.write && s.crosses(f) && s.GPUs[f.route.Initiator].Switch == under {
			sources[f.route.Initiator] = true
			roots[s.GPUs[f.route.Peer].Root] = true
		}
	}
	return s.Collapse.Sources > 0 && len(sources) >= s.Collapse.Sources && len(roots) >= 2
}
