package predict

import (
	"fmt"
	"slices"

	"mkp2pimg/internal/rm"
)

// Verdict is the answer to a question.
type Verdict string

// The verdicts.
const (
	Yes     Verdict = "yes"
	No      Verdict = "no"
	Unknown Verdict = "unknown"
)

// Releases for which the gates were read in the driver's source.
const (
	first  = 535
	newest = 610
)

// Range is a range of release branches, both included. To is 0 when it has no
// end yet.
type Range struct {
	From int `json:"from"`
	To   int `json:"to,omitempty"`
}

// Holds reports whether a branch is in r.
func (r Range) Holds(branch int) bool { return branch >= r.From && (r.To == 0 || branch <= r.To) }

// String returns "535-570", or "575-" without an end.
func (r Range) String() string {
	if r.To == 0 {
		return fmt.Sprintf("%d-", r.From)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// always are all releases known.
var always = []Range{{From: first}}

// Step is what follows an answer: a path, the gate to go on with, or else the
// next gate.
type Step struct {
	Grant rm.Path `json:"grant,omitempty"`
	GoTo  string  `json:"go_to,omitempty"`
}

// Gate is a question that the driver asks before it grants a path.
type Gate struct {
	ID string `json:"id"`
	// Releases are the branches that ask it.
	Releases []Range `json:"releases"`
	Question string  `json:"question"`
	// Source is where the driver asks.
	Source string `json:"source"`
	Yes    Step   `json:"yes"`
	No     Step   `json:"no"`
	// Refuses says that No refuses peer-to-peer over PCIe, or over BAR1; Status
	// is what the driver reports when no path is left.
	Refuses bool         `json:"refuses,omitempty"`
	Status  rm.P2PStatus `json:"status,omitempty"`
	// Path is that which a question about working belongs to.
	Path rm.Path `json:"path,omitempty"`
	// IfYes and IfNo say the condition under which an unknown answer is that.
	IfYes string `json:"if_yes"`
	IfNo  string `json:"if_no"`
	// Opens says what turns a No into a Yes.
	Opens string `json:"opens,omitempty"`

	ask func(p *pair) reply
}

// Answer is the answer to a gate's question.
type Answer struct {
	Gate    *Gate   `json:"-"`
	ID      string  `json:"id"` // of Gate
	Verdict Verdict `json:"verdict"`
	// Likely is the verdict that the prediction follows: Yes or No.
	Likely Verdict `json:"likely"`
	Reason string  `json:"reason"`

	read, write rm.P2PStatus
}

// reply is an answer in the making.
type reply struct {
	verdict, likely Verdict
	reason          string
	read, write     rm.P2PStatus
}

func yes(format string, args ...any) reply {
	return reply{verdict: Yes, likely: Yes, reason: fmt.Sprintf(format, args...)}
}

func no(format string, args ...any) reply {
	return reply{verdict: No, likely: No, reason: fmt.Sprintf(format, args...)}
}

func unknown(likely Verdict, format string, args ...any) reply {
	return reply{verdict: Unknown, likely: likely, reason: fmt.Sprintf(format, args...)}
}

// both joins the answers about two GPUs: no if either is no, else unknown if
// either is.
func both(a, b reply) reply {
	for _, v := range []Verdict{No, Unknown} {
		// Of two unknown answers, one that is likely no decides.
		for _, r := range []reply{a, b} {
			if r.verdict == v && (r.likely == No || a.verdict != v || b.verdict != v) {
				return r
			}
		}
	}
	return a
}

func (g *Gate) holds(branch int) bool {
	return slices.ContainsFunc(g.Releases, func(r Range) bool { return r.Holds(branch) })
}

// answer asks a gate once.
func (p *pair) answer(g *Gate) Answer {
	a, asked := p.answers[g]
	if !asked {
		r := g.ask(p)
		a = Answer{g, g.ID, r.verdict, r.likely, r.reason, r.read, r.write}
		p.answers[g] = a
	}
	return a
}

// step returns what follows an answer.
func (g *Gate) step(v Verdict) Step {
	if v == Yes {
		return g.Yes
	}
	return g.No
}

// condition returns under which condition the likely answer is right.
func (a Answer) condition() string {
	if a.Likely == Yes {
		return a.Gate.IfYes
	}
	return a.Gate.IfNo
}

// next returns the index of the gate that a step leads to.
func next(i int, s Step) int {
	if s.GoTo == "" {
		return i + 1
	}
	return slices.IndexFunc(gates, func(g Gate) bool { return g.ID == s.GoTo })
}

// Gates returns the questions in the order in which the driver asks them, then
// those about whether the path works.
func Gates() []Gate { return append(slices.Clone(gates), workings...) }
