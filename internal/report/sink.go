package report

import (
	"fmt"
	"io"
	"time"
)

// chunk bounds one write to a sink, so that progress on a slow line can be seen:
// 1 KiB takes 0.1 s at 115200 baud.
const chunk = 1024

// sink is one destination. Its goroutine follows the writer's lines at its own
// pace, so a slow or stuck destination costs the run nothing but memory that
// the report needs anyway.
type sink struct {
	name   string
	dst    io.Writer
	sent   int       // lines written
	synced int       // lines on stable storage
	sync   int       // lines that a Flush wants on stable storage
	since  time.Time // start of the call on dst under way, zero when there is none
	err    error     // why it was given up
	done   bool      // its goroutine has returned
}

// run writes lines to the sink until the writer closes or the sink fails.
func (w *Writer) run(s *sink) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() {
		s.done = true
		w.wake.Broadcast()
	}()
	for s.err == nil {
		switch {
		case s.sent < len(w.lines):
			line := w.lines[s.sent]
			if err := w.send(s, line); err != nil {
				w.drop(s, fmt.Errorf("write: %w", err))
				return
			}
			s.sent++
			w.wake.Broadcast()
		case s.synced < s.sync:
			upTo := s.sent
			if err := w.unlocked(s, func() error { return syncer(s.dst) }); err != nil {
				w.drop(s, fmt.Errorf("sync: %w", err))
				return
			}
			s.synced = upTo
			w.wake.Broadcast()
		case w.closed:
			return
		default:
			w.wake.Wait()
		}
	}
}

// send writes one line in chunks, noting each that went out.
func (w *Writer) send(s *sink, line []byte) error {
	for len(line) > 0 && s.err == nil {
		part := line[:min(chunk, len(line))]
		if err := w.unlocked(s, func() error {
			_, err := s.dst.Write(part)
			return err
		}); err != nil {
			return err
		}
		line = line[len(part):]
	}
	return nil
}

// unlocked runs a call on the destination without holding the lock.
func (w *Writer) unlocked(s *sink, call func() error) error {
	s.since = time.Now()
	w.mu.Unlock()
	err := call()
	w.mu.Lock()
	s.since = time.Time{}
	w.wake.Broadcast()
	return err
}

// drop gives a sink up and says so in the report that the others get. A sink
// that was given up before (its stuck write came back) stays as it is.
func (w *Writer) drop(s *sink, err error) {
	if s.err != nil {
		return
	}
	s.err = fmt.Errorf("report sink %s: %w", s.name, err)
	w.put(artifact{Run: &runArtifact{Log: &Log{Severity: Warning, Message: "dropped " + s.err.Error()}}})
	w.wake.Broadcast()
}

func syncer(dst io.Writer) error {
	if f, ok := dst.(interface{ Sync() error }); ok {
		return f.Sync()
	}
	return nil
}
