package main

import (
	"context"
	"fmt"
	"time"
)

// A watchdog ends a context when there has been no progress for too long. A
// slow link makes progress: only one that has stopped is called hanging.
type watchdog struct {
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc

	step string
	told time.Time
}

// watch starts a watchdog and returns it with its context.
func watch(ctx context.Context, limit time.Duration) (*watchdog, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &watchdog{
		limit:  limit,
		timer:  time.AfterFunc(limit, func() { cancel(timeoutError{limit}) }),
		cancel: cancel,
	}, ctx
}

// progress notes progress of a step. It tells whether the parent should hear of
// it: of each new step, and of the same one every second.
func (w *watchdog) progress(step string) bool {
	w.timer.Reset(w.limit)
	if step == w.step && time.Since(w.told) < time.Second {
		return false
	}
	w.step, w.told = step, time.Now()
	return true
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel(nil)
}

// A timeoutError is the cause of a context that a watchdog ended.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string {
	return fmt.Sprintf("no answer from the GPU within %v", e.limit)
}

func (e timeoutError) Unwrap() error { return context.DeadlineExceeded }
