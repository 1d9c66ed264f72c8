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

// DefaultSlowFraction is the part of a path's ceiling below which a pair is
// slow. The slowest sound path of which figures are published reaches 0.68 of its
// ceiling (two root complexes of one socket, 39 of 57.6 GB/s), paths within one
// root 0.82 and more; a link that lost a generation or half of its lanes, and one
// whose traffic is sent up and down again, reach one half at most.
const DefaultSlowFraction = 0.65

// collapsed is the part of the best sum so far below which the sum of writes has
// collapsed under one more source. Where it happens, less than a seventh is left;
// an uplink that sources share gives the same sum to more of them.
const collapsed = 0.5

// severity holds the verdicts from best to worst.
var severity = []Verdict{OK, Slow, Inconclusive, Unusable, Hang, WrongData}

// Worse tells whether v is worse than w. An unknown verdict is the best.
func (v Verdict) Worse(w Verdict) bool {
	return slices.Index(severity, v) > slices.Index(severity, w)
}

// JudgeDevice returns the verdict on a GPU by itself, and the reason.
func JudgeDevice(d Device) (Verdict, string) {
	for _, c := range d.Checks {
		if c.Failed() {
			return WrongData, describe(c)
		}
	}
	if d.Problem != nil {
		return judgeProblem(*d.Problem, d.Step)
	}
	for _, way := range []Direction{H2D, D2H, Local} {
		if !verified(d.Checks, way, CE) {
			return Inconclusive, fmt.Sprintf("%s by %s was not verified", way, CE)
		}
	}
	return OK, "copies from and to the host and within the GPU verified"
}

// JudgePair returns the verdict on each way of the pair that was begun, the
// verdict on the pair, and its reason. Wrong data outweighs everything else.
func JudgePair(p Pair, set Settings) ([]Way, Verdict, string) {
	var ways []Way
	for i, w := range p.Ways {
		ways = append(ways, judgeWay(p, w, i == len(p.Ways)-1, set))
	}
	v, reason := judgePair(p, ways)
	// What went wrong with the pair as a whole, as a hang when both copied at once,
	// leaves no way sound.
	whole := v == Hang || v == Unusable || len(p.Watch.alarms()) > 0
	if whole && !slices.ContainsFunc(ways, func(w Way) bool { return !v.Worse(w.Verdict) }) {
		for i := range ways {
			ways[i].Verdict, ways[i].Reason = v, reason
		}
	}
	return ways, v, reason
}

// VerdictOf returns the verdict on a direction and method of a judged pair, and
// the reason: that of the way or, where none was begun, of the pair. Copies
// through host memory, which need no access to the peer, are judged by their own
// verification.
func (p Pair) VerdictOf(d Direction, m Method) (Verdict, string) {
	if m == Staged {
		for _, c := range p.Checks {
			if c.Direction == d && c.Method == m && c.Bytes > 0 && !c.Failed() {
				return OK, "data verified by its owner"
			}
		}
		return Inconclusive, fmt.Sprintf("%s by %s was not verified", d, m)
	}
	for _, w := range p.Ways {
		if w.Direction == d && w.Method == m {
			return w.Verdict, w.Reason
		}
	}
	return p.Verdict, p.Reason
}

func judgePair(p Pair, ways []Way) (Verdict, string) {
	if v, reason := judgeData(p.Checks); v != OK {
		return v, reason
	}
	if p.Problem != nil && p.Step != stepAtomics {
		return judgeProblem(*p.Problem, p.Step)
	}
	if len(ways) == 0 {
		return Inconclusive, "nothing was measured"
	}
	worst, reason := OK, ""
	for _, w := range ways {
		if w.Verdict.Worse(worst) {
			worst, reason = w.Verdict, w.Reason
		}
	}
	switch {
	case worst != OK && worst != Slow:
		return worst, reason
	case !slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Phase == Reached }):
		return Inconclusive, "how far the peer's memory can be reached was not verified"
	case !slices.ContainsFunc(p.Checks, func(c Check) bool { return c.Phase == Handshake }):
		return Inconclusive, "data announced by a flag was not verified"
	}
	if lines := p.Watch.alarms(); len(lines) > 0 {
		return Inconclusive, "the data was right, but meanwhile the kernel said: " + lines[0]
	}
	if worst == Slow {
		if links := p.Watch.throttled(); links != "" {
			reason += "; under load " + links
		}
		return Slow, reason
	}
	var speeds []string
	for _, w := range ways {
		if w.Method == CE {
			speeds = append(speeds, fmt.Sprintf("%s %.2f GB/s", w.Direction, w.GBps))
		}
	}
	return OK, strings.Join(speeds, ", ") + ", data verified by its owner"
}

