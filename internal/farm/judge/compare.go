package judge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
)

// Compare returns in what a run differs from the baselines and from the states of
// the runs before, the worst first. All of history is taken for comparable and for
// earlier, in any order.
func Compare(run farm.Run, history []farm.Run, base []farm.Baseline) []farm.Change {
	c := comparison{run: run}
	for _, r := range inOrder(history) {
		if r.State.Over() {
			c.ended = append(c.ended, r)
		}
		if r.State == farm.Complete && r.Summary != nil {
			c.past = append(c.past, r)
		}
	}
	c.delivered()
	if run.Summary != nil {
		c.verdict()
		c.settings()
		c.gpus()
		c.findings()
		c.measured(base)
	}
	sortChanges(c.changes)
	return c.changes
}

// comparison is a run with those before it, the oldest first.
type comparison struct {
	run     farm.Run
	ended   []farm.Run // all that are over
	past    []farm.Run // those whose report is complete
	changes []farm.Change
	samples map[Key][]sample // of past, see earlier
}

// kinds are in the order in which changes are listed: causes before effects, after
// what makes everything else doubtful.
var kinds = []farm.ChangeKind{
	farm.DataChanged, farm.HardwareChanged, farm.NotDelivered, farm.VerdictChanged, farm.LinkChanged, farm.SettingChanged,
	farm.FindingChanged, farm.BandwidthChanged, farm.LatencyChanged,
}

func sortChanges(changes []farm.Change) {
	slices.SortStableFunc(changes, func(a, b farm.Change) int {
		bad := func(c farm.Change) int { return slices.Index([]bool{true, false}, c.Worse) }
		return cmp.Or(bad(a)-bad(b), slices.Index(kinds, a.Kind)-slices.Index(kinds, b.Kind))
	})
}

// look reports a state if it changed.
func (c *comparison) look(s state) {
	if change, ok := s.changed(c.run, c.past); ok {
		c.changes = append(c.changes, change)
	}
}

// delivered looks at whether the report came.
func (c *comparison) delivered() {
	if !c.run.State.Over() {
		return
	}
	s := state{
		kind: farm.NotDelivered, subject: "report",
		get:   func(r farm.Run) (string, bool) { return string(r.State), true },
		worse: func(_, after string) bool { return after == string(farm.Lost) },
		word: func(v string) string {
			switch {
			case v == string(farm.Complete):
				return "complete"
			case c.run.State != farm.Lost:
				return "not complete"
			case c.run.Chunks == 0:
				return strings.TrimSuffix("nothing arrived: "+c.run.Why, ": ")
			}
			return strings.TrimSuffix(fmt.Sprintf("cut off in stage %s: %s", cmp.Or(c.run.Stage, "unknown"), c.run.Why), ": ")
		},
		fix: func() string {
			if c.run.Chunks == 0 {
				return "Look at the console and the power of " + c.run.Node + ": it was offered the image and sent nothing. The image may not start on it, or its network port is another than the one it boots from."
			}
			return "Look at the console of " + c.run.Node + ": it stopped in the middle of its run. The last lines of its report say what it was doing; a hang of a GPU or a reset of the machine leaves no more."
		},
	}
	if change, ok := s.changed(c.run, c.ended); ok {
		c.changes = append(c.changes, change)
	}
}

// ranks order verdicts. A machine whose GPUs are gone is as bad as a blocked one.
var ranks = map[string]int{
	string(checks.VerdictReady): 0, string(checks.VerdictDegraded): 1, string(checks.VerdictUnknown): 2,
	string(checks.VerdictBlocked): 3, string(checks.VerdictNoGPU): 3, noVerdict: 2,
}

// noVerdict stands for that of a complete report that has none.
const noVerdict = "no verdict"

func (c *comparison) verdict() {
	c.look(state{
		kind: farm.VerdictChanged, subject: "verdict",
		get: func(r farm.Run) (string, bool) {
			v := string(r.Summary.Verdict)
			if v == "" && r.State == farm.Complete {
				v = noVerdict
			}
			return v, v != ""
		},
		worse: func(before, after string) bool {
			return before != string(checks.VerdictNoGPU) && ranks[after] > ranks[before]
		},
		word: func(v string) string {
			if v == string(c.run.Summary.Verdict) && c.run.Summary.Reason != "" {
				return v + ": " + c.run.Summary.Reason
			}
			return v
		},
		fix: func() string {
			for _, status := range []checks.Status{checks.Fail, checks.Unknown, checks.Warn} {
				for _, f := range c.run.Summary.Findings {
					if f.Status == status && f.Fix != "" && !weightless(f.ID) {
						return fmt.Sprintf("%s: %s", f.ID, f.Fix)
					}
				}
			}
			return "The reason of the verdict says what stands in the way; the log of the stage that it names has the rest."
		},
	})
}

// weightless tells whether findings of a kind leave the verdict alone.
func weightless(id checks.ID) bool {
	doc, _ := checks.Explain(id)
	return doc.Weightless
}

