package nightly

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"mkp2pimg/internal/farm"
)

// Run runs nodes for a night and returns what came of each. It fails only if the
// server can't be asked at all at its beginning.
//
// When the context ends, nodes that are being started are let go of, all are
// disarmed, and the outcome says so; those that run the image by then end their
// runs by themselves. log is told what happens, with an empty node if it is about
// the server; it is not called concurrently.
func Run(ctx context.Context, server Server, s Settings, nodes []Node, log func(node, text string)) (Outcome, error) {
	d := driver{server: server, night: s.Night}
	out := Outcome{Night: s.Night, Began: time.Now()}
	runs, err := d.ask(ctx)
	if err != nil {
		return out, err
	}
	n := newNight(s, nodes, out.Began, runs, log)
	d.run(ctx, n)
	out.Interrupted = ctx.Err() != nil
	out.Armed = d.disarmAll(ctx, n)
	out.Ended, out.Results = time.Now(), n.results()
	return out, nil
}

// driver does what a night decides.
type driver struct {
	server Server
	night  string
}

// attempt is what came of arming and starting a node.
type attempt struct {
	st     *state
	armErr error
	note   string
	err    error
}

func (d driver) run(ctx context.Context, n *night) {
	attempts := make(chan attempt)
	under := 0
	pause := cmp.Or(n.Poll, poll)
	tick := time.After(pause)
	for {
		now := time.Now()
		n.late(now)
		d.disarmEnded(ctx, n)
		for _, st := range n.due(now) {
			under++
			go func() { attempts <- d.start(ctx, st) }()
		}
		if n.over() {
			break
		}
		select {
		case a := <-attempts:
			under--
			if a.armErr != nil {
				n.armFailed(a.st, a.armErr, time.Now())
			} else {
				n.startDone(a.st, a.note, a.err, time.Now())
			}
		case <-tick:
			tick = time.After(pause)
			runs, err := d.ask(ctx)
			if err == nil {
				n.heard(runs, time.Now())
			} else if ctx.Err() == nil {
				n.log("", err.Error())
			}
		case <-ctx.Done():
			n.interrupt(time.Now())
		}
	}
	for ; under > 0; under-- {
		<-attempts // of nodes that were let go of
	}
}

func (d driver) ask(ctx context.Context) ([]farm.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	return d.server.Runs(ctx, d.night)
}

// start arms a node and starts it. Armed first: it may ask at once.
func (d driver) start(ctx context.Context, st *state) attempt {
	a := attempt{st: st}
	armCtx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	node := st.node
	a.armErr = d.server.Arm(armCtx, d.night, node.Name, Arming{node.Image, node.Plan, node.Attempts, node.Deadline})
	if a.armErr != nil || node.Start == nil {
		return a
	}
	startCtx, cancel := context.WithTimeoutCause(ctx, StartLimit, fmt.Errorf("no answer within %v", StartLimit))
	defer cancel()
	a.note, a.err = node.Start.NetworkBoot(startCtx)
	return a
}

// disarmEnded disarms nodes that are over, so that one that comes back later, or
// starts a last time, boots its disk.
func (d driver) disarmEnded(ctx context.Context, n *night) {
	for _, st := range n.nodes {
		if st.phase != ended || !st.armed || st.refused || ctx.Err() != nil {
			continue
		}
		if err := d.disarm(ctx, st); err != nil {
			n.log(st.node.Name, fmt.Sprintf("could not be disarmed, next try at the end: %v", err))
			st.refused = true
		}
	}
}

func (d driver) disarm(ctx context.Context, st *state) error {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	err := d.server.Disarm(ctx, d.night, st.node.Name)
	if err == nil {
		st.armed = false
	}
	return err
}

// disarmAll disarms what is armed, whether there is time left or not.
func (d driver) disarmAll(ctx context.Context, n *night) map[string]error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	var left map[string]error
	for _, st := range n.nodes {
		if !st.armed {
			continue
		}
		err := d.disarm(ctx, st)
		if err != nil {
			if left == nil {
				left = map[string]error{}
			}
			left[st.node.Name] = err
		}
	}
	return left
}
