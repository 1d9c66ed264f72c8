package checks

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the answer for the whole machine.
type Verdict string

// The verdicts.
const (
	VerdictReady    Verdict = "P2P-READY"
	VerdictDegraded Verdict = "P2P-DEGRADED" // works, slower or with a risk
	VerdictBlocked  Verdict = "P2P-BLOCKED"
	VerdictNoGPU    Verdict = "P2P-NO-GPU" // fewer than two GPUs, nothing to pair
	VerdictUnknown  Verdict = "P2P-UNKNOWN"
)

// Measured is the ID of the finding about the measurement of a pair of GPUs, or,
// if all of them are well, of all pairs. It comes from whoever measures; [Run]
// doesn't make it.
const Measured ID = "P2P-MEASURED"

var measuredDoc = Doc{
	ID:       Measured,
	Question: "Does data arrive between two GPUs, unchanged and fast enough?",
	Meaning:  "Everything else predicts; this is what the GPUs did, with every page of the data verified where it arrived.",
	Fix:      "See the findings that failed: each names a cause. Without one, the finding says what the measurement hints at.",
	Outcomes: []Outcome{
		{Pass, "the data of the pair arrived, at the rate to be expected"},
		{Warn, "it arrived slower"},
		{Fail, "it did not arrive, arrived wrong, or the transfer hung"},
		{Unknown, "the measurement does not tell"},
	},
}

// AsIf comes before the verdict that stand-in devices would have as GPUs, in the
// reason that [Judge] gives.
const AsIf = "judged as if it were one: "

// Judge sums findings up in a verdict and its reason. One failure blocks. What
// could not be told outweighs a warning: a machine is called ready or degraded
// only when every question has an answer.
//
// The other checks predict, [Measured] proves: where every pair was measured and
// its data arrived, what could not be told no longer matters, and a failed check
// is a risk that did not show. [RMPath] says over which path it arrived.
//
// Findings whose [Doc] says so weigh nothing. Those about stand-in devices never
// say anything about GPUs, whatever they are.
func Judge(findings []Finding) (Verdict, string) {
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.StandIn }) {
		v, reason := judgeGPUs(findings)
		return VerdictNoGPU, fmt.Sprintf("stand-in device in place of a GPU; %s%s, %s", AsIf, v, reason)
	}
	return judgeGPUs(findings)
}

func judgeGPUs(findings []Finding) (Verdict, string) {
	for _, f := range findings {
		if (f.ID == GPUPresent || f.ID == GPUPair) && f.Status == Skip {
			return VerdictNoGPU, f.Title
		}
	}
	if proven(findings) {
		return judgeProven(findings)
	}
	for _, level := range []struct {
		status  Status
		verdict Verdict
	}{
		{Fail, VerdictBlocked},
		{Unknown, VerdictUnknown},
		{Warn, VerdictDegraded},
	} {
		if reasons := titles(findings, level.status); reasons != "" {
			return level.verdict, reasons
		}
	}
	if titles(findings, Pass) == "" {
		return VerdictUnknown, "nothing was checked"
	}
	return VerdictReady, "every check passed"
}

// proven says whether every pair was measured and is well.
func proven(findings []Finding) bool {
	measured := false
	for _, f := range findings {
		if f.ID == Measured {
			if f.Status != Pass {
				return false
			}
			measured = true
		}
	}
	return measured
}

// judgeProven judges a machine all of whose pairs were measured and are well.
func judgeProven(findings []Finding) (Verdict, string) {
	for _, s := range []Status{Fail, Warn} {
		if reasons := titles(findings, s); reasons != "" {
			return VerdictDegraded, "every pair was measured and its data verified, and yet " + reasons
		}
	}
	if path := joined(findings, func(f Finding) bool { return f.ID == RMPath && f.Status == Pass }); path != "" {
		return VerdictReady, "every pair was measured and its data verified; " + path
	}
	return VerdictReady, "every pair was measured and its data verified; over which path the driver does not tell"
}

// joined joins the titles of some findings.
func joined(findings []Finding, some func(f Finding) bool) string {
	var out []string
	for _, f := range findings {
		if some(f) {
			out = append(out, strings.TrimPrefix(f.Title, standInPrefix))
		}
	}
	return strings.Join(out, "; ")
}

// titles joins the IDs and titles of the findings with status s.
func titles(findings []Finding, s Status) string {
	var out []string
	for _, f := range findings {
		if f.Status == s && !weightless(f.ID) {
			out = append(out, fmt.Sprintf("%s: %s", f.ID, strings.TrimPrefix(f.Title, standInPrefix)))
		}
	}
	return strings.Join(out, "; ")
}
