package intake

import (
	"context"
	"fmt"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
)

const (
	// sweepEvery is how often it is looked for runs that are overdue.
	sweepEvery = 15 * time.Second
	// retainEvery is how often it is looked for what is no longer kept.
	retainEvery = time.Hour
	// quiet is how long nothing must have arrived of a run that is overdue: a slow
	// node still delivers after its deadline.
	quiet = 2 * time.Minute
)

// sweep gives up what is overdue and removes what is not kept, until the context
// ends.
func (in *Intake) sweep(ctx context.Context) {
	retained := time.Time{}
	for {
		if err := in.giveUp(ctx); err != nil && ctx.Err() == nil {
			in.Log.Error("overdue runs could not be given up; it is tried again", "error", err)
		}
		if now := in.Now(); now.Sub(retained) >= retainEvery {
			retained = now
			n, err := in.Store.Retain(ctx, in.Retain, now)
			switch {
			case err != nil && ctx.Err() == nil:
				in.Log.Error("retention failed; it is tried again", "error", err)
			case n != store.Removed{}:
				in.Log.Info("retention", "reports", n.Reports, "runs", n.Runs)
			}
		}
		select {
		case <-time.After(sweepEvery):
		case <-ctx.Done():
			return
		}
	}
}

// giveUp marks the runs lost that are overdue. That a node was offered another run
// ends none that is under way: anyone in the lab's net can ask for one in its name.
func (in *Intake) giveUp(ctx context.Context) error {
	runs, err := in.Store.Overdue(ctx, in.Now(), quiet)
	if err != nil {
		return err
	}
	for _, r := range runs {
		later, err := in.Store.Runs(ctx, store.Query{Node: r.Node, Limit: 1})
		if err != nil {
			return err
		}
		why := reason(r, later)
		lost, err := in.Store.Lose(ctx, r.ID, why, in.Now())
		if err != nil {
			return err
		}
		if lost {
			in.Log.Warn("a run is lost", "node", r.Node, "run", r.ID, "why", why)
			in.judgeSoon()
		}
	}
	return nil
}

// reason says why a run is given up; newest is the newest run of its node.
func reason(r farm.Run, newest []farm.Run) string {
	var why string
	within := r.Deadline.Sub(r.Offered).Round(time.Second)
	switch {
	case r.State == farm.Offered:
		why = fmt.Sprintf("nothing arrived within %v of the offer: the image did not come up, or has no way to the server", within)
	case r.Stage == "":
		why = fmt.Sprintf("the report has no end after %v; nothing arrived since %s", within, clock(r.Updated))
	default:
		why = fmt.Sprintf("the report has no end after %v; nothing arrived since %s, in stage %s", within, clock(r.Updated), r.Stage)
	}
	if len(newest) > 0 && newest[0].Offered.After(r.Offered) {
		why += fmt.Sprintf("; the node started from the network again at %s", clock(newest[0].Offered))
	}
	return why
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
