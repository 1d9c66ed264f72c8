package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
)

// maxLine bounds one line of a report; the facts of a large machine are a few
// hundred KiB.
const maxLine = 64 << 20

// Run is a report read back. Its slices are in the order of the report.
type Run struct {
	Start        *RunStart // nil when the line is missing
	End          *RunEnd   // nil when the run never ended
	Steps        []*StepResult
	Findings     []checks.Finding
	Verdict      *Verdict        // nil when no stage reached one
	Facts        json.RawMessage // the machine's facts, nil when not gathered
	Measurements []StepMeasurement
	Result       *measure.Result  // of the arm that the verdict is about, nil when nothing was measured
	Comparison   *arms.Comparison // nil when the run did not compare
	Errors       []StepError
	Logs         []Log // of the run; a step's are in its StepResult

	// Skipped are the lines of the input that are no artifacts: kernel messages
	// on a shared console, a line cut short.
	Skipped []Skipped
	// Missing counts the sequence numbers that were not seen.
	Missing int
	// Complete is true when the run was read from its first line to testRunEnd,
	// without a gap, and every step that was opened ended.
	Complete bool
}

// StepResult is one test step.
type StepResult struct {
	ID, Name       string
	Status         Status // empty when the step never ended
	Started, Ended time.Time
	Measurements   []Measurement
	Series         []*SeriesResult
	Diagnoses      []Diagnosis
	Errors         []Error
	Logs           []Log
	Files          []File
	Extensions     []Extension
}

// Reason returns why the step did not complete: its last error, else its last
// log line.
func (s *StepResult) Reason() string {
	if n := len(s.Errors); n > 0 {
		return s.Errors[n-1].Message
	}
	if n := len(s.Logs); n > 0 {
		return s.Logs[n-1].Message
	}
	return ""
}

// SeriesResult is one series of measurements.
type SeriesResult struct {
	SeriesStart
	Elements []SeriesElement
	Ended    bool
}

// StepMeasurement is a measurement with the id of its step.
type StepMeasurement struct {
	Step string
	Measurement
}

// StepError is an error with the id of its step, empty for an error of the run.
type StepError struct {
	Step string
	Error
}

// Verdict is the answer of the run.
type Verdict struct {
	Verdict checks.Verdict `json:"verdict"`
	Reason  string         `json:"reason"` // one sentence
}

// The names of the extensions that mkp2pimg writes.
const (
	ExtFinding = "finding"
	ExtFacts   = "facts"
	ExtVerdict = "verdict"
	// ExtBandwidth is the whole [measure.Result], in the step of that name for the
	// arm that the verdict is about.
	ExtBandwidth = "bandwidth"
	// ExtComparison is the [arms.Comparison] of a run that compares.
	ExtComparison = "comparison"
)

// Skipped is a line of the input that was not used.
type Skipped struct {
	Line int    // counted from 1
	Text string // its beginning
	Why  string
}

// ErrNoReport is returned by [Parse] when the input has no artifact at all.
var ErrNoReport = errors.New("no report found: no line is an OCP Test and Validation artifact")

