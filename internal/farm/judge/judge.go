// Package judge says what a run of a node found out, what is normal for the
// node, and what changed. It is pure: what it returns depends on its arguments
// only.
//
// [Summarise] takes from a report what can be compared between nights. [Learn]
// makes baselines of the figures of good runs, [Compare] sets a run against them
// and against the states of earlier runs. [Judge] does all of it for runs as they
// are stored.
//
// # Figures
//
// A figure is the bandwidth of an ordered pair in a direction by a method, or the
// latency of a pair; [Key] names it. Its baseline is the median of the last
// [Window] good runs and their median absolute deviation, from [MinRuns] runs on.
// A run is good if its report is complete, its verdict P2P-READY or P2P-DEGRADED,
// its GPUs no emulated ones, and no pair of it delivered wrong data. [Limits] says
// how far from the median a figure may be.
//
// A figure beyond its limit for the worse is a regression, and is not learned
// from: a broken riser is as much of a regression on its hundredth night as on its
// first. What was given up on purpose becomes normal by pinning the new value. A
// step for the better, as after an update of the firmware, is taken over after
// [MinRuns] runs in a row, or by pinning.
//
// # States
//
// A state is the verdict, a setting, a link, a finding, a GPU, whether a report
// comes at all. One that is no worse than what is normal is normal from then on,
// and is reported once. One that is worse is reported until it is gone, or until
// [Accept] runs in a row had it: unlike a figure, a bad state also shows in each
// report by itself.
package judge

import (
	"cmp"
	"slices"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

const (
	// MinRuns is how many good runs a baseline needs. Of three, one that was
	// disturbed is outvoted.
	MinRuns = 3
	// Window is how many good runs a baseline is made of: a month of nights.
	Window = 30
	// Accept is after how many runs in a row a state for the worse is normal.
	Accept = 15
	// Depth is how many runs of a node to give as history. It is larger than
	// Window since runs that are not good are passed over: a regression is known
	// for one as long as MinRuns good runs before it are remembered.
	Depth = 120
)

// Judge compares a run with what is normal for its node: history holds other runs
// of the node in any order ([Depth] are enough; the run itself and later ones are
// passed over), pinned the baselines that were pinned. Only runs that were asked
// to do the same are compared: with the same plan, driver modules and size of
// copies. A run that is under way or was lost is judged as far as it went.
func Judge(node farm.Node, run farm.Run, history []farm.Run, pinned []farm.Baseline) []farm.Change {
	var past []farm.Run
	for _, r := range history {
		if r.ID != run.ID && !began(r).After(began(run)) && alike(r, run) {
			past = append(past, r)
		}
	}
	changes := identify(node, run.Summary, Compare(run, past, Learn(past, pinned)))
	sortChanges(changes)
	return changes
}

// began returns when a run began, as far as that is known.
func began(r farm.Run) time.Time {
	for _, t := range []time.Time{r.Offered, r.Started, r.Updated} {
		if !t.IsZero() {
			return t
		}
	}
	return r.Ended
}

// alike tells whether two runs were asked to do the same. What is not known
// of one of them is no difference.
func alike(a, b farm.Run) bool {
	same := func(a, b string) bool { return a == "" || b == "" || a == b }
	if !same(a.Plan, b.Plan) {
		return false
	}
	for _, name := range []string{DriverModules, CopySize, RunACS} {
		if !same(setting(a, name), setting(b, name)) {
			return false
		}
	}
	return true
}

// setting returns a setting of a run, nothing if it is not known.
func setting(r farm.Run, name string) string {
	if r.Summary == nil {
		return ""
	}
	return r.Summary.Settings[name]
}

// inOrder returns runs sorted, the oldest first.
func inOrder(runs []farm.Run) []farm.Run {
	return slices.SortedStableFunc(slices.Values(runs), func(a, b farm.Run) int {
		return cmp.Or(began(a).Compare(began(b)), cmp.Compare(a.ID, b.ID))
	})
}

// good tells whether the figures of a run may be learned from.
func good(r farm.Run) bool {
	s := r.Summary
	if r.State != farm.Complete || s == nil || !computing(s) {
		return false
	}
	if s.Verdict != checks.VerdictReady && s.Verdict != checks.VerdictDegraded {
		return false
	}
	if slices.ContainsFunc(r.Changes, func(c farm.Change) bool { return c.Kind == farm.HardwareChanged && c.Worse && identifies(c.Subject) }) {
		return false // the report of another machine
	}
	return !slices.ContainsFunc(s.Pairs, func(p farm.Pair) bool { return p.Verdict == string(measure.WrongData) })
}

// computing tells whether the GPUs of a machine can move data: emulated ones and
// stand-ins cannot, and without GPUs there is nothing to measure.
func computing(s *farm.Summary) bool {
	nature := s.Settings[GPUNature]
	return s.Verdict != checks.VerdictNoGPU && (nature == "" || nature == realGPUs)
}
