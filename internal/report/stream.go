package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"
	"time"
)

// DefaultStall is how long a sink may go without finishing one write before it
// is given up: a 115200 baud line needs 0.1 s for the 1 KiB of a write.
const DefaultStall = 5 * time.Second

// chunk bounds one write to a sink, so that progress on a slow line can be seen.
const chunk = 1024

// Stream is text that grows by lines and flows to any number of sinks, each
// served by a goroutine of its own at its own pace: a slow or stuck sink costs
// the writer nothing. Its zero value is ready; the fields are set before use.
type Stream struct {
	Stall   time.Duration // how long a write may take; DefaultStall when zero
	Dropped func(error)   // called for each sink that is given up, if set

	mu     sync.Mutex
	wake   sync.Cond
	lines  [][]byte
	sinks  []*sink
	closed bool
}

// sink is one destination.
type sink struct {
	name   string
	dst    io.Writer
	sent   int       // lines written
	synced int       // lines on stable storage
	sync   int       // lines that a Flush wants on stable storage
	since  time.Time // start of the call on dst under way, zero when there is none
	err    error     // why it was given up
}

func (s *Stream) lock() {
	s.mu.Lock()
	s.wake.L = &s.mu
}

// Attach adds a sink under a name for messages. It first gets every line written
// so far, so that each sink holds the whole text. On [Stream.Flush] a sink with a
// Sync method is synced.
func (s *Stream) Attach(name string, dst io.Writer) {
	s.lock()
	defer s.mu.Unlock()
	k := &sink{name: name, dst: dst}
	s.sinks = append(s.sinks, k)
	go s.serve(k)
}

// Append adds a line, its end included. The caller must not change it later.
func (s *Stream) Append(line []byte) {
	s.lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	s.wake.Broadcast()
}

// Write appends a copy of p, for use with fmt.Fprintf.
func (s *Stream) Write(p []byte) (int, error) {
	s.Append(bytes.Clone(p))
	return len(p), nil
}

// Bytes returns the whole text.
func (s *Stream) Bytes() []byte {
	s.lock()
	defer s.mu.Unlock()
	return bytes.Join(s.lines, nil)
}

// serve writes lines to a sink until the stream closes or the sink fails.
func (s *Stream) serve(k *sink) {
	s.lock()
	defer s.mu.Unlock()
	for k.err == nil {
		switch {
		case k.sent < len(s.lines):
			for part := range slices.Chunk(s.lines[k.sent], chunk) {
				if !s.call(k, "write", func() error {
					_, err := k.dst.Write(part)
					return err
				}) {
					return
				}
			}
			k.sent++
		case k.synced < k.sync:
			upTo := k.sent
			if !s.call(k, "sync", func() error { return syncer(k.dst) }) {
				return
			}
			k.synced = upTo
			s.wake.Broadcast()
		case s.closed:
			return
		default:
			s.wake.Wait()
		}
	}
}

// call runs a call on the destination without holding the lock, and reports
// whether the sink is still good.
func (s *Stream) call(k *sink, what string, f func() error) bool {
	k.since = time.Now()
	s.mu.Unlock()
	err := f()
	s.mu.Lock()
	k.since = time.Time{}
	if err != nil {
		s.drop(k, fmt.Errorf("%s: %w", what, err))
	}
	return k.err == nil
}

// drop gives a sink up. A sink that was given up before (its stuck write came
// back) stays as it is.
func (s *Stream) drop(k *sink, err error) {
	if k.err != nil {
		return
	}
	k.err = fmt.Errorf("%s: %w", k.name, err)
	s.wake.Broadcast()
	if s.Dropped != nil {
		err := k.err
		s.mu.Unlock()
		s.Dropped(err)
		s.mu.Lock()
	}
}

// Flush waits until every sink holds every line written before the call, on
// stable storage where the sink has a Sync method. A sink that finishes no write
// within the stall time is given up; one that is merely slow is left behind when
// limit has passed, and goes on by itself. The errors name the sinks that do not
// hold everything.
func (s *Stream) Flush(limit time.Duration) []error {
	stall := s.Stall
	if stall == 0 {
		stall = DefaultStall
	}
	deadline := time.Now().Add(limit)
	tick := time.AfterFunc(0, s.wake.Broadcast)
	defer tick.Stop()

	s.lock()
	defer s.mu.Unlock()
	want := len(s.lines)
	for _, k := range s.sinks {
		k.sync = max(k.sync, want)
	}
	s.wake.Broadcast()
	for {
		now := time.Now()
		waiting := false
		for _, k := range s.sinks {
			if k.err != nil || k.synced >= want {
				continue
			}
			if !k.since.IsZero() && now.Sub(k.since) > stall {
				s.drop(k, fmt.Errorf("no progress for %v; is anything reading it?", stall))
				continue
			}
			waiting = true
		}
		if !waiting || now.After(deadline) {
			break
		}
		tick.Reset(min(stall, time.Until(deadline))/8 + time.Millisecond)
		s.wake.Wait()
	}
	var errs []error
	for _, k := range s.sinks {
		switch {
		case k.err != nil:
			errs = append(errs, k.err)
		case k.synced < want:
			errs = append(errs, fmt.Errorf("%s: %d of %d lines written within %v", k.name, k.sent, want, limit))
		}
	}
	return errs
}

// Close flushes, stops the sinks and closes those that are io.Closers, except
// the ones that do not hold everything: closing a stuck device may hang.
func (s *Stream) Close(limit time.Duration) []error {
	s.Flush(limit) // may add a line: the note about a sink that is given up
	errs := s.Flush(limit)
	s.lock()
	s.closed = true
	s.wake.Broadcast()
	var closers []*sink
	for _, k := range s.sinks {
		if k.err == nil && k.synced == len(s.lines) {
			closers = append(closers, k)
		}
	}
	s.mu.Unlock()
	for _, k := range closers {
		if c, ok := k.dst.(io.Closer); ok {
			if err := c.Close(); err != nil {
				errs = append(errs, fmt.Errorf("%s: close: %w", k.name, err))
			}
		}
	}
	return errs
}

// syncer syncs what can be synced: a terminal or port answers EINVAL (fsync(2)),
// and what went there is gone anyway.
func syncer(dst io.Writer) error {
	f, ok := dst.(interface{ Sync() error })
	if !ok {
		return nil
	}
	if err := f.Sync(); !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}
