package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// Check holds a whole report to the specification and to what mkp2pimg promises
// of its own: every line is a valid artifact, schemaVersion comes first, sequence
// numbers count from 0 without a gap, exactly one testRunStart and one testRunEnd
// frame the rest, each step and series is opened once, used only while open, and
// closed. It returns every problem, with its line; none means that the report is
// good.
func Check(report []byte) []error {
	c := &checker{steps: map[string]string{}, series: map[string]*openSeries{}}
	n := 0
	for line := range bytes.Lines(report) {
		n++
		c.line = n
		if !bytes.HasSuffix(line, []byte("\n")) {
			c.bad("no newline at its end: the report was cut short")
		}
		c.check(bytes.TrimRight(line, "\r\n"))
	}
	c.finish()
	return c.errs
}

// The states of a step or series in a checker.
const (
	open   = "open"
	closed = "closed"
)

type openSeries struct {
	state string
	step  string
	n     int
}

type checker struct {
	line       int
	errs       []error
	want       int // next sequence number
	start, end bool
	steps      map[string]string
	series     map[string]*openSeries
}

func (c *checker) bad(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("line %d: %s", c.line, fmt.Sprintf(format, args...)))
}

func (c *checker) check(text []byte) {
	if !isObject(text) || !json.Valid(text) {
		c.bad("not a JSON object: %s", clip(text, 60))
		return
	}
	a, err := decode(text)
	if err != nil {
		c.bad("%v", err)
		return
	}
	if a.Sequence != c.want {
		c.bad("sequenceNumber is %d, want %d", a.Sequence, c.want)
	}
	c.want = a.Sequence + 1
	if (a.Schema != nil) != (c.line == 1) {
		c.bad("schemaVersion must be the first line and no other")
	}
	if c.end {
		c.bad("an artifact after testRunEnd")
	}
	switch {
	case a.Run != nil:
		c.checkRun(a.Run)
	case a.Step != nil:
		c.checkStep(a.Step)
	}
}

func (c *checker) checkRun(a *runArtifact) {
	switch {
	case a.Start != nil && c.start:
		c.bad("a second testRunStart")
	case a.Start != nil:
		c.start = true
	case a.End != nil:
		c.end = true
		for _, id := range c.stillOpen() {
			c.bad("testRunEnd while %s is open", id)
		}
	}
}

func (c *checker) checkStep(a *stepArtifact) {
	if !c.start {
		c.bad("step %s before testRunStart", a.StepID)
	}
	state := c.steps[a.StepID]
	switch {
	case a.Start != nil:
		if state != "" {
			c.bad("step %s is started twice", a.StepID)
		}
		c.steps[a.StepID] = open
		return
	case state == "":
		c.bad("step %s was never started", a.StepID)
	case state == closed:
		c.bad("step %s has ended before", a.StepID)
	}
	switch {
	case a.End != nil:
		c.steps[a.StepID] = closed
	case a.SeriesStart != nil:
		if c.series[a.SeriesStart.ID] != nil {
			c.bad("series %s is started twice", a.SeriesStart.ID)
		}
		c.series[a.SeriesStart.ID] = &openSeries{state: open, step: a.StepID}
	case a.SeriesElement != nil:
		if s := c.openSeries(a.SeriesElement.ID, a.StepID); s != nil {
			if a.SeriesElement.Index != s.n {
				c.bad("series %s: index is %d, want %d", a.SeriesElement.ID, a.SeriesElement.Index, s.n)
			}
			s.n++
		}
	case a.SeriesEnd != nil:
		if s := c.openSeries(a.SeriesEnd.ID, a.StepID); s != nil {
			if a.SeriesEnd.TotalCount != s.n {
				c.bad("series %s: totalCount is %d after %d elements", a.SeriesEnd.ID, a.SeriesEnd.TotalCount, s.n)
			}
			s.state = closed
		}
	}
}

// openSeries returns the open series of this step, or reports that there is none.
func (c *checker) openSeries(id, step string) *openSeries {
	s := c.series[id]
	if s == nil || s.state != open || s.step != step {
		c.bad("series %s is not open in step %s", id, step)
		return nil
	}
	return s
}

func (c *checker) stillOpen() []string {
	var ids []string
	for id, state := range c.steps {
		if state == open {
			ids = append(ids, "step "+id)
		}
	}
	for id, s := range c.series {
		if s.state == open {
			ids = append(ids, "series "+id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (c *checker) finish() {
	if !c.start {
		c.errs = append(c.errs, fmt.Errorf("no testRunStart"))
	}
	if c.end {
		return
	}
	c.errs = append(c.errs, fmt.Errorf("no testRunEnd: the run did not end"))
	for _, id := range c.stillOpen() {
		c.errs = append(c.errs, fmt.Errorf("%s was not closed", id))
	}
}
