package nightly

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/power"
)

// phase is how far a node is.
type phase int

const (
	waiting  phase = iota // for its turn
	starting              // being armed and started
	started               // nothing is heard of it yet
	running               // it has asked for something to boot
	judging               // its report is complete
	ended
)

// state is a node and how far it is.
type state struct {
	node    Node
	result  Result
	phase   phase
	since   time.Time       // when the phase began, or the run that it is about
	next    time.Time       // while waiting: not before
	armed   bool            // the server may have it armed
	refused bool            // it could not be disarmed when it ended
	came    bool            // it was started, by whomever
	old     map[string]bool // IDs of runs that were there before it was started
}

// night decides what to do next. It reads no clock: every method is told the time.
type night struct {
	Settings
	end   time.Time
	nodes []*state
	runs  []farm.Run // as the server said last
	log   func(node, text string)
}

func newNight(s Settings, nodes []Node, now time.Time, runs []farm.Run, log func(node, text string)) *night {
	n := &night{Settings: s, end: now.Add(s.Deadline), runs: runs, log: log}
	for _, node := range nodes {
		st := &state{node: node, result: Result{Node: node.Name}, since: now}
		n.nodes = append(n.nodes, st)
		n.resume(st, now)
	}
	return n
}

// resume takes up what an earlier process began this night.
func (n *night) resume(st *state, now time.Time) {
	for i := range n.runs {
		r := &n.runs[i]
		switch {
		case r.Node != st.node.Name || r.Source != farm.Network:
		case !r.State.Over():
			n.log(st.node.Name, "is under way already, as run "+r.ID)
			st.result.Run, st.result.Earlier, st.came = r, false, true
			st.result.Attempts, st.result.Began = 1, r.Offered
			n.enter(st, running, now)
			return
		case r.State == farm.Complete && !n.Again && (st.result.Run == nil || st.result.Run.Offered.Before(r.Offered)):
			st.result.Run, st.result.Earlier = r, true
		}
	}
	if st.result.Earlier {
		n.enter(st, judging, now)
		n.judge(st, now)
	}
}

func (n *night) enter(st *state, p phase, now time.Time) { st.phase, st.since = p, now }

// due returns the nodes to arm and start now, and marks them as being started. A
// node that others start takes no part in the limits.
func (n *night) due(now time.Time) []*state {
	total, groups := 0, map[string]int{}
	for _, st := range n.nodes {
		if st.active() {
			total++
			groups[st.node.Group]++
		}
	}
	var due []*state
	for _, st := range n.nodes {
		if st.phase != waiting || now.Before(st.next) {
			continue
		}
		if st.node.Start != nil {
			full := n.Concurrency > 0 && total >= n.Concurrency || st.node.Group != "" && n.PerGroup > 0 && groups[st.node.Group] >= n.PerGroup
			if full {
				continue
			}
			total++
			groups[st.node.Group]++
		}
		// What is there already is not what this start brings.
		st.old = map[string]bool{}
		for _, r := range n.runs {
			st.old[r.ID] = true
		}
		st.armed = true // it may be, even if the answer gets lost
		n.enter(st, starting, now)
		due = append(due, st)
	}
	return due
}

// active tells whether a node draws power because we started it.
func (st *state) active() bool {
	return st.node.Start != nil && st.phase != waiting && st.phase != ended
}

// armFailed is told that a node could not be armed, and was not started.
func (n *night) armFailed(st *state, err error, now time.Time) {
	if final(err) {
		n.finish(st, NotStarted, fmt.Sprintf("it could not be armed: %v", err), now)
		return
	}
	n.log(st.node.Name, fmt.Sprintf("could not be armed, next try in %v: %v", armAgain, err))
	st.result.Why = fmt.Sprintf("it could not be armed: %v", err)
	st.next = now.Add(armAgain)
	n.enter(st, waiting, now)
}

// startDone is told what came of the start of a node that was armed.
func (n *night) startDone(st *state, note string, err error, now time.Time) {
	st.result.Why = ""
	if note != "" {
		st.result.Notes = append(st.result.Notes, note)
	}
	if st.node.Start == nil {
		n.log(st.node.Name, "is armed: somebody has to start it")
		n.enter(st, started, now)
		return
	}
	st.result.Attempts++
	st.result.Began = cmp.Or(st.result.Began, now)
	if err != nil {
		n.failed(st, fmt.Sprintf("it could not be started: %v", err), unstartable(err), startAgain, now)
		return
	}
	n.log(st.node.Name, "is started")
	st.came = true
	n.enter(st, started, now)
}

func unstartable(err error) bool {
	var e *power.Error
	return errors.As(err, &e) && e.Final
}

// failed notes why a start came to nothing. The node gets another one after a
// pause, unless it had all of them or another one is of no use.
func (n *night) failed(st *state, why string, final bool, pause time.Duration, now time.Time) {
	st.result.Failed = append(st.result.Failed, why)
	if final || st.node.Start == nil || st.result.Attempts >= n.Attempts {
		n.finish(st, st.without(), why, now)
		return
	}
	n.log(st.node.Name, fmt.Sprintf("start %d of %d came to nothing: %s", st.result.Attempts, n.Attempts, why))
	st.next = now.Add(pause)
	n.enter(st, waiting, now)
}

