// Package export writes what a night of the farm gave: as JSON, which schema.json
// describes, as JUnit XML for CI systems, as OpenMetrics for Prometheus, and as a
// line for each node for a person.
package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// Version is the version of the JSON form of [Night]. It grows when a reader of
// the former version would misread the new one; added fields leave it alone.
const Version = 1

// Night is what came of the nodes in one night.
type Night struct {
	Version int    `json:"version"`
	Night   string `json:"night"` // 2006-01-02
	Nodes   []Node `json:"nodes"`
}

// Node is what came of a node: its last complete run, or else its last one.
type Node struct {
	Node   string `json:"node"`
	Status Status `json:"status"` // the worst of Cases; skip where the verdict says that there is nothing to judge
	Cases  []Case `json:"cases"`
	Runs   int    `json:"runs"` // that it was offered in the night
	// Run is nil if it was offered none.
	Run *farm.Run `json:"run,omitempty"`
}

// Status is the outcome of an expectation.
type Status string

// The outcomes. That something could not be told is an Error,
// never a Pass.
const (
	Pass  Status = "pass"
	Skip  Status = "skip"  // it does not apply
	Fail  Status = "fail"  // it is not met
	Error Status = "error" // nobody knows whether it is
)

// Case is one expectation of a node.
type Case struct {
	Name   string `json:"name"` // one of the names below
	Status Status `json:"status"`
	// Kind is a word for what is wrong: "P2P-BLOCKED", "lost", "regression".
	Kind string `json:"kind,omitempty"`
	// Message says in a line what is wrong, Text the rest and what to do.
	Message string `json:"message,omitempty"`
	Text    string `json:"text,omitempty"`
}

// The expectations.
const (
	Delivered = "delivered" // a complete report came
	Verdict   = "verdict"   // its verdict is P2P-READY
	Data      = "data"      // no pair of GPUs delivered wrong data
	Unchanged = "unchanged" // nothing is worse than what is normal for the node
)

// Expected is a node that is to report in a night.
type Expected struct {
	Node string
	Why  string // why it was not even started; empty if it was
}

// New sums up a night: nodes that were expected, in their order, then those that
// have runs all the same. The runs are those of the night, in any order; one
// without an ID was never offered and says why.
func New(night string, expected []Expected, runs []farm.Run) *Night {
	n := &Night{Version: Version, Night: night, Nodes: []Node{}}
	of := map[string][]farm.Run{}
	why := map[string]string{}
	for _, r := range runs {
		if _, known := of[r.Node]; !known {
			of[r.Node] = nil
		}
		if r.ID == "" {
			why[r.Node] = r.Why
			continue
		}
		of[r.Node] = append(of[r.Node], r)
	}
	for _, e := range expected {
		e.Why = cmp.Or(e.Why, why[e.Node])
		n.Nodes = append(n.Nodes, sumUp(e, of[e.Node]))
		delete(of, e.Node)
	}
	var more []Node
	for name, runs := range of {
		more = append(more, sumUp(Expected{name, why[name]}, runs))
	}
	slices.SortFunc(more, func(a, b Node) int { return strings.Compare(a.Node, b.Node) })
	n.Nodes = append(n.Nodes, more...)
	return n
}

// Count returns how many nodes have each status.
func (n *Night) Count() map[Status]int {
	count := map[Status]int{}
	for _, node := range n.Nodes {
		count[node.Status]++
	}
	return count
}

// sumUp judges a node.
func sumUp(e Expected, runs []farm.Run) Node {
	n := Node{Node: e.Node, Runs: len(runs), Run: last(runs)}
	judged := verdict(n.Run)
	n.Status, n.Cases = judged.Status, []Case{delivered(e, n.Run), judged, data(n.Run), unchanged(n.Run)}
	for _, status := range []Status{Fail, Error} {
		if slices.ContainsFunc(n.Cases, func(c Case) bool { return c.Status == status }) {
			n.Status = status
		}
	}
	return n
}

// last returns the last complete run, or else the last one.
func last(runs []farm.Run) *farm.Run {
	var best *farm.Run
	for i := range runs {
		r := &runs[i]
		if best == nil || better(r, best) {
			best = r
		}
	}
	return best
}

func better(a, b *farm.Run) bool {
	if done := a.State == farm.Complete; done != (b.State == farm.Complete) {
		return done
	}
	return began(a).After(began(b))
}

// began returns when a run began, as far as that is known.
func began(r *farm.Run) time.Time {
	if r.Offered.IsZero() {
		return r.Started
	}
	return r.Offered
}

// seconds is the time that a run took, zero if that is not known.
func seconds(r *farm.Run) float64 {
	if r == nil || r.Ended.IsZero() || began(r).IsZero() {
		return 0
	}
	return max(0, r.Ended.Sub(began(r)).Seconds())
}

