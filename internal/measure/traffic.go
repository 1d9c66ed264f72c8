package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
)

// ProbeTraffic measures the flows of t at the same time, and verifies each. Its
// use of ctx and progress is that of [ProbeDevice].
func ProbeTraffic(ctx context.Context, drv cuda.Driver, t Traffic, set Settings, progress func(Traffic)) Traffic {
	began := time.Now()
	r := newRun(ctx, set)
	r.checks = &t.Checks
	r.beat = func() { progress(t) }
	r.begin = func(step string) {
		t.Step = step
		progress(t)
	}
	kind := Setup
	if err := r.finish(r.traffic(drv, &t, &kind)); err != nil {
		t.Problem = NewProblem(kind, err)
	} else {
		t.Step = ""
	}
	t.Seconds = time.Since(began).Seconds()
	t.Verdict, t.Reason = JudgeTraffic(t, nil)
	return t
}

func (r *run) traffic(drv cuda.Driver, t *Traffic, kind *ProblemKind) error {
	r.begin("prepare the GPUs")
	ends := map[string]*party{}
	for _, bdf := range t.Ends() {
		dev, err := find(drv, bdf)
		if err != nil {
			return err
		}
		if ends[bdf], err = r.join(dev, bdf); err != nil {
			return err
		}
	}
	var ways []path
	for _, f := range t.Flows {
		a, b := ends[f.Initiator], ends[f.Peer]
		mine, err := a.buffer(r.settings.Size)
		if err != nil {
			return err
		}
		theirs, err := b.buffer(r.settings.Size)
		if err != nil {
			return err
		}
		w := path{t.Direction, t.Method, a, mine, theirs, r.settings.Size}
		if t.Direction == Read {
			w.from, w.to = theirs, mine
		}
		ways = append(ways, w)
	}
	*kind = Refused
	for _, f := range t.Flows {
		err := ends[f.Initiator].ctx.EnablePeer(ends[f.Peer].ctx)
		if e, ok := errors.AsType[*cuda.Error](err); ok && e.Code == cuda.PeerEnabled {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s to %s: %w", f.Initiator, f.Peer, err)
		}
	}
	*kind = Failed
	r.begin(t.Name() + loading)
	timings, copies, err := r.rush(ways)
	if err != nil {
		return err
	}
	bytes := r.settings.Size * int64(copies)
	for i := range t.Flows {
		var m Measurement
		t.Flows[i].GBps = m.bandwidth(of(timings, i), bytes).Median
	}
	sum := Measurement{Direction: t.Direction, Method: t.Method, Size: r.settings.Size, Copies: copies}
	if len(ways) > 1 {
		sum.Load = Total
	}
	sum = sum.bandwidth(together(timings), bytes*int64(len(ways)))
	t.Sum = &sum
	r.begin(t.Name() + ": verify")
	_, err = r.checkAll(ways)
	return err
}
