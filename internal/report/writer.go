// Package report writes and reads the result of a run: JSON lines after the OCP
// Test and Validation output specification 2.0 (opencomputeproject/ocp-diag-core,
// json_spec), and the screen that a person reads.
//
// A [Writer] streams every artifact, as it happens, to any number of sinks; a
// sink that fails or blocks is dropped and never holds the run up. [Parse] reads
// a report back, also from a serial log with other text between the lines and
// with its end missing.
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// DefaultStall is how long a sink may go without finishing one write before it
// is given up: a 115200 baud line needs 0.1 s for the 1 KiB of a write.
const DefaultStall = 5 * time.Second

// Writer streams one run. All methods may be called from several goroutines.
type Writer struct {
	now   func() time.Time
	stall time.Duration

	mu     sync.Mutex
	wake   *sync.Cond
	lines  [][]byte
	sinks  []*sink
	series int
	ended  bool
	closed bool
}

// Option changes a default of [New].
type Option func(*Writer)

// Clock sets the source of timestamps, time.Now by default.
func Clock(now func() time.Time) Option { return func(w *Writer) { w.now = now } }

// Stall sets how long a sink may make no progress, [DefaultStall] by default.
func Stall(d time.Duration) Option { return func(w *Writer) { w.stall = d } }

// New starts a report: its schemaVersion line is written.
func New(opts ...Option) *Writer {
	w := &Writer{now: time.Now, stall: DefaultStall}
	w.wake = sync.NewCond(&w.mu)
	for _, o := range opts {
		o(w)
	}
	w.put(artifact{Schema: &schemaVersion{Major, Minor}})
	return w
}

// Attach adds a sink under a name for messages. The sink first gets every line
// written so far, so that each sink holds the whole report. On [Writer.Flush] a
// sink with a Sync method is synced.
func (w *Writer) Attach(name string, dst io.Writer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &sink{name: name, dst: dst}
	w.sinks = append(w.sinks, s)
	go w.run(s)
}

// Start writes testRunStart.
func (w *Writer) Start(s RunStart) {
	if s.Parameters == nil {
		s.Parameters = map[string]any{}
	}
	w.emit(artifact{Run: &runArtifact{Start: &s}})
}

// Log writes a log line of the run.
func (w *Writer) Log(sev Severity, format string, args ...any) {
	w.emit(artifact{Run: &runArtifact{Log: &Log{sev, fmt.Sprintf(format, args...)}}})
}

// Error writes an error of the run; symptom is a short stable id.
func (w *Writer) Error(symptom, format string, args ...any) {
	w.emit(artifact{Run: &runArtifact{Error: &Error{symptom, fmt.Sprintf(format, args...)}}})
}

// End writes testRunEnd. Nothing is written after it. It is an error to end a
// run twice or with a pair that is not [Legal].
func (w *Writer) End(status Status, result Result) error {
	if !Legal(status, result) {
		return fmt.Errorf("report: a run can't end as %s with %s", status, result)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return fmt.Errorf("report: the run has ended before")
	}
	w.put(artifact{Run: &runArtifact{End: &RunEnd{status, result}}})
	w.ended = true
	return nil
}

// Step opens a test step. The id must be unique within the run.
func (w *Writer) Step(id, name string) *Step {
	s := &Step{w: w, id: id}
	w.emit(artifact{Step: &stepArtifact{StepID: id, Start: &stepStart{name}}})
	return s
}

// Bytes returns the report as written so far.
func (w *Writer) Bytes() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Join(w.lines, nil)
}

// Flush waits until every sink holds every line written before the call, on
// stable storage where the sink has a Sync method. A sink that finishes no write
// within the stall time is dropped; one that is merely slow is left behind when
// limit has passed, and goes on by itself. The errors name the sinks that do not
// hold everything.
func (w *Writer) Flush(limit time.Duration) []error {
	tick := time.AfterFunc(0, w.wake.Broadcast)
	defer tick.Stop()
	deadline := time.Now().Add(limit)

	w.mu.Lock()
	defer w.mu.Unlock()
	want := len(w.lines)
	for _, s := range w.sinks {
		s.sync = max(s.sync, want)
	}
	w.wake.Broadcast()
	for {
		now := time.Now()
		waiting := false
		for _, s := range w.sinks {
			if s.err != nil || s.synced >= want {
				continue
			}
			if !s.since.IsZero() && now.Sub(s.since) > w.stall {
				w.drop(s, fmt.Errorf("no progress for %v; is anything reading it?", w.stall))
				continue
			}
			waiting = true
		}
		if !waiting || now.After(deadline) {
			break
		}
		tick.Reset(min(w.stall, time.Until(deadline))/8 + time.Millisecond)
		w.wake.Wait()
	}
	var errs []error
	for _, s := range w.sinks {
		switch {
		case s.err != nil:
			errs = append(errs, s.err)
		case s.synced < want:
			errs = append(errs, fmt.Errorf("report sink %s: %d of %d lines written within %v", s.name, s.sent, want, limit))
		}
	}
	return errs
}

