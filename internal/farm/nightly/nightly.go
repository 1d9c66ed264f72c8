// Package nightly runs the machines of a lab for a night: it arms each of them at
// the farm's server, makes it start from the network, waits for its report, and
// tries again where none came. That a machine does not come back is a result like
// any other.
//
// What to do next is decided by [night], which is pure; [Run] does it.
package nightly

import (
	"context"
	"fmt"
	"slices"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/export"
	"mkp2pimg/internal/farm/power"
)

// Node is a machine to run.
type Node struct {
	Name     string
	Group    string        // what shares power; empty: nothing
	Image    string        // name of an image, empty: that of the server's description
	Plan     string        // empty: likewise
	Attempts int           // runs that the server offers for one start: a machine may reset itself
	Deadline time.Duration // of a run, from its offer
	Start    power.Starter // nil: somebody else starts it
}

// Settings are those of a night.
type Settings struct {
	Night       string // 2006-01-02
	Concurrency int    // machines started by us that are under way at the same time; 0: any number
	PerGroup    int    // of a group; 0: any number
	Attempts    int    // to start a machine
	Deadline    time.Duration
	Again       bool          // machines with a complete report of this night too
	Poll        time.Duration // between questions to the server how far the runs are; 0: 5 s
}

// Limits of the parts of a night.
const (
	// StartLimit bounds the conversation with a BMC.
	StartLimit = 5 * time.Minute
	// BootLimit is how long a machine has from its start until it asks for something
	// to boot: servers with terabytes of memory train and test it for minutes.
	BootLimit = 20 * time.Minute
	// grace is how much later than a run's deadline we stop waiting: it is the
	// server's to give a run up.
	grace = 2 * time.Minute
	// judgeLimit is how long the server may take to judge a complete report.
	judgeLimit = 2 * time.Minute
	// startAgain and armAgain are how long after an error it is tried again.
	startAgain = time.Minute
	armAgain   = 30 * time.Second
	poll       = 5 * time.Second
	// askLimit bounds one question to the server, endLimit all that is to be undone
	// at the end.
	askLimit = 30 * time.Second
	endLimit = time.Minute
)

// Arming is what a node gets when it starts from the network.
type Arming struct {
	Image, Plan string
	Attempts    int
	Deadline    time.Duration
}

// Server is the farm's server; [Client] is one. A [*ServerError] with a
// status that says that the request is wrong is not worth another try.
type Server interface {
	Arm(ctx context.Context, night, node string, a Arming) error
	Disarm(ctx context.Context, night, node string) error
	Runs(ctx context.Context, night string) ([]farm.Run, error)
}

// Status is what came of a node.
type Status string

// What can come of a node.
const (
	Good       Status = "good"        // P2P-READY, and nothing worse than before
	Regressed  Status = "regressed"   // something is worse than it was
	NotReady   Status = "not ready"   // P2P-DEGRADED or P2P-BLOCKED, as it was
	Unknown    Status = "unknown"     // a complete report that does not answer the question
	Lost       Status = "lost"        // it was started and delivered no whole report
	NotStarted Status = "not started" // it could not be started, or nobody did
)

// Result is what came of a node.
type Result struct {
	Node     string
	Status   Status
	Why      string    // of any status but Good, in one line
	Run      *farm.Run // nil: it made none
	Earlier  bool      // Run was complete before
	Attempts int       // starts
	Failed   []string  // why each start that failed did
	Notes    []string  // of those who started it
	Began    time.Time // zero: never
	Ended    time.Time
}

// Outcome is what came of a night.
type Outcome struct {
	Night       string
	Began       time.Time
	Ended       time.Time
	Interrupted bool
	Results     []Result // in the order of the nodes
	// Armed are nodes that could not be disarmed, with the reason.
	Armed map[string]error
}

// Export is the night for machines to read. Of a node that made more than one run
// it has the last.
func (o Outcome) Export() *export.Night {
	var expected []export.Expected
	var runs []farm.Run
	for _, r := range o.Results {
		e := export.Expected{Node: r.Node}
		if r.Run != nil {
			runs = append(runs, *r.Run)
		} else if r.Status == NotStarted {
			e.Why = r.Why
		}
		expected = append(expected, e)
	}
	return export.New(o.Night, expected, runs)
}

// Count is how many nodes have one of some statuses.
func (o Outcome) Count(of ...Status) int {
	n := 0
	for _, r := range o.Results {
		if slices.Contains(of, r.Status) {
			n++
		}
	}
	return n
}

// judge says what a complete run is worth.
func judge(r *farm.Run) (Status, string) {
	if r.Summary == nil || !r.Judged {
		return Unknown, "the server has not judged the report"
	}
	for _, c := range r.Changes {
		if c.Worse {
			return Regressed, fmt.Sprintf("%s: %s, was %s", c.Subject, c.After, c.Before)
		}
	}
	switch r.Summary.Verdict {
	case checks.VerdictReady:
		return Good, ""
	case checks.VerdictDegraded, checks.VerdictBlocked:
		return NotReady, fmt.Sprintf("%s: %s", r.Summary.Verdict, r.Summary.Reason)
	case checks.VerdictNoGPU, checks.VerdictUnknown:
		return Unknown, fmt.Sprintf("%s: %s", r.Summary.Verdict, r.Summary.Reason)
	}
	return Unknown, "the report has no verdict"
}