// advice returns what to do about a kind of finding: the steps for the machine if
// the run has them, else in general.
func (c *comparison) advice(id checks.ID) string {
	for _, f := range c.run.Summary.Findings {
		if f.ID == id && f.Status != checks.Pass && f.Fix != "" {
			return fmt.Sprintf("%s: %s", id, f.Fix)
		}
	}
	doc, _ := checks.Explain(id)
	return fmt.Sprintf("%s: %s", id, doc.Fix)
}

// rule says how the changes of a setting are judged.
type rule struct {
	kind  farm.ChangeKind
	worse func(before, after string) bool // nil: no value is
	about checks.ID                       // the finding that says what to do
}

// ruleOf returns the rule of a setting; false for one that is judged elsewhere or
// follows from others.
func ruleOf(name string) (rule, bool) {
	switch {
	case identifies(name), describes(name):
		return rule{kind: farm.HardwareChanged, worse: differs}, true
	case name == GPUNature:
		return rule{kind: farm.HardwareChanged, worse: func(before, _ string) bool { return before == realGPUs }, about: checks.GPUPresent}, true
	case name == IOMMUMode:
		return rule{farm.SettingChanged, func(_, after string) bool { return after == translating }, checks.IOMMU}, true
	case name == ACSRedirect:
		return rule{farm.SettingChanged, more, checks.ACSRedirect}, true
	case name == Above4G:
		return rule{farm.SettingChanged, func(_, after string) bool { return after == "no" }, checks.Above4G}, true
	case name == MaxPayload:
		return rule{farm.SettingChanged, less, checks.MaxPayload}, true
	case strings.HasPrefix(name, rebarPrefix):
		return rule{farm.SettingChanged, less, checks.ReBAR}, true
	case strings.HasPrefix(name, linkPrefix) && strings.HasSuffix(name, widthSuffix):
		return rule{farm.LinkChanged, less, checks.LinkWidth}, true
	case strings.HasPrefix(name, linkPrefix):
		return rule{farm.LinkChanged, less, checks.LinkSpeed}, true
	case strings.HasPrefix(name, acsPrefix), name == GPUCount, name == GPUModels:
		return rule{}, false
	case strings.HasPrefix(name, gpuPrefix):
		if strings.HasSuffix(name, vbiosSuffix) {
			return rule{kind: farm.SettingChanged}, true
		}
		return rule{kind: farm.HardwareChanged}, true
	}
	return rule{kind: farm.SettingChanged}, true
}

// identifies tells whether a setting is of one machine only.
func identifies(name string) bool {
	return name == SystemUUID || name == SystemSerial || name == BoardSerial
}

func differs(before, after string) bool { return before != after }

// more tells whether a list has something that another has not.
func more(before, after string) bool {
	had := strings.Split(before, ", ")
	return after != none && slices.ContainsFunc(strings.Split(after, ", "), func(s string) bool { return !slices.Contains(had, s) })
}

// less tells whether a size, a width or a speed is below another: "16 GiB of
// 32 GiB", "x8", "Gen3", "Gen3 x16".
func less(before, after string) bool {
	b, a := amounts(before), amounts(after)
	for i := range min(len(a), len(b)) {
		if a[i] < b[i] {
			return true
		}
	}
	return false
}