// judgeWay returns w with its figures and its verdict. The last way begun is the
// one that a problem of the pair belongs to, unless it was over by then.
func judgeWay(p Pair, w Way, last bool, set Settings) Way {
	on, measured := lookup(p.Measurements, w.Direction, w.Method)
	off, staged := lookup(p.Measurements, w.Direction, Staged)
	w.GBps = on.Median
	if staged && off.Median > 0 {
		w.OnOff = on.Median / off.Median
	}
	ceiling := p.Ceiling.Of(w.Direction)
	if ceiling > 0 {
		w.OfCeiling = on.Median / ceiling
	}
	name := fmt.Sprintf("%s by %s", w.Direction, w.Method)

	var mine []Check
	for _, c := range p.Checks {
		if c.Direction == w.Direction && c.Method == w.Method {
			mine = append(mine, c)
		}
	}
	w.Verdict, w.Reason = judgeData(mine)
	switch {
	case w.Verdict != OK:
	case !verified(mine, w.Direction, w.Method) || !measured:
		w.Verdict, w.Reason = Inconclusive, name+" was not verified before and after the load"
		if last && p.Problem != nil {
			w.Verdict, w.Reason = judgeProblem(*p.Problem, p.Step)
		}
	case on.Median < set.MinGBps:
		w.Verdict, w.Reason = Slow, fmt.Sprintf("%s, %.2f GB/s, is below the floor of %.2f GB/s", name, on.Median, set.MinGBps)
	case w.Method == CE && ceiling > 0 && w.OfCeiling < set.SlowFraction:
		w.Verdict = Slow
		w.Reason = fmt.Sprintf("%s, %.2f GB/s, is %.0f %% of the %.2f GB/s that the path can carry (%s); slow is below %.0f %%",
			name, on.Median, 100*w.OfCeiling, ceiling, p.Ceiling.Basis, 100*set.SlowFraction)
	case w.Method == CE && staged && on.Median < off.Median:
		w.Verdict, w.Reason = Slow, fmt.Sprintf("%s, %.2f GB/s, is slower than through host memory, %.2f GB/s", name, on.Median, off.Median)
	default:
		w.Reason = fmt.Sprintf("%.2f GB/s, data verified by its owner", on.Median)
	}
	return w
}

// Of returns the ceiling in a direction, in GB/s; zero if it, or c, is not known.
func (c *Ceiling) Of(d Direction) float64 {
	switch {
	case c == nil:
		return 0
	case d == Write:
		return c.WriteGBps
	default:
		return c.ReadGBps
	}
}

// JudgeTraffic returns the verdict on several pairs at once, and the reason;
// before holds the traffic of the same shape with fewer sources.
func JudgeTraffic(t Traffic, before []Traffic) (Verdict, string) {
	if v, reason := judgeData(t.Checks); v != OK {
		return v, reason
	}
	if t.Problem != nil {
		return judgeProblem(*t.Problem, t.Step)
	}
	if t.Sum == nil || !allVerified(t) {
		return Inconclusive, "not every flow was verified under load"
	}
	if lines := t.Watch.alarms(); len(lines) > 0 {
		return Inconclusive, "the data was right, but meanwhile the kernel said: " + lines[0]
	}
	if t.Shape == Collapse {
		for _, b := range before {
			if b.Shape == Collapse && (b.Verdict == OK || b.Verdict == Slow) && t.Sum.Median < collapsed*b.Sum.Median {
				return Slow, fmt.Sprintf("%d GPUs under one switch write %.2f GB/s together, where %d reach %.2f GB/s: posted writes collapse",
					t.Sources, t.Sum.Median, b.Sources, b.Sum.Median)
			}
		}
	}
	return OK, fmt.Sprintf("%d flows, %.2f GB/s together, data verified by its owners", len(t.Flows), t.Sum.Median)
}

// allVerified tells whether a check of each flow found nothing wrong.
func allVerified(t Traffic) bool {
	n := 0
	for _, c := range t.Checks {
		if c.Bytes > 0 && !c.Failed() {
			n++
		}
	}
	return n > 0 && n >= len(t.Flows)
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
	for _, t := range r.Traffic {
		worsen(t.Verdict, t.Name(), t.Reason)
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

// Name says what the traffic is, for a person: "all-to-one write by ce".
func (t Traffic) Name() string {
	name := fmt.Sprintf("%s %s by %s", t.Shape, t.Direction, t.Method)
	if t.Shape == Collapse {
		name += fmt.Sprintf(" with %d sources", t.Sources)
	}
	return name
}

// judgeData returns the verdict on the worst check: WrongData, Hang if flags never
// came, Inconclusive if a source was damaged, or OK.
func judgeData(checks []Check) (Verdict, string) {
	verdict, reason := OK, ""
	for _, c := range checks {
		if !c.Failed() {
			continue
		}
		switch {
		case c.SourceDamaged:
			verdict, reason = Inconclusive, "the source of the copy lost its data: "+describe(c)
		case c.Wrong > 0:
			return WrongData, describe(c)
		default:
			verdict, reason = Hang, describe(c)
		}
	}
	return verdict, reason
}

// moments say when data was verified.
var moments = map[Phase]string{
	Before: "before the load", After: "after the load", Swept: "in the size sweep", Together: "with copies at the same time",
	Reached: "all over the peer's memory", Handshake: "announced by a flag",
}

// describe says in a sentence what a failed check found.
func describe(c Check) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s by %s, %s: ", c.Direction, c.Method, moments[c.Phase])
	if c.Lost > 0 {
		fmt.Fprintf(&b, "%d flags never came", c.Lost)
		if c.Wrong == 0 {
			return b.String()
		}
		b.WriteString(", and ")
	}
	fmt.Fprintf(&b, "%d of %d words that the owner read are wrong", c.Wrong, c.Bytes/wordSize)
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

// verified tells whether a direction was verified by a method in both phases.
func verified(checks []Check, d Direction, m Method) bool {
	seen := map[Phase]bool{}
	for _, c := range checks {
		if c.Direction == d && c.Method == m && !c.Failed() && c.Bytes > 0 {
			seen[c.Phase] = true
		}
	}
	return seen[Before] && seen[After]
}

// lookup returns the bandwidth of a direction by a method, with nothing else
// going on.
func lookup(ms []Measurement, d Direction, m Method) (Measurement, bool) {
	i := slices.IndexFunc(ms, func(x Measurement) bool {
		return x.Quantity == Bandwidth && x.Direction == d && x.Method == m && x.Load == Alone
	})
	if i < 0 {
		return Measurement{}, false
	}
	return ms[i], true
}
