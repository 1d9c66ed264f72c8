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
// first. What was lost on purpose becomes normal by pinning the new value. A step
// for the better, as after an update of the firmware, is taken over after
// [MinRuns] runs in a row, or by pinning.
//
// # States
//
// A state is the verdict, a setting, a link, a finding, a GPU. The report itself
// says whether it is good, so what most of the last [Window] runs had is normal.
// A state that is worse is reported for as long as most of these runs had another,
// any other change of state only once, against the run before.
package judge

import (
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/report"
)

const (
	// MinRuns is how many good runs a baseline needs. Of three, one that was
	// disturbed is outvoted.
	MinRuns = 3
	// Window is how many good runs a baseline is made of: a month of nights.
	Window = 30
	// Depth is how many runs of a node to give as history. It is larger than
	// Window since runs that are not good are passed over: a regression is known
	// for one as long as MinRuns good runs before it are remembered.
	Depth = 120
)

// Judge compares a run with what is normal for its node: history holds earlier
// runs of the node in any order (Depth of them are enough; the run itself and
// later ones are passed over), pinned the baselines that were pinned. Only runs
// that were asked to do the same are compared: with the same plan, driver modules
// and size of copies. A run that is under way or was lost is judged as far as it
// went.
func Judge(node farm.Node, run farm.Run, history []farm.Run, pinned []farm.Baseline) []farm.Change {
	return nil
}

// Summarise takes from a report, which may be a part of one, what can be compared
// between nights. It returns nil for a report that says nothing yet.
func Summarise(r *report.Run) *farm.Summary {
	return nil
}

// Learn returns the baselines of the figures of runs, in the order of their keys.
// For a figure that is pinned it returns the pinned baseline.
func Learn(history []farm.Run, pinned []farm.Baseline) []farm.Baseline {
	return nil
}

// Compare returns in what a run differs from the baselines and from the states of
// the runs before, the worst first. All of history is taken for comparable, in
// any order.
func Compare(run farm.Run, history []farm.Run, base []farm.Baseline) []farm.Change {
	return nil
}

// Key names a figure: "bandwidth/0000:41:00.0/0000:61:00.0/write/ce" or
// "latency/0000:41:00.0/0000:61:00.0" (initiator, then peer).
type Key string

// Bandwidth returns the key of the bandwidth of p, in GB/s.
func Bandwidth(p farm.Pair) Key {
	return Key("bandwidth/" + p.Initiator + "/" + p.Peer + "/" + p.Direction + "/" + p.Method)
}

// Latency returns the key of the latency of p, in ns.
func Latency(p farm.Pair) Key { return Key("latency/" + p.Initiator + "/" + p.Peer) }

// Limits returns the least and the greatest value that are normal for b.
func Limits(b farm.Baseline) (low, high float64) {
	return 0, 0
}
