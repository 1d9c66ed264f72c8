package node

import (
	"cmp"
	"context"
	"slices"
	"time"

	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
)

// modulesStage is the stage after which there are network ports.
const modulesStage = "modules"

// pace is how patient the delivery is.
type pace struct {
	delay func(try int, err error) time.Duration // between tries
	// risk is how long a stage in which the machine may hang waits until a farm's
	// server has what was found before it.
	risk time.Duration
	// last is how long the end of a run waits for the server before it says that it
	// does, or goes on where the machine stays on anyway.
	last time.Duration
}

var usual = &pace{delay: deliver.Delay, risk: 5 * time.Second, last: 15 * time.Second}

// risky are the kinds of stages that touch hardware in a way which may hang the
// whole machine. The first question to the driver, of stage paths, starts the GPUs.
var risky = []string{"acs", driverStage, "paths", measureStage, "unload"}

// collect attaches the report to the farm's server that p2p.collect names. It is
// delivered from stage modules on.
func (n *Node) collect() {
	if n.params.Collect == nil {
		return
	}
	n.collector = deliver.NewCollector(n.params.Collect, n.params.Token)
	n.collector.Client = n.client
	n.collector.Connect = func(ctx context.Context) error { return n.connect(ctx, true) }
	n.collector.Delay = n.pace.delay
	n.report.Attach("server "+n.params.Collect.Redacted(), n.collector)
}

// deliverBefore has the farm's server hold the report up to the start of a stage
// from which the machine may not come back. It waits a little for this at most, and
// not where p2p.plan has the stage do nothing.
func (n *Node) deliverBefore(ctx context.Context, s stage.Stage) {
	kind := cmp.Or(s.Kind, s.Name)
	if n.collector == nil || !slices.Contains(risky, kind) || n.params.Plan != params.Full && kind != "acs" {
		return
	}
	n.flush()
	if err := n.wait(ctx, n.pace.risk); err != nil {
		n.warn("stage %s starts although %v", s.Name, err)
	}
}

// sendPieces delivers what there is of the report and says in a few words whether
// that went well.
func (n *Node) sendPieces(ctx context.Context, t *stage.Task) string {
	t.Doing("delivering the report to %s", n.params.Collect.Redacted())
	if err := n.wait(ctx, n.pace.last); err != nil {
		t.Log(report.Failed, "report not delivered: %v", err)
		return "report NOT delivered: " + err.Error()
	}
	return "report delivered to " + n.params.Collect.Redacted()
}

// handOver waits until the farm's server has the whole report: without end before
// the machine leaves, as its memory may hold the only copy; otherwise for a moment,
// as the delivery goes on.
func (n *Node) handOver(ctx context.Context, leaves bool) {
	if n.collector == nil {
		return
	}
	for {
		err := n.wait(ctx, n.pace.last)
		switch {
		case err == nil:
			n.say("report delivered to %s", n.params.Collect.Redacted())
			return
		case deliver.Final(err):
			n.say("the rest of the report is NOT delivered: %v", err)
			return
		case !leaves:
			n.say("report NOT delivered yet, which goes on: %v", err)
			return
		}
		n.say("report still NOT delivered: %v. This machine stays on until it is", err)
		n.console.Flush(flushLimit)
		if ctx.Err() != nil {
			return
		}
	}
}

// wait waits until the farm's server has the report so far, or a limit is over.
func (n *Node) wait(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return n.collector.Wait(ctx)
}

// connect sets the network up, unless it is up and this is not to be done anew. Of
// several at the same time one does it.
func (n *Node) connect(ctx context.Context, anew bool) error {
	select {
	case n.network <- struct{}{}:
		defer func() { <-n.network }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if n.up != "" && !anew {
		return nil
	}
	up, err := n.System.Network(ctx)
	if err == nil && up != n.up {
		n.up = up
		n.report.Log(report.Info, "network: %s", up)
	}
	return err
}
