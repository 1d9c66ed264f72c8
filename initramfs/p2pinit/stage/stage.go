// Package stage runs the stages of a boot one after the other, each as a test
// step of the report, each with a deadline. A stage that fails, panics or does
// not end is reported by its name and the run goes on.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"mkp2pimg/internal/report"
)

// Stage is one part of the run.
type Stage struct {
	Name  string // id of its test step
	Kind  string // by which the user sets its deadline; Name if empty
	Title string // what it does, for the report
	// Aside marks a stage whose failure says nothing about what the run is about.
	Aside    bool
	Deadline time.Duration
	Needs    []string // stages without whose success this one is skipped
	// Run does the work. Its context ends at the deadline; a Run that ignores
	// this is left behind, so what it shares with other stages must be guarded.
	Run func(ctx context.Context, t *Task) error
}

// Task is a running stage.
type Task struct {
	*report.Step
	doing, summary atomic.Pointer[string]
}

// Doing notes what the stage is about to do, for the message about a stage that
// does not come back from it.
func (t *Task) Doing(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	t.doing.Store(&s)
}

// Summary sets what the stage found, in a few words for the console. It is also
// a log line of the step.
func (t *Task) Summary(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	t.summary.Store(&s)
	t.Log(report.Info, "%s", s)
}

func (t *Task) now() string {
	if s := t.doing.Load(); s != nil {
		return *s
	}
	return "starting"
}

// skip is the error of a stage that does not apply.
type skip struct{ reason string }

func (s skip) Error() string { return s.reason }

// Skip returns an error by which a stage says that it does not apply here. The
// step ends as SKIP, and stages that need it are skipped as well.
func Skip(format string, args ...any) error { return skip{fmt.Sprintf(format, args...)} }

// Outcome is how a stage ended.
type Outcome struct {
	Name   string
	Status report.Status
	Reason string // why it did not complete; for one that did, its summary
	Aside  bool   // as of the stage
}

// Symptoms of the errors that a broken stage leaves in the report.
const (
	SymptomDeadline = "deadline"
	SymptomPanic    = "panic"
	SymptomFailed   = "failed"
)

// Runner runs stages.
type Runner struct {
	Report    *report.Writer
	Deadlines map[string]time.Duration // by kind of stage, in place of Stage.Deadline
	// Begin and End, when set, are called around each stage that runs, and End
	// also for one that is skipped. The next stage starts when End returns: it
	// flushes the report.
	Begin func(s Stage, deadline time.Duration)
	End   func(o Outcome)

	outcomes []Outcome
}

// Run runs one stage.
func (r *Runner) Run(ctx context.Context, s Stage) Outcome {
	if d, ok := r.Deadlines[cmp.Or(s.Kind, s.Name)]; ok {
		s.Deadline = d
	}
	o := Outcome{Name: s.Name, Status: report.StatusComplete, Aside: s.Aside}
	step := r.Report.Step(s.Name, s.Title)
	if why := r.missing(s); why != "" {
		o.Status, o.Reason = report.StatusSkip, why
	} else {
		if r.Begin != nil {
			r.Begin(s, s.Deadline)
		}
		o.Status, o.Reason = r.execute(ctx, s, step)
	}
	if o.Status == report.StatusSkip {
		step.Log(report.Info, "%s", o.Reason)
	}
	step.End(o.Status)
	r.outcomes = append(r.outcomes, o)
	if r.End != nil {
		r.End(o)
	}
	return o
}

// Outcomes returns the stages that ended, in order.
func (r *Runner) Outcomes() []Outcome { return r.outcomes }

// Reason returns how a stage that ended came to its end, "" for one that has not.
func (r *Runner) Reason(name string) string {
	i := slices.IndexFunc(r.outcomes, func(o Outcome) bool { return o.Name == name })
	if i < 0 {
		return ""
	}
	return r.outcomes[i].Reason
}

// missing says which needed stage did not complete, and why.
func (r *Runner) missing(s Stage) string {
	for _, need := range s.Needs {
		i := slices.IndexFunc(r.outcomes, func(o Outcome) bool { return o.Name == need })
		if i < 0 {
			return fmt.Sprintf("needs stage %s, which did not run", need)
		}
		switch o := r.outcomes[i]; o.Status {
		case report.StatusSkip:
			return fmt.Sprintf("needs stage %s, which was skipped: %s", need, o.Reason)
		case report.StatusError:
			return fmt.Sprintf("needs stage %s, which broke", need)
		}
	}
	return ""
}

// execute runs the stage in a goroutine of its own and waits for it or for its
// deadline.
func (r *Runner) execute(ctx context.Context, s Stage, step *report.Step) (report.Status, string) {
	ctx, cancel := context.WithTimeout(ctx, s.Deadline)
	defer cancel()
	t := &Task{Step: step}
	done := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				step.Log(report.Failed, "%s", debug.Stack())
				done <- panicked{p, t.now()}
			}
		}()
		done <- s.Run(ctx, t)
	}()

	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		// A stage that heeds its context gets the chance to say more itself.
		select {
		case err = <-done:
		case <-time.After(grace):
			err = ctx.Err()
		}
	}
	var sk skip
	var p panicked
	switch {
	case err == nil:
		if s := t.summary.Load(); s != nil {
			return report.StatusComplete, *s
		}
		return report.StatusComplete, ""
	case errors.As(err, &sk):
		return report.StatusSkip, sk.reason
	case errors.As(err, &p):
		step.Error(SymptomPanic, "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("did not end within %v; it was %s", s.Deadline, t.now())
		step.Log(report.Debug, "%s", stacks())
		step.Error(SymptomDeadline, "%v", err)
	default:
		step.Error(SymptomFailed, "%v", err)
	}
	return report.StatusError, err.Error()
}

// grace is how long a stage may take to return once its context has ended:
// enough to kill a child and take its output.
const grace = time.Second

// stacks says where every goroutine is, for whoever has to find out why a stage
// hangs.
func stacks() string {
	buf := make([]byte, 256<<10)
	return string(buf[:runtime.Stack(buf, true)])
}

type panicked struct {
	value any
	doing string
}

func (p panicked) Error() string {
	return fmt.Sprintf("panic while %s: %v (a fault of this program; please report it)", p.doing, p.value)
}