// amounts are the amounts in a setting that count: of a BAR only its size, not the
// one that it could have.
func amounts(value string) []uint64 {
	value, _, _ = strings.Cut(value, " of ")
	if n, err := humanize.ParseBytes(strings.TrimSuffix(value, "ytes")); err == nil {
		return []uint64{n}
	}
	var out []uint64
	for word := range strings.FieldsSeq(value) {
		var n uint64
		if _, err := fmt.Sscanf(strings.TrimPrefix(strings.TrimPrefix(word, "Gen"), "x"), "%d", &n); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// settings looks at the settings that the run tells.
func (c *comparison) settings() {
	for _, name := range slices.Sorted(maps.Keys(c.run.Summary.Settings)) {
		r, ok := ruleOf(name)
		if !ok {
			continue
		}
		fix := func() string {
			if r.about != "" {
				return c.advice(r.about)
			}
			return fmt.Sprintf("This is not the machine that %s was: if its board was replaced, change what lab.yaml says of the node; if not, look which machine starts as %s.", c.run.Node, c.run.Node)
		}
		c.look(state{
			kind: r.kind, subject: name, worse: r.worse, fix: fix,
			get: func(past farm.Run) (string, bool) { v, ok := past.Summary.Settings[name]; return v, ok },
		})
	}
}

// Words for a GPU.
const (
	present = "present"
	absent  = "absent"
)

// gpus looks at which GPUs are there, by address.
func (c *comparison) gpus() {
	for _, name := range addresses(append(slices.Clone(c.past), c.run)) {
		c.look(state{
			kind: farm.HardwareChanged, subject: "GPU " + name,
			get: func(r farm.Run) (string, bool) {
				if _, known := r.Summary.Settings[GPUCount]; !known {
					return "", false
				}
				_, ok := r.Summary.Settings[gpuPrefix+name]
				return word(ok, present, absent), true
			},
			worse: func(_, after string) bool { return after == absent },
			fix: func() string {
				return lines(c.moved(name), fmt.Sprintf("Power %s off, not only down, and start it again: a GPU that fell off the bus comes back. If it stays away, reseat the GPU, its riser and its power cables, and see whether the slot is switched on in the firmware setup.", c.run.Node))
			},
		})
	}
}

// addresses are those of all GPUs that runs had.
func addresses(runs []farm.Run) []string {
	seen := map[string]bool{}
	for _, r := range runs {
		for name := range r.Summary.Settings {
			if a, ok := strings.CutPrefix(name, gpuPrefix); ok && strings.Contains(a, ":") && !strings.HasSuffix(a, uuidSuffix) && !strings.HasSuffix(a, vbiosSuffix) {
				seen[a] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// moved says where the GPU that was at an address is now, if its UUID tells.
func (c *comparison) moved(address string) string {
	for _, r := range slices.Backward(c.past) {
		uuid := setting(r, gpuPrefix+address+uuidSuffix)
		if uuid == "" {
			continue
		}
		for name, v := range c.run.Summary.Settings {
			now, isGPU := strings.CutPrefix(strings.TrimSuffix(name, uuidSuffix), gpuPrefix)
			if isGPU && strings.HasSuffix(name, uuidSuffix) && v == uuid && now != address {
				return fmt.Sprintf("The GPU is at %s now: it was moved, or the buses were numbered anew.", now)
			}
		}
		return ""
	}
	return ""
}

// statuses of findings, from good to bad. What is not there is as good as a pass.
var statuses = []string{"", string(checks.Pass), string(checks.Warn), string(checks.Unknown), string(checks.Fail)}

// bad tells whether a status needs attention.
func bad(status string) bool { return slices.Index(statuses, status) > 1 }

// on is between the status of a finding and the devices that have it.
const on = " on "

// findings looks at the worst status of each kind of finding.
func (c *comparison) findings() {
	complete := c.run.State == farm.Complete
	ids := map[checks.ID]bool{}
	for _, r := range append(slices.Clone(c.past), c.run) {
		for _, f := range r.Summary.Findings {
			ids[f.ID] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		s := state{
			kind: farm.FindingChanged, subject: string(id),
			get: func(r farm.Run) (string, bool) {
				v := worstOf(r.Summary.Findings, id)
				// Of a report that is not complete, more may come.
				return v, v != "" || complete || r.ID != c.run.ID
			},
			word: func(v string) string { return c.wordFinding(id, v) },
			fix:  func() string { return c.advice(id) },
		}
		if !weightless(id) {
			s.worse = worseFinding
		}
		c.look(s)
	}
}

// worstOf returns the worst status of the findings of a kind with the devices that
// have it: "warn on 0000:41:00.0, 0000:61:00.0"; nothing if all is well.
func worstOf(findings []farm.Finding, id checks.ID) string {
	worst := 1
	var devices []string
	for _, f := range findings {
		if f.ID != id {
			continue
		}
		switch rank := slices.Index(statuses, string(f.Status)); {
		case rank > worst:
			worst, devices = rank, slices.Clone(f.Devices)
		case rank == worst:
			devices = append(devices, f.Devices...)
		}
	}
	if worst == 1 {
		return ""
	}
	if devices == nil {
		return statuses[worst]
	}
	slices.Sort(devices)
	return statuses[worst] + on + strings.Join(slices.Compact(devices), ", ")
}

func worseFinding(before, after string) bool {
	was, wasOn, _ := strings.Cut(before, on)
	is, isOn, _ := strings.Cut(after, on)
	rank := slices.Index(statuses, is) - slices.Index(statuses, was)
	return bad(is) && (rank > 0 || rank == 0 && isOn != "" && more(wasOn, isOn))
}

// wordFinding words a state of a kind of finding, with the title that the run has
// for it.
func (c *comparison) wordFinding(id checks.ID, v string) string {
	if v == "" {
		return "well"
	}
	status, _, _ := strings.Cut(v, on)
	if v != worstOf(c.run.Summary.Findings, id) {
		return v
	}
	for _, f := range c.run.Summary.Findings {
		if f.ID == id && string(f.Status) == status {
			return status + ": " + f.Title
		}
	}
	return v
}

// since says what settings but one differ between a run and an earlier one, as a
// hint at the cause of what became worse between them.
func since(before, after farm.Run, but string) string {
	if before.Summary == nil || after.Summary == nil {
		return ""
	}
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(after.Summary.Settings)) {
		was, known := before.Summary.Settings[name]
		is := after.Summary.Settings[name]
		if r, ok := ruleOf(name); known && was != is && name != but && ok && r.kind != farm.HardwareChanged {
			differ = append(differ, fmt.Sprintf("%s %s → %s", name, was, is))
		}
	}
	if differ == nil {
		return ""
	}
	const most = 8
	if n := len(differ) - most; n > 0 {
		differ = append(differ[:most], fmt.Sprintf("and %d more", n))
	}
	return fmt.Sprintf("Changed since %s, when it was well: %s.", before.Night, strings.Join(differ, "; "))
}
