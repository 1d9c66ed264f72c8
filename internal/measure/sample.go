package measure

import (
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

const (
	// warmUpCopies and warmUpTime are the least warm-up. An idle link needs some
	// tens of milliseconds of traffic to reach its full speed.
	warmUpCopies = 4
	warmUpTime   = 50 * time.Millisecond
	// sampleTime is how long a sample should last, so that events (0.5 µs of
	// resolution) and the gap before the first copy weigh nothing.
	sampleTime = 20 * time.Millisecond
	// maxCopies is how many copies may be queued behind a gate: the driver takes
	// about a thousand entries, then queueing waits for room, which a closed gate
	// would never make.
	maxCopies = 256
	// holdTime bounds the time that a gate is closed.
	holdTime = 10 * time.Second
)

// A flow is an operation that is repeated and timed, on a stream of the party
// whose engine works.
type flow struct {
	party      *party
	stream     cuda.Stream
	issue      func(q cuda.Stream, n int) error // queues the operation n times
	start, end cuda.Event
}

// flow returns a flow of the party on a new stream.
func (p *party) flow(issue func(q cuda.Stream, n int) error) (*flow, error) {
	f := &flow{party: p, issue: issue}
	var err error
	if f.stream, err = p.newStream(); err != nil {
		return nil, err
	}
	if f.start, err = p.newEvent(); err != nil {
		return nil, err
	}
	f.end, err = p.newEvent()
	return f, err
}

// A timing is how long some operations of each flow took: each for itself, and
// from the start of all until the end of the last.
type timing struct {
	each []time.Duration
	all  time.Duration
}

// A race times flows that run at the same time.
type race struct {
	s     *session
	flows []*flow
	gate  *kernels.Gate // holds all flows back until they are queued; nil: they start at once
	last  cuda.Event    // on the first flow's stream, when all have ended
}

func (s *session) race(flows ...*flow) (*race, error) {
	r, err := s.open(flows...)
	if err != nil {
		return nil, err
	}
	if r.gate, err = flows[0].party.code.NewGate(); err != nil {
		return nil, err
	}
	s.defers(r.gate.Close)
	return r, nil
}

// open returns a race without a gate, for operations that the driver does not
// only queue: it waits for them, and so for ever behind a gate.
func (s *session) open(flows ...*flow) (*race, error) {
	last, err := flows[0].party.newEvent()
	return &race{s: s, flows: flows, last: last}, err
}

// run runs n operations of each flow.
func (r *race) run(n int) (timing, error) {
	var t timing
	err := r.queue(n)
	if r.gate != nil {
		r.gate.Open()
	}
	if err != nil {
		return t, err
	}
	var streams []cuda.Stream
	for _, f := range r.flows {
		streams = append(streams, f.stream)
	}
	if err := r.s.wait(streams...); err != nil {
		return t, err
	}
	if r.gate != nil && r.gate.Late() {
		return t, fmt.Errorf("queueing %d operations took longer than %v", n, holdTime)
	}
	since := func(end, start cuda.Event) (time.Duration, error) {
		d, err := end.Since(start)
		if err == nil && d <= 0 {
			err = fmt.Errorf("the GPU's clock says that %d operations took %v", n, d)
		}
		return d, err
	}
	for _, f := range r.flows {
		d, err := since(f.end, f.start)
		if err != nil {
			return t, err
		}
		t.each = append(t.each, d)
	}
	t.all, err = since(r.last, r.flows[0].start)
	return t, err
}

// queue queues n operations of each flow behind the gate.
func (r *race) queue(n int) error {
	lead := r.flows[0]
	if r.gate != nil {
		r.gate.Shut()
		if err := lead.party.code.Hold(lead.stream, r.gate, holdTime); err != nil {
			return err
		}
	}
	if err := lead.stream.Record(lead.start); err != nil {
		return err
	}
	for _, f := range r.flows[1:] {
		if err := f.stream.Wait(lead.start); err != nil {
			return err
		}
		if err := f.stream.Record(f.start); err != nil {
			return err
		}
	}
	for _, f := range r.flows {
		if err := f.issue(f.stream, n); err != nil {
			return err
		}
		if err := f.stream.Record(f.end); err != nil {
			return err
		}
		if f != lead {
			if err := lead.stream.Wait(f.end); err != nil {
				return err
			}
		}
	}
	return lead.stream.Record(r.last)
}

// sample warms up and returns the timings of settings.Samples runs, and how many
// operations of each flow are in one.
func (r *race) sample() ([]timing, int, error) {
	copies := 1
	for done, total := 0, time.Duration(0); done < warmUpCopies || total < warmUpTime; {
		t, err := r.run(copies)
		if err != nil {
			return nil, 0, err
		}
		done += copies
		total += t.all
		// As many at a time as a sample has: a run has costs of its own, and takes
		// hundreds of tiny copies to warm anything up.
		copies = int(min(max(sampleTime*time.Duration(copies)/t.all, 1), maxCopies))
	}
	var all []timing
	for range r.s.settings.Samples {
		t, err := r.run(copies)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, t)
	}
	return all, copies, nil
}

// bandwidth returns the measurement of bytes that each timing took.
func (m Measurement) bandwidth(times []time.Duration, bytes int64) Measurement {
	m.Quantity, m.Unit = Bandwidth, GBps
	for _, t := range times {
		// Bytes per nanosecond are 10^9 bytes per second.
		m.Samples = append(m.Samples, float64(bytes)/float64(t))
	}
	m.Summary = Summarise(m.Samples)
	return m
}

// of returns the times of flow i of timings.
func of(all []timing, i int) []time.Duration {
	var times []time.Duration
	for _, t := range all {
		times = append(times, t.each[i])
	}
	return times
}

// together returns the times of all flows of timings.
func together(all []timing) []time.Duration {
	var times []time.Duration
	for _, t := range all {
		times = append(times, t.all)
	}
	return times
}
