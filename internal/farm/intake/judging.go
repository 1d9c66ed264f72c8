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
)

// judgeSoon has the runs judged of which something has arrived.
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
		n, err := in.judgeSome(ctx)
		if err != nil && ctx.Err() == nil {
			in.Log.Error("runs could not be judged; it is tried again", "error", err)
		}
		if n > 0 && err == nil {
			continue
		}
		select {
		case <-in.wake:
		case <-time.After(live):
		case <-ctx.Done():
		}
	}
}

// judgeSome judges the most urgent runs, and returns how many.
func (in *Intake) judgeSome(ctx context.Context) (int, error) {
	runs, err := in.Store.Unjudged(ctx, batch, in.Now().Add(-live))
	if err != nil {
		return 0, err
	}
	for _, r := range runs {
		j, err := in.judge(ctx, r)
		if err == nil {
			err = in.Store.Judge(ctx, r.ID, j)
		}
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return 0, fmt.Errorf("run %s of %s: %w", r.ID, r.Node, err)
		}
	}
	return len(runs), nil
}

// judge reads the report of a run as far as it has arrived. A run under way is not
// compared with others yet.
func (in *Intake) judge(ctx context.Context, r farm.Run) (j store.Judgement, err error) {
	j = store.Judgement{At: in.Now(), Chunks: r.Chunks}
	defer func() {
		// A report that breaks this must not keep all others from being judged.
		if p := recover(); p != nil {
			in.Log.Error("a report broke its judgement", "run", r.ID, "node", r.Node, "panic", p, "stack", string(debug.Stack()))
			j.Summary, j.Changes, j.Baselines = &farm.Summary{Reason: "the report could not be judged: see the server's log"}, nil, nil
		}
	}()
	told, err := in.parse(ctx, r.ID)
	if err != nil {
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
