package measure

import (
	"fmt"
	"slices"
	"strings"
)

// Verdict is the answer for a GPU, a pair, or a run.
type Verdict string

// The verdicts.
const (
	OK           Verdict = "ok"           // right data at no suspicious speed
	Slow         Verdict = "slow"         // right data, but slower than it should be
	Inconclusive Verdict = "inconclusive" // could not tell
	Unusable     Verdict = "unusable"     // refused by the driver, or every try fails
	Hang         Verdict = "hang"         // an operation did not end
	WrongData    Verdict = "wrong-data"   // data did not arrive as sent, at whatever speed
)

// severity holds the verdicts from best to worst.
var severity = []Verdict{OK, Slow, Inconclusive, Unusable, Hang, WrongData}

// Worse tells whether v is worse than w. An unknown verdict is the best.
func (v Verdict) Worse(w Verdict) bool {
	return slices.Index(severity, v) > slices.Index(severity, w)
}

// JudgeDevice returns the verdict on a GPU by itself, and the reason.
func JudgeDevice(d Device) (Verdict, string) {
	for _, c := range d.Checks {
		if c.Wrong > 0 {
			return WrongData, describe(c)
		}
	}
	if d.Problem != nil {
		return judgeProblem(*d.Problem, d.Step)
	}
	if !verified(d.Checks, Local) {
		return Inconclusive, "its local copy was not verified"
	}
	return OK, "local copy verified"
}

// JudgePair returns the verdict on a pair, and the reason. Wrong data outweighs
// everything else that was found.
func JudgePair(p Pair, set Settings) (Verdict, string) {
	if v, reason := judgeData(p.Checks); v != OK {
		return v, reason
	}
	if p.Problem != nil {
		return judgeProblem(*p.Problem, p.Step)
	}
	for _, d := range []Direction{Write, Read} {
		if !verified(p.Checks, d) {
			return Inconclusive, fmt.Sprintf("direction %s was not verified before and after the load", d)
		}
	}
	write, okWrite := lookup(p.Measurements, Write, CE)
	read, okRead := lookup(p.Measurements, Read, CE)
	if !okWrite || !okRead {
		return Inconclusive, "bandwidth was not measured in both directions"
	}
	for _, m := range []Measurement{write, read} {
		if m.Median < set.MinGBps {
			return Slow, fmt.Sprintf("%s %.2f GB/s is below the floor of %.2f GB/s", m.Direction, m.Median, set.MinGBps)
		}
	}
	if staged, ok := lookup(p.Measurements, Write, Staged); ok && write.Median < staged.Median {
		return Slow, fmt.Sprintf("write %.2f GB/s is slower than through host memory, %.2f GB/s", write.Median, staged.Median)
	}
	return OK, fmt.Sprintf("write %.2f GB/s, read %.2f GB/s, data verified by its owner", write.Median, read.Median)
}

// Judge returns the verdict on a run, the worst of its parts, and the reason.
func Judge(r Result) (Verdict, string) {
	if r.Problem != nil {
		return judgeProblem(*r.Problem, "")
	}
	if r.Inventory == nil || len(r.Inventory.GPUs) == 0 {
		return Inconclusive, "no GPU"
	}
	worst, reason := OK, ""
	worsen := func(v Verdict, where, why string) {
		if v.Worse(worst) {
			worst, reason = v, where+": "+why
		}
	}
	for _, d := range r.Devices {
		worsen(d.Verdict, d.BDF, d.Reason)
	}
	for _, p := range r.Pairs {
		worsen(p.Verdict, p.Initiator+" to "+p.Peer, p.Reason)
	}
	switch {
	case worst != OK:
		return worst, reason
	case len(r.Pairs) > 0:
		return OK, fmt.Sprintf("%d ordered pairs of %d GPUs", len(r.Pairs), len(r.Inventory.GPUs))
	case len(r.Inventory.GPUs) == 1:
		return OK, "one GPU, so there is no pair to measure"
	default:
		return Inconclusive, "no pair was measured"
	}
}

// judgeData returns WrongData or Inconclusive for the worst check, or OK.
func judgeData(checks []Check) (Verdict, string) {
	verdict, reason := OK, ""
	for _, c := range checks {
		if c.Wrong == 0 {
			continue
		}
		if !c.SourceDamaged {
			return WrongData, describe(c)
		}
		verdict, reason = Inconclusive, "the source of the copy lost its data: "+describe(c)
	}
	return verdict, reason
}

// describe says in a sentence what a failed check found.
func describe(c Check) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s the load: %d of %d words that the owner read are wrong", c.Direction, c.Phase, c.Wrong, c.Bytes/wordSize)
	if f := c.First; f != nil {
		fmt.Fprintf(&b, ", the first at offset %#x (%s", f.Offset, f.Kind)
		if f.Kind == Misplaced {
			fmt.Fprintf(&b, " from %#x", f.From)
		}
		b.WriteString(")")
	}
	if c.Mirror {
		b.WriteString("; the initiator reads its own data back, so its mapping of the peer leads elsewhere")
	}
	return b.String()
}

func judgeProblem(p Problem, step string) (Verdict, string) {
	verdict := Inconclusive
	switch p.Kind {
	case Timeout:
		verdict = Hang
	case Refused, Failed:
		verdict = Unusable
	}
	if step == "" {
		return verdict, p.Text
	}
	return verdict, step + ": " + p.Text
}

// verified tells whether a direction was verified in both phases.
func verified(checks []Check, d Direction) bool {
	seen := map[Phase]bool{}
	for _, c := range checks {
		if c.Direction == d && c.Wrong == 0 && c.Bytes > 0 {
			seen[c.Phase] = true
		}
	}
	return seen[Before] && seen[After]
}

// lookup returns the measurement of a direction by a method.
func lookup(ms []Measurement, d Direction, m Method) (Measurement, bool) {
	i := slices.IndexFunc(ms, func(x Measurement) bool { return x.Direction == d && x.Method == m })
	if i < 0 {
		return Measurement{}, false
	}
	return ms[i], true
}
