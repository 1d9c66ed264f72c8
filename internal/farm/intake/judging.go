package intake

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/report"
)

const (
	// live is how long after it was judged a run under way is judged again, for those
	// who watch.
	live = 2 * time.Second
	// batch is how many runs are judged before it is looked again what is most
	// urgent: runs that are over.
	batch = 20
	// rest is how long, for the time that it took to judge runs under way, others come
	// first: four fifths of a processor.
	rest = 4
)

// judgeSoon has a run judged that is over.
func (in *Intake) judgeSoon() {
	select {
	case in.wake <- struct{}{}:
	default: // it will be
	}
}

// judgeAll judges runs until the context ends. What is to be judged is in the store
// alone, so that nothing is forgotten when the server is killed.
func (in *Intake) judgeAll(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		all, over, err := in.judgeSome(ctx)
		if err != nil && ctx.Err() == nil {
			in.Log.Error("runs could not be judged; it is tried again", "error", err)
		}
		wake, pause := in.wake, live
		switch {
		case err != nil:
			wake = nil
		case over > 0:
			continue
		case all > 0:
			pause = rest * time.Since(began)
		}
		select {
		case <-wake:
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// judgeSome judges the most urgent runs. It returns how many, and how many of them
// are over.
func (in *Intake) judgeSome(ctx context.Context) (all, over int, err error) {
	runs, err := in.Store.Unjudged(ctx, batch, in.Now().Add(-live))
	if err != nil {
		return 0, 0, err
	}
	for _, r := range runs {
		j, err := in.judge(ctx, r)
		if err == nil {
			err = in.record(ctx, r, j)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) { // it was removed meanwhile
			return all, over, fmt.Errorf("run %s of %s: %w", r.ID, r.Node, err)
		}
		all++
		if r.State.Over() {
			over++
		}
	}
	return all, over, nil
}

// record keeps a judgement. Where the store takes everything but this one, its place
// is taken by one that says so: no run must keep others from being judged.
func (in *Intake) record(ctx context.Context, r farm.Run, j store.Judgement) error {
	err := in.Store.Judge(ctx, r.ID, j)
	if err == nil || ctx.Err() != nil {
		return err
	}
	in.Log.Error("a judgement could not be kept", "run", r.ID, "node", r.Node, "error", err)
	j.Summary, j.Changes, j.Baselines = unjudgeable, nil, nil
	return in.Store.Judge(ctx, r.ID, j)
}

// unjudgeable is the summary of a report that can't be judged.
var unjudgeable = &farm.Summary{Reason: "the report could not be judged: see the server's log"}

// judge reads the report of a run as far as it has arrived. A run under way is not
// compared with others yet.
func (in *Intake) judge(ctx context.Context, r farm.Run) (j store.Judgement, err error) {
	j = store.Judgement{At: in.Now(), Chunks: r.Chunks, Live: !r.State.Over()}
	defer func() {
		// A report that breaks this must not keep all others from being judged.
		if p := recover(); p != nil {
			in.Log.Error("a report broke its judgement", "run", r.ID, "node", r.Node, "panic", p, "stack", string(debug.Stack()))
			j.Summary, j.Changes, j.Baselines = unjudgeable, nil, nil
		}
	}()
	told, err := in.parse(ctx, r.ID)
	switch {
	case errors.Is(err, store.ErrDamaged): // reading it again is of no use
		in.Log.Error("a report can't be judged", "run", r.ID, "node", r.Node, "error", err)
		j.Summary = unjudgeable
		return j, nil
	case err != nil:
		return j, err
	}
	j.Summary = in.Judge.Summarise(told)
	if !r.State.Over() {
		return j, nil
	}
	node, err := in.Store.Node(ctx, r.Node)
	if err != nil {
		return j, err
	}
	history, err := in.Store.History(ctx, r.Node, in.Judge.Depth)
	if err != nil {
		return j, err
	}
	pinned, err := in.Store.Pinned(ctx, r.Node)
	if err != nil {
		return j, err
	}
	pinned = append(pinned, in.Pinned(r.Node)...)
	r.Summary = j.Summary
	j.Changes = in.Judge.Compare(node, r, history, pinned)
	j.Baselines = in.Judge.Learn(history, pinned)
	return j, nil
}

// parse reads a report; one without an artifact is an empty one.
func (in *Intake) parse(ctx context.Context, id string) (*report.Run, error) {
	text, err := in.Store.Report(ctx, id)
	if err != nil {
		return nil, err
	}
	told, err := report.Parse(text)
	if errors.Is(err, report.ErrNoReport) {
		return &report.Run{}, nil
	}
	return told, err
}
