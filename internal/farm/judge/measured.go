package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// measured looks at what the pairs reached.
func (c *comparison) measured(base []farm.Baseline) {
	pairs := c.run.Summary.Pairs
	c.wrongData(pairs)
	if !computing(c.run.Summary) {
		return
	}
	c.missing(pairs)
	c.broken(pairs, base)
	c.figures(pairs, base)
}

// maxFigures is how many figures are reported by themselves: all of 5 GPUs.
const maxFigures = 100

// figures reports those that are beyond the limits of their baselines, the ones
// furthest off first.
func (c *comparison) figures(pairs []farm.Pair, base []farm.Baseline) {
	type beyond struct {
		pair farm.Pair
		figure
		base farm.Baseline
		far  float64 // as a part of the median, for the worse
	}
	var all []beyond
	for _, p := range pairs {
		for _, f := range figures(p) {
			b, ok := find(base, f.key)
			if side := judged(b, f.value); ok && side != 0 {
				all = append(all, beyond{p, f, b, -float64(side) * math.Abs(f.value-b.Median) / b.Median})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b beyond) int { return cmp.Compare(b.far, a.far) })
	causes := slices.Clone(c.changes)
	for i, f := range all {
		if i == maxFigures {
			c.changes = append(c.changes, farm.Change{
				Kind: farm.BandwidthChanged, Subject: fmt.Sprintf("%d more figures", len(all)-i), Before: "as in their baselines",
				After: fmt.Sprintf("beyond their limits, less far than the %d listed", maxFigures), Worse: f.far > 0, Fix: word(f.far > 0, "As for those listed.", ""),
			})
			return
		}
		c.figure(f.pair, f.figure, f.base, causes)
	}
}

// ends names an ordered pair.
func ends(p farm.Pair) string { return p.Initiator + " → " + p.Peer }

// wrongData reports each pair whose data did not arrive as sent: on the first run
// as on any other.
func (c *comparison) wrongData(pairs []farm.Pair) {
	for _, g := range groups(pairs, func(p farm.Pair) bool { return p.Verdict == string(measure.WrongData) }) {
		right := len(c.earlier(Bandwidth(g.ways[0])))
		before := "not verified before"
		if right > 0 {
			before = fmt.Sprintf("right data (%s)", count(right, "run"))
		}
		c.changes = append(c.changes, farm.Change{
			Kind: farm.DataChanged, Subject: g.String(), Before: before, After: "wrong data", Worse: true,
			Fix: lines("Do not use the pair for peer-to-peer until this is solved: no speed makes up for wrong data.", c.advice(checks.Measured)),
		})
	}
}

// missing reports that a whole run measured no pair where runs before it did.
func (c *comparison) missing(pairs []farm.Pair) {
	if c.run.State != farm.Complete || len(pairs) > 0 {
		return
	}
	for _, r := range slices.Backward(c.past) {
		n := len(groups(r.Summary.Pairs, verified))
		if n == 0 {
			continue
		}
		runs := 0
		for _, r := range c.past {
			if slices.ContainsFunc(r.Summary.Pairs, verified) {
				runs++
			}
		}
		c.changes = append(c.changes, farm.Change{
			Kind: farm.BandwidthChanged, Subject: "all pairs", Worse: true,
			Before: fmt.Sprintf("%s measured (%s)", count(n, "ordered pair"), count(runs, "run")), After: "none measured",
			Fix: lines("See the verdict: the run did not get as far as measuring.", since(r, c.run, "")),
		})
		return
	}
}

// group are ways of one ordered pair.
type group struct {
	ways []farm.Pair
	all  bool // they are all that the run has of the pair
}

// groups returns the ways for which f holds, by pair, in their order.
func groups(pairs []farm.Pair, f func(farm.Pair) bool) []group {
	var out []group
	at := map[string]int{} // index in out, by ends
	total := map[string]int{}
	for _, p := range pairs {
		total[ends(p)]++
		if !f(p) {
			continue
		}
		i, ok := at[ends(p)]
		if !ok {
			i = len(out)
			at[ends(p)] = i
			out = append(out, group{})
		}
		out[i].ways = append(out[i].ways, p)
	}
	for i := range out {
		out[i].all = len(out[i].ways) == total[ends(out[i].ways[0])]
	}
	return out
}

// String names the pair, and the ways if they are not all.
func (g group) String() string {
	if g.all {
		return ends(g.ways[0])
	}
	var ways []string
	for _, p := range g.ways {
		ways = append(ways, way(p))
	}
	return ends(g.ways[0]) + " " + strings.Join(ways, "; ")
}

// way names the direction and method of p.
func way(p farm.Pair) string { return p.Direction + ", " + p.Method }

// broken reports the ways that have a baseline and reach nothing: those of a pair
// in one change, and all pairs in one if they have it in common.
func (c *comparison) broken(pairs []farm.Pair, base []farm.Baseline) {
	var lost []farm.Pair
	before := map[Key]farm.Baseline{}
	for _, p := range pairs {
		if verified(p) || p.Verdict == string(measure.WrongData) {
			continue
		}
		if b, ok := find(base, Bandwidth(p)); ok {
			lost = append(lost, p)
			before[Bandwidth(p)] = b
		}
	}
	for _, v := range []measure.Verdict{measure.Hang, measure.Unusable, measure.Inconclusive, ""} {
		all := groups(pairs, func(p farm.Pair) bool { return p.Verdict == string(v) && slices.Contains(lost, p) })
		if len(all) == 0 {
			continue
		}
		word := string(v)
		if v == "" {
			word = "not judged"
		}
		const several = 4
		first := all[0].ways[0]
		if len(all) > several {
			c.changes = append(c.changes, c.nothing(fmt.Sprintf("%d ordered pairs, the first of them %s", len(all), all[0]), word, first, before))
			continue
		}
		for _, g := range all {
			c.changes = append(c.changes, c.nothing(g.String(), word, g.ways[0], before))
		}
	}
}

// nothing is the change of ways that reach nothing, of which one is p.
func (c *comparison) nothing(subject, verdict string, p farm.Pair, before map[Key]farm.Baseline) farm.Change {
	b := before[Bandwidth(p)]
	return farm.Change{
		Kind: farm.BandwidthChanged, Subject: subject, Before: fmt.Sprintf("%s, %s", wordBaseline(b), way(p)), After: "none: " + verdict, Worse: true,
		Fix: lines(c.advice(checks.Measured), since(c.lastNormal(Bandwidth(p), b), c.run, "")),
	}
}

// sample is a figure of an earlier run.
type sample struct {
	run   farm.Run
	value float64
}

// earlier returns the values of a figure in the runs before, the oldest first.
func (c *comparison) earlier(k Key) []sample {
	if c.samples == nil {
		c.samples = map[Key][]sample{}
		for _, r := range c.past {
			for _, p := range r.Summary.Pairs {
				for _, f := range figures(p) {
					c.samples[f.key] = append(c.samples[f.key], sample{r, f.value})
				}
			}
		}
	}
	return c.samples[k]
}

// lastNormal returns the last run whose figure was no worse than the baseline.
func (c *comparison) lastNormal(k Key, b farm.Baseline) farm.Run {
	for _, s := range slices.Backward(c.earlier(k)) {
		if judged(b, s.value) >= 0 {
			return s.run
		}
	}
	return farm.Run{}
}

// figure reports a figure beyond the limits of its baseline, after other changes.
func (c *comparison) figure(p farm.Pair, f figure, b farm.Baseline, causes []farm.Change) {
	side := judged(b, f.value)
	if side == 0 {
		return
	}
	b.Key = string(f.key)
	change := farm.Change{
		Kind: farm.BandwidthChanged, Subject: ends(p) + " " + way(p), Before: wordBaseline(b),
		After: fmt.Sprintf("%s, %s", wordFigure(f.key, f.value), off(f, b)), Worse: side < 0,
	}
	if f.key.Rises() {
		change.Kind, change.Subject = farm.LatencyChanged, ends(p)+" latency of a load"
	}
	if change.Worse {
		change.Fix = c.slowFix(p, f, b, causes)
	}
	c.changes = append(c.changes, change)
}

// slowFix says what to do about a figure that got worse, after other changes.
func (c *comparison) slowFix(p farm.Pair, f figure, b farm.Baseline, changes []farm.Change) string {
	var causes []string
	for _, change := range changes {
		if change.Worse && concerns(change, p) {
			causes = append(causes, fmt.Sprintf("%s: %s", change.Subject, change.After))
		}
	}
	cause := since(c.lastNormal(f.key, b), c.run, "")
	switch {
	case causes != nil:
		cause = lines("A likely cause is reported above: "+strings.Join(causes, "; ")+".", cause)
	case cause == "":
		cause = "No setting that the report has changed with it. Start the node again; if it stays, look for heat, a power limit or other load, and reseat the GPUs and their risers."
	}
	return lines(cause, fmt.Sprintf("If it is meant to be so, pin it: %s: %s.", f.key, wordFigure(f.key, f.value)))
}

// concerns tells whether a change can be the cause of what became slower between
// two GPUs: one of the machine as a whole, or of a device that it names.
func concerns(change farm.Change, p farm.Pair) bool {
	switch change.Kind {
	case farm.LinkChanged, farm.SettingChanged:
	default:
		return false
	}
	return !strings.Contains(change.Subject, ":") || strings.Contains(change.Subject, p.Initiator) || strings.Contains(change.Subject, p.Peer)
}

// wordBaseline says what is normal, and how that is known.
func wordBaseline(b farm.Baseline) string {
	whence := "median of " + count(b.Runs, "run")
	if b.Pinned {
		whence = "pinned"
	}
	return fmt.Sprintf("%s (%s)", wordFigure(Key(b.Key), b.Median), whence)
}

// wordFigure returns a figure with its unit, to three digits or more.
func wordFigure(k Key, v float64) string {
	digits := 2
	switch {
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f %s", digits, v, k.unit())
}

// off says how far a figure is from its baseline.
func off(f figure, b farm.Baseline) string {
	up, down := "more", "less"
	if f.key.Rises() {
		up, down = "longer", "shorter"
	}
	if b.Median == 0 {
		return up
	}
	part := f.value/b.Median - 1
	if part < 0 {
		up = down
	}
	return fmt.Sprintf("%.0f %% %s", 100*math.Abs(part), up)
}