func delivered(e Expected, r *farm.Run) Case {
	c := Case{Name: Delivered, Status: Error}
	switch {
	case r != nil && r.State == farm.Complete:
		c.Status = Pass
	case r == nil && e.Why != "":
		c.Kind, c.Message = "not started", "not started: "+e.Why
	case r == nil:
		c.Kind, c.Message = "silent", "it did not ask for the image"
		c.Text = "See whether it is on, starts from the network before its disk, and reaches the server: its console shows what it waits for."
	case r.State == farm.Lost && r.Chunks == 0:
		c.Kind, c.Message = "lost", "it was offered the image and delivered nothing: "+r.Why
	case r.State == farm.Lost:
		c.Kind, c.Message = "lost", fmt.Sprintf("cut off in stage %s: %s", r.Stage, r.Why)
	default:
		c.Kind, c.Message = string(r.State), "it has not ended"
	}
	if r != nil && c.Text == "" {
		c.Text = describe(r.Changes, func(c farm.Change) bool { return c.Kind == farm.NotDelivered })
	}
	return c
}

// summary returns that of a run, nil if it has none.
func summary(r *farm.Run) *farm.Summary {
	if r == nil {
		return nil
	}
	return r.Summary
}

func verdict(r *farm.Run) Case {
	c := Case{Name: Verdict, Status: Error, Kind: "no verdict", Message: "no verdict was reached"}
	s := summary(r)
	if s == nil || s.Verdict == "" {
		return c
	}
	c.Kind, c.Message = string(s.Verdict), s.Reason
	switch s.Verdict {
	case checks.VerdictReady:
		return Case{Name: Verdict, Status: Pass}
	case checks.VerdictDegraded, checks.VerdictBlocked:
		c.Status = Fail
	case checks.VerdictNoGPU:
		c.Status = Skip
	}
	var lines []string
	for _, f := range s.Findings {
		if f.Fix != "" && f.Status != checks.Pass {
			lines = append(lines, fmt.Sprintf("%s %s: %s\n%s", f.ID, f.Status, f.Title, f.Fix))
		}
	}
	c.Text = strings.Join(lines, "\n\n")
	return c
}

func data(r *farm.Run) Case {
	c := Case{Name: Data, Status: Skip, Message: "no pair was measured"}
	s := summary(r)
	if s == nil {
		return c
	}
	if s.Worst != nil {
		c.Status, c.Message = Pass, "" // also where pairs are left out
	}
	var wrong []string
	for _, change := range r.Changes {
		if change.Kind == farm.DataChanged {
			wrong = append(wrong, change.Subject)
		}
	}
	var ways []string
	for _, p := range s.Pairs {
		switch measure.Verdict(p.Verdict) {
		case measure.WrongData:
			ways = append(ways, fmt.Sprintf("%s → %s %s, %s", p.Initiator, p.Peer, p.Direction, p.Method))
		case measure.OK, measure.Slow:
			c.Status, c.Message = Pass, ""
		}
	}
	if wrong == nil {
		wrong = ways // not compared yet
	}
	if wrong != nil {
		c.Status, c.Kind = Fail, string(measure.WrongData)
		c.Message, c.Text = "wrong data: "+wrong[0]+more(len(wrong)-1), strings.Join(wrong, "\n")
	}
	return c
}

// more counts what is not named.
func more(n int) string {
	if n < 1 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// worse tells whether a change is a regression of what a report says: that none
// came is another matter.
func worse(c farm.Change) bool { return c.Worse && c.Kind != farm.NotDelivered }

func unchanged(r *farm.Run) Case {
	c := Case{Name: Unchanged, Status: Skip, Message: "there is no complete report to compare"}
	if r == nil {
		return c
	}
	i := slices.IndexFunc(r.Changes, worse)
	switch {
	case i >= 0:
		n := 0
		for _, change := range r.Changes {
			if worse(change) {
				n++
			}
		}
		c.Status, c.Kind = Fail, "regression"
		c.Message, c.Text = line(r.Changes[i])+more(n-1), describe(r.Changes, worse)
	case r.State == farm.Complete:
		c.Status, c.Message = Pass, ""
	}
	return c
}

// line is a change in one line.
func line(c farm.Change) string { return fmt.Sprintf("%s: %s → %s", c.Subject, c.Before, c.After) }

// describe returns changes with what to do about them.
func describe(changes []farm.Change, some func(farm.Change) bool) string {
	var out []string
	for _, c := range changes {
		if some(c) {
			out = append(out, strings.TrimSpace(line(c)+"\n"+c.Fix))
		}
	}
	return strings.Join(out, "\n\n")
}