// without is what came of a node without a complete report.
func (st *state) without() Status {
	if st.came {
		return Lost
	}
	return NotStarted
}

func (n *night) finish(st *state, status Status, why string, now time.Time) {
	st.result.Status, st.result.Why, st.result.Ended = status, why, now
	n.enter(st, ended, now)
	text := string(status)
	if st.result.Earlier {
		text = "has a complete report of this night already: " + text
	}
	if why != "" {
		text += ": " + why
	}
	n.log(st.node.Name, text)
}

// heard is told the runs of the night.
func (n *night) heard(runs []farm.Run, now time.Time) {
	n.runs = runs
	for _, st := range n.nodes {
		if st.phase == started || st.phase == running || st.phase == judging {
			n.follow(st, now)
		}
	}
}

// follow moves a node on to where its newest run is. Runs are compared with one
// another only, since the server's clock may be another one than ours.
func (n *night) follow(st *state, now time.Time) {
	if st.phase == judging {
		for i := range n.runs {
			if n.runs[i].ID == st.result.Run.ID {
				st.result.Run = &n.runs[i]
			}
		}
		n.judge(st, now)
		return
	}
	before := ""
	if st.result.Run != nil {
		before = st.result.Run.ID
	}
	var newest *farm.Run
	for i := range n.runs {
		r := &n.runs[i]
		if r.Node == st.node.Name && r.Source == farm.Network && !st.old[r.ID] && (newest == nil || newest.Offered.Before(r.Offered)) {
			newest = r
		}
	}
	if newest == nil {
		return
	}
	st.result.Run = newest
	if !st.came {
		st.came = true
		st.result.Attempts, st.result.Began = 1, now
	}
	switch {
	case st.result.Run.State == farm.Complete:
		n.log(st.node.Name, "has delivered its report")
		n.enter(st, judging, now)
		n.judge(st, now)
	case st.result.Run.State == farm.Lost:
		n.failed(st, "its run was given up: "+cmp.Or(st.result.Run.Why, "no reason is known"), false, 0, now)
	case st.phase == started || st.result.Run.ID != before:
		n.log(st.node.Name, "boots the image, as run "+st.result.Run.ID)
		n.enter(st, running, now)
	}
}

// judge ends a node whose report is complete, once the server has judged it.
func (n *night) judge(st *state, now time.Time) {
	if st.result.Run.Judged || now.Sub(st.since) >= judgeLimit {
		status, why := judge(st.result.Run)
		n.finish(st, status, why, now)
	}
}

// late ends what takes too long: a start, or the night.
func (n *night) late(now time.Time) {
	for _, st := range n.nodes {
		for {
			before := st.phase
			n.lateNode(st, now)
			if st.phase == before {
				break
			}
		}
	}
}

func (n *night) lateNode(st *state, now time.Time) {
	over := !now.Before(n.end)
	switch st.phase {
	case waiting:
		if over {
			n.notDone(st, "the night ended before its turn", now)
		}
	case started:
		switch {
		case over && st.node.Start == nil:
			n.finish(st, st.without(), "nobody started it, or it did not start from the network", now)
		case st.node.Start != nil && now.Sub(st.since) >= BootLimit:
			n.failed(st, fmt.Sprintf("%v after its start it has not asked for anything to boot: does it start from the network, and does it come as far as that?", BootLimit), false, 0, now)
		case over:
			n.notDone(st, "the night ended before it asked for anything to boot", now)
		}
	case running:
		switch {
		case now.Sub(st.since) >= st.node.Deadline+grace:
			n.failed(st, fmt.Sprintf("its report is not complete %v after it was offered the image, the last stage begun is %q", st.node.Deadline, st.result.Run.Stage), false, 0, now)
		case over:
			n.notDone(st, fmt.Sprintf("the night ended while it ran, the last stage begun is %q", st.result.Run.Stage), now)
		}
	case judging:
		n.judge(st, now)
	case starting, ended:
	}
}

// notDone ends a node that the end of the night, or the user, did not wait for.
func (n *night) notDone(st *state, why string, now time.Time) {
	if st.result.Why != "" {
		why += "; " + st.result.Why
	}
	if len(st.result.Failed) > 0 {
		why += "; before that: " + st.result.Failed[len(st.result.Failed)-1]
	}
	n.finish(st, st.without(), why, now)
}

// interrupt ends all that is not over.
func (n *night) interrupt(now time.Time) {
	for _, st := range n.nodes {
		if st.phase != ended {
			n.notDone(st, "interrupted", now)
		}
	}
}

// over tells whether nothing is left to wait for.
func (n *night) over() bool {
	return !slices.ContainsFunc(n.nodes, func(st *state) bool { return st.phase != ended })
}

// results are those of all nodes.
func (n *night) results() []Result {
	all := make([]Result, len(n.nodes))
	for i, st := range n.nodes {
		all[i] = st.result
	}
	return all
}
