package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"mkp2pimg/internal/report"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// run runs stages and returns their outcomes and the report.
func run(t *testing.T, r *Runner, stages ...Stage) ([]Outcome, *report.Run) {
	t.Helper()
	r.Report = report.New()
	for _, s := range stages {
		if s.Deadline == 0 {
			s.Deadline = time.Hour
		}
		r.Run(t.Context(), s)
	}
	got, err := report.Parse(bytes.NewReader(r.Report.Bytes()))
	require.NoError(t, err)
	return r.Outcomes(), got
}

func ok(context.Context, *Task) error { return nil }

func TestOutcomes(t *testing.T) {
	outcomes, rep := run(t, &Runner{},
		Stage{Name: "good", Run: func(_ context.Context, t *Task) error {
			t.Summary("%d devices", 12)
			return nil
		}},
		Stage{Name: "bad", Run: func(context.Context, *Task) error { return errors.New("no such device") }},
		Stage{Name: "na", Run: func(context.Context, *Task) error { return fmt.Errorf("wrapped: %w", Skip("no GPU")) }},
		Stage{Name: "bug", Run: func(_ context.Context, t *Task) error {
			t.Doing("reading %s", "x")
			panic("no such case")
		}},
		Stage{Name: "after-good", Needs: []string{"good"}, Run: ok},
		Stage{Name: "after-bad", Needs: []string{"good", "bad"}, Run: ok},
		Stage{Name: "after-na", Needs: []string{"na"}, Run: ok},
		Stage{Name: "after-none", Needs: []string{"never"}, Run: ok},
	)
	type end struct {
		status report.Status
		reason string
	}
	want := map[string]end{
		"good":       {report.StatusComplete, "12 devices"},
		"bad":        {report.StatusError, "no such device"},
		"na":         {report.StatusSkip, "no GPU"},
		"bug":        {report.StatusError, "panic while reading x: no such case (a fault of this program; please report it)"},
		"after-good": {report.StatusComplete, ""},
		"after-bad":  {report.StatusSkip, "needs stage bad, which broke"},
		"after-na":   {report.StatusSkip, "needs stage na, which was skipped: no GPU"},
		"after-none": {report.StatusSkip, "needs stage never, which did not run"},
	}
	require.Len(t, outcomes, len(want))
	for _, o := range outcomes {
		assert.Equal(t, want[o.Name], end{o.Status, o.Reason}, o.Name)
		step := rep.Step(o.Name)
		assert.Equal(t, o.Status, step.Status)
		assert.Equal(t, o.Reason, step.Reason())
	}
	assert.Equal(t, SymptomPanic, rep.Step("bug").Errors[0].Symptom)
	assert.Contains(t, rep.Step("bug").Logs[0].Message, "stage_test.go", "the stack is kept")
}

func TestDeadline(t *testing.T) {
	never := make(chan struct{})
	late := func(_ context.Context, t *Task) error {
		t.Doing("inserting nvidia.ko")
		<-never
		return nil
	}
	outcomes, rep := run(t, &Runner{Deadlines: map[string]time.Duration{"driver": time.Millisecond}},
		Stage{Name: "driver", Run: late},
		Stage{Name: "report", Run: ok},
	)
	assert.Equal(t, "did not end within 1ms; it was inserting nvidia.ko", outcomes[0].Reason)
	assert.Equal(t, SymptomDeadline, rep.Step("driver").Errors[0].Symptom)
	assert.Contains(t, rep.Step("driver").Logs[0].Message, "stage.TestDeadline", "where it hangs is kept")
	assert.Equal(t, report.StatusComplete, outcomes[1].Status, "the run goes on")
}

func TestStageHeedsItsContext(t *testing.T) {
	outcomes, _ := run(t, &Runner{}, Stage{Name: "bandwidth", Deadline: time.Millisecond, Run: func(ctx context.Context, _ *Task) error {
		<-ctx.Done()
		return errors.New("p2pbw killed at pair 3 of 12")
	}})
	assert.Equal(t, "p2pbw killed at pair 3 of 12", outcomes[0].Reason)
}

func TestHooks(t *testing.T) {
	var calls []string
	r := &Runner{
		Begin: func(s Stage, d time.Duration) { calls = append(calls, fmt.Sprint("begin ", s.Name, " ", d)) },
		End:   func(o Outcome) { calls = append(calls, fmt.Sprint("end ", o.Name, " ", o.Status)) },
	}
	run(t, r, Stage{Name: "mount", Deadline: time.Minute, Run: ok}, Stage{Name: "facts", Needs: []string{"x"}, Run: ok})
	assert.Equal(t, []string{"begin mount 1m0s", "end mount COMPLETE", "end facts SKIP"}, calls)
}