// Step returns the step with this id, or nil.
func (r *Run) Step(id string) *StepResult {
	for _, s := range r.Steps {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Parse reads a report. Other text between the lines, before the start of a line
// and a missing end are tolerated and listed in Run.Skipped; lines that arrive
// twice are used once. The error is [ErrNoReport] or one of reading.
func Parse(r io.Reader) (*Run, error) {
	b := &builder{run: &Run{}, seen: map[int]bool{}, steps: map[string]*StepResult{}, series: map[[2]string]*SeriesResult{}}
	err := scan(r, func(n int, text []byte) {
		if len(bytes.TrimSpace(text)) == 0 {
			return
		}
		a, why := decode(text)
		if why == nil {
			why = b.add(a)
		}
		if why != nil {
			b.run.Skipped = append(b.run.Skipped, Skipped{n, clip(text, 120), why.Error()})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if len(b.seen) == 0 {
		return nil, ErrNoReport
	}
	b.finish()
	return b.run, nil
}

// scan calls f for each line without its end; a line longer than maxLine is cut.
func scan(r io.Reader, f func(n int, text []byte)) error {
	br := bufio.NewReader(r)
	var line []byte
	for n := 1; ; {
		part, err := br.ReadSlice('\n')
		if room := maxLine - len(line); room > 0 {
			line = append(line, part[:min(room, len(part))]...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return err
		}
		if len(line) > 0 {
			f(n, bytes.TrimRight(line, "\r\n"))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		line, n = line[:0], n+1
	}
}

// decode finds the artifact in a line. A console may have put other text before
// it, so each `{"` is tried as its beginning.
func decode(text []byte) (*artifact, error) {
	why := errors.New("not an artifact")
	// A line has few places where an artifact can begin: those with a top-level key.
	for _, key := range []string{`{"schemaVersion"`, `{"testRunArtifact"`, `{"testStepArtifact"`, `{"sequenceNumber"`, `{"timestamp"`} {
		i := bytes.Index(text, []byte(key))
		if i < 0 {
			continue
		}
		var a artifact
		if err := json.NewDecoder(bytes.NewReader(text[i:])).Decode(&a); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("cut short")
			}
			why = err
			continue
		}
		if err := a.validate(); err != nil {
			why = err
			continue
		}
		return &a, nil
	}
	return nil, why
}

// clip returns at most n bytes of text for a message.
func clip(text []byte, n int) string {
	if len(text) <= n {
		return string(text)
	}
	return string(text[:n]) + "…"
}

// builder collects artifacts into a Run.
type builder struct {
	run  *Run
	seen map[int]bool
	next int // one more than the largest sequence number seen

	// What is in run, to be found without a search: a report may be made up to have
	// a step on each line.
	steps  map[string]*StepResult
	series map[[2]string]*SeriesResult // by step and series

	findings []checks.Finding // all of them, also those that were made again
}

// add files one artifact, or says why it is not used.
func (b *builder) add(a *artifact) error {
	if b.seen[a.Sequence] {
		return fmt.Errorf("sequence number %d was seen before", a.Sequence)
	}
	b.seen[a.Sequence] = true
	b.next = max(b.next, a.Sequence+1)
	switch {
	case a.Run != nil:
		b.addRun(a.Run)
	case a.Step != nil:
		b.addStep(a.Step, a.Timestamp)
	}
	return nil
}

func (b *builder) addRun(a *runArtifact) {
	switch {
	case a.Start != nil:
		b.run.Start = a.Start
	case a.End != nil:
		b.run.End = a.End
	case a.Log != nil:
		b.run.Logs = append(b.run.Logs, *a.Log)
	case a.Error != nil:
		b.run.Errors = append(b.run.Errors, StepError{"", *a.Error})
	}
}

func (b *builder) addStep(a *stepArtifact, at time.Time) {
	r, s := b.run, b.steps[a.StepID]
	if s == nil { // also when its testStepStart was lost
		s = &StepResult{ID: a.StepID, Name: a.StepID}
		r.Steps = append(r.Steps, s)
		b.steps[a.StepID] = s
	}
	switch {
	case a.Start != nil:
		s.Name, s.Started = a.Start.Name, at
	case a.End != nil:
		s.Status, s.Ended = a.End.Status, at
	case a.Measurement != nil:
		s.Measurements = append(s.Measurements, *a.Measurement)
		r.Measurements = append(r.Measurements, StepMeasurement{s.ID, *a.Measurement})
	case a.SeriesStart != nil:
		b.seriesOf(s, a.SeriesStart.ID).SeriesStart = *a.SeriesStart
	case a.SeriesElement != nil:
		q := b.seriesOf(s, a.SeriesElement.ID)
		q.Elements = append(q.Elements, *a.SeriesElement)
	case a.SeriesEnd != nil:
		b.seriesOf(s, a.SeriesEnd.ID).Ended = true
	case a.Diagnosis != nil:
		s.Diagnoses = append(s.Diagnoses, *a.Diagnosis)
	case a.Error != nil:
		s.Errors = append(s.Errors, *a.Error)
		r.Errors = append(r.Errors, StepError{s.ID, *a.Error})
	case a.Log != nil:
		s.Logs = append(s.Logs, *a.Log)
	case a.File != nil:
		s.Files = append(s.Files, *a.File)
	case a.Extension != nil:
		s.Extensions = append(s.Extensions, *a.Extension)
		b.addExtension(s.ID, a.Extension)
	}
}

// addExtension takes our own data out of the extensions that carry it. Content
// of another shape (another program's extension of that name) stays an extension.
func (b *builder) addExtension(step string, e *Extension) {
	switch e.Name {
	case ExtFinding:
		var f checks.Finding
		if json.Unmarshal(e.Content, &f) == nil && f.ID != "" {
			b.findings = append(b.findings, f)
		}
	case ExtVerdict:
		var v Verdict
		if json.Unmarshal(e.Content, &v) == nil && v.Verdict != "" {
			b.run.Verdict = &v
		}
	case ExtFacts:
		b.run.Facts = e.Content
	case ExtBandwidth:
		if r, err := measure.Decode(e.Content); err == nil && step == ExtBandwidth {
			b.run.Result = &r
		}
	case ExtComparison:
		var c arms.Comparison
		if json.Unmarshal(e.Content, &c) == nil && c.Arms != nil {
			b.run.Comparison = &c
		}
	}
}

// seriesOf returns the series of a step with this id, making it when its start was
// lost.
func (b *builder) seriesOf(s *StepResult, id string) *SeriesResult {
	key := [2]string{s.ID, id}
	q := b.series[key]
	if q == nil {
		q = &SeriesResult{SeriesStart: SeriesStart{ID: id}}
		s.Series = append(s.Series, q)
		b.series[key] = q
	}
	return q
}

func (b *builder) finish() {
	r := b.run
	r.Findings = checks.Add(nil, b.findings...)
	r.Missing = b.next - len(b.seen)
	r.Complete = r.Start != nil && r.End != nil && r.Missing == 0
	for _, s := range r.Steps {
		r.Complete = r.Complete && s.Status != ""
	}
}
