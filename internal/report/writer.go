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
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
)

// Writer streams one run. All methods may be called from several goroutines.
type Writer struct {
	now  func() time.Time
	hide func([]byte) []byte
	out  Stream

	mu     sync.Mutex
	lines  int
	series int
	ended  bool
}

// Option changes a default of [New].
type Option func(*Writer)

// Clock sets the source of timestamps, time.Now by default.
func Clock(now func() time.Time) Option { return func(w *Writer) { w.now = now } }

// Stall sets how long a write to a sink may take, [DefaultStall] by default.
func Stall(d time.Duration) Option { return func(w *Writer) { w.out.Stall = d } }

// Hide keeps secrets out of the report, wherever they come from: each line is
// written as f returns it, which must still be a line of JSON.
func Hide(f func(line []byte) []byte) Option { return func(w *Writer) { w.hide = f } }

// New starts a report: its schemaVersion line is written.
func New(opts ...Option) *Writer {
	w := &Writer{now: time.Now}
	w.out.Dropped = func(err error) { w.Log(Warning, "report sink dropped: %v", err) }
	for _, o := range opts {
		o(w)
	}
	w.put(artifact{Schema: &schemaVersion{Major, Minor}})
	return w
}

// Attach adds a sink, see [Stream.Attach]. A sink that is given up later is noted
// in the report that the others get.
func (w *Writer) Attach(name string, dst io.Writer) { w.out.Attach(name, dst) }

// Flush waits until the sinks hold the report so far, see [Stream.Flush].
func (w *Writer) Flush(limit time.Duration) []error { return w.out.Flush(limit) }

// Close ends the streaming, see [Stream.Close].
func (w *Writer) Close(limit time.Duration) []error { return w.out.Close(limit) }

// Bytes returns the report as written so far.
func (w *Writer) Bytes() []byte { return w.out.Bytes() }

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
	a.Sequence = w.lines
	a.Timestamp = w.now().UTC()
	line, err := json.Marshal(a)
	if err != nil {
		e := &Error{"report-encoding", err.Error()}
		a.Run, a.Step = &runArtifact{Error: e}, nil
		line, _ = json.Marshal(a) // strings and numbers only: can't fail
	}
	if w.hide != nil {
		line = w.hide(line)
	}
	w.lines++
	w.out.Append(append(line, '\n'))
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
func (s *Series) Add(value any) { s.AddWith(value, nil) }

// AddWith writes the next value of the series with metadata of its own.
func (s *Series) AddWith(value any, metadata map[string]any) {
	s.step.emit(stepArtifact{SeriesElement: &SeriesElement{
		ID: s.id, Index: s.n, Value: value, Timestamp: s.step.w.now().UTC(), Metadata: metadata}})
	s.n++
}

// End closes the series.
func (s *Series) End() { s.step.emit(stepArtifact{SeriesEnd: &SeriesEnd{s.id, s.n}}) }