// Close flushes, stops the sinks and closes those that are io.Closers, except
// dropped ones: closing a stuck device may hang.
func (w *Writer) Close(limit time.Duration) []error {
	errs := w.Flush(limit)
	w.mu.Lock()
	w.closed = true
	w.wake.Broadcast()
	sinks := w.sinks
	w.mu.Unlock()
	for _, s := range sinks {
		w.mu.Lock()
		idle := s.err == nil && s.synced == len(w.lines)
		w.mu.Unlock()
		c, ok := s.dst.(io.Closer)
		if !idle || !ok {
			continue
		}
		if err := c.Close(); err != nil {
			errs = append(errs, fmt.Errorf("report sink %s: close: %w", s.name, err))
		}
	}
	return errs
}

func (w *Writer) emit(a artifact) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.put(a)
}

// put numbers an artifact and appends its line; the lock is held. What can't be
// written as JSON (NaN, a channel) becomes an error artifact, so that the loss
// can be seen.
func (w *Writer) put(a artifact) {
	if w.ended {
		return
	}
	a.Sequence = len(w.lines)
	a.Timestamp = w.now().UTC()
	line, err := json.Marshal(a)
	if err != nil {
		e := &Error{"report-encoding", err.Error()}
		a.Run, a.Step = &runArtifact{Error: e}, nil
		line, _ = json.Marshal(a) // strings and numbers only: can't fail
	}
	w.lines = append(w.lines, append(line, '\n'))
	w.wake.Broadcast()
}

// Step is an open test step. Artifacts that come after its end (from a stage
// that went on past its deadline) are not written; the first is noted in the
// run's log.
type Step struct {
	w  *Writer
	id string

	ended, late bool // under w.mu
}

// ID returns the step's id.
func (s *Step) ID() string { return s.id }

// Measurement writes one value.
func (s *Step) Measurement(m Measurement) { s.emit(stepArtifact{Measurement: &m}) }

// Diagnosis writes one judgement.
func (s *Step) Diagnosis(d Diagnosis) { s.emit(stepArtifact{Diagnosis: &d}) }

// Error says that the step broke; symptom is a short stable id.
func (s *Step) Error(symptom, format string, args ...any) {
	s.emit(stepArtifact{Error: &Error{symptom, fmt.Sprintf(format, args...)}})
}

// Log writes a log line of the step.
func (s *Step) Log(sev Severity, format string, args ...any) {
	s.emit(stepArtifact{Log: &Log{sev, fmt.Sprintf(format, args...)}})
}

// File points at a file that the step produced.
func (s *Step) File(f File) { s.emit(stepArtifact{File: &f}) }

// Extension writes structured data. Content that is not a JSON object is wrapped
// as {"value": content}, since the specification allows only objects.
func (s *Step) Extension(name string, content any) {
	raw, err := json.Marshal(content)
	if err != nil {
		s.Error("report-encoding", "extension %s: %v", name, err)
		return
	}
	if !isObject(raw) {
		raw = fmt.Appendf(nil, `{"value":%s}`, raw)
	}
	s.emit(stepArtifact{Extension: &Extension{name, raw}})
}

// Series opens a series of measurements; start.ID is set by the writer.
func (s *Step) Series(start SeriesStart) *Series {
	s.w.mu.Lock()
	start.ID = fmt.Sprint(s.w.series)
	s.w.series++
	s.w.mu.Unlock()
	s.emit(stepArtifact{SeriesStart: &start})
	return &Series{step: s, id: start.ID}
}

// End closes the step; a second End does nothing.
func (s *Step) End(status Status) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.ended {
		return
	}
	s.w.put(artifact{Step: &stepArtifact{StepID: s.id, End: &stepEnd{status}}})
	s.ended = true
}

func (s *Step) emit(a stepArtifact) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if !s.ended {
		a.StepID = s.id
		s.w.put(artifact{Step: &a})
		return
	}
	if !s.late {
		s.late = true
		s.w.put(artifact{Run: &runArtifact{Log: &Log{Warning,
			fmt.Sprintf("step %s went on after its end; what it produced since is not in this report", s.id)}}})
	}
}

// Series is an open series of measurements, used by one goroutine.
type Series struct {
	step *Step
	id   string
	n    int
}

// Add writes the next value of the series.
func (s *Series) Add(value any) {
	s.step.emit(stepArtifact{SeriesElement: &SeriesElement{
		ID: s.id, Index: s.n, Value: value, Timestamp: s.step.w.now().UTC()}})
	s.n++
}

// End closes the series.
func (s *Series) End() { s.step.emit(stepArtifact{SeriesEnd: &SeriesEnd{s.id, s.n}}) }
