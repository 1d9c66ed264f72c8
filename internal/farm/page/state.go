package page

import (
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
)

// state is what is known of a node or run in one word: the verdict, or why there
// is none.
type state string

// The states besides those of verdicts.
const (
	stateReady    state = "ready"
	stateDegraded state = "degraded"
	stateBlocked  state = "blocked"
	stateNoGPU    state = "no-gpu"
	stateUnknown  state = "unknown"
	stateRunning  state = "running" // and no verdict yet
	stateOffered  state = "waiting" // was given an image, has delivered nothing yet
	stateLost     state = "lost"
	stateNever    state = "never seen"
)

// states are in the order in which a reader should look at nodes.
var states = []state{stateBlocked, stateLost, stateUnknown, stateDegraded, stateNever, stateNoGPU, stateRunning, stateOffered, stateReady}

// Class is the style of a state.
func (s state) Class() string {
	switch s {
	case stateReady, stateDegraded, stateBlocked, stateUnknown, stateRunning, stateLost:
		return string(s)
	}
	return ""
}

// Words writes the state as a verdict is written elsewhere.
func (s state) Words() string { return strings.ToUpper(strings.ReplaceAll(string(s), "-", " ")) }

// verdictState is the state of a verdict; any that is not known is unknown.
func verdictState(v checks.Verdict) state {
	switch v {
	case checks.VerdictReady:
		return stateReady
	case checks.VerdictDegraded:
		return stateDegraded
	case checks.VerdictBlocked:
		return stateBlocked
	case checks.VerdictNoGPU:
		return stateNoGPU
	}
	return stateUnknown
}

// runState is the state of a run.
func runState(r *farm.Run) state {
	switch {
	case r == nil:
		return stateNever
	case r.State == farm.Lost:
		return stateLost
	case r.State == farm.Offered:
		return stateOffered
	case r.Summary != nil && r.Summary.Verdict != "":
		return verdictState(r.Summary.Verdict)
	case r.State == farm.Running:
		return stateRunning
	}
	return stateUnknown
}
