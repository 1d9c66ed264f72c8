package measure

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"mkp2pimg/internal/cuda"
)

func TestVerdictOrder(t *testing.T) {
	for i, worse := range severity {
		for j, better := range severity {
			assert.Equal(t, i > j, worse.Worse(better), "%s, %s", worse, better)
		}
	}
}

// good returns the parts of a pair that delivers.
func good() Pair {
	p := Pair{Initiator: bdf0, Peer: bdf1, CanAccess: true}
	for _, m := range []Method{CE, SM} {
		for _, d := range []Direction{Write, Read} {
			p.Ways = append(p.Ways, Way{Direction: d, Method: m})
			for _, phase := range []Phase{Before, After, Reached, Handshake} {
				p.Checks = append(p.Checks, Check{Direction: d, Method: m, Phase: phase, Bytes: 4096})
			}
			p.Measurements = append(p.Measurements, Measurement{Quantity: Bandwidth, Direction: d, Method: m, Summary: Summary{Median: 25}})
		}
	}
	return p
}

func TestJudgePair(t *testing.T) {
	wrong := Check{Direction: Write, Method: SM, Phase: After, Bytes: 4096, Wrong: 3}
	damaged := wrong
	damaged.SourceDamaged = true
	lost := Check{Direction: Write, Method: SM, Phase: Handshake, Lost: 2}
	drop := func(phase Phase) func(*Pair) {
		return func(p *Pair) { p.Checks = slices.DeleteFunc(p.Checks, func(c Check) bool { return c.Phase == phase }) }
	}
	staged := func(gbps float64) func(*Pair) {
		return func(p *Pair) {
			p.Measurements = append(p.Measurements, Measurement{Quantity: Bandwidth, Direction: Read, Method: Staged, Summary: Summary{Median: gbps}})
		}
	}
	ceiling := func(write, read float64) func(*Pair) {
		return func(p *Pair) { p.Ceiling = &Ceiling{WriteGBps: write, ReadGBps: read, Basis: "Gen4 x16"} }
	}
	for _, tc := range []struct {
		name   string
		change func(*Pair)
		want   Verdict
		reason string
	}{
		{"good", func(*Pair) {}, OK, "write 25.00 GB/s, read 25.00 GB/s, data verified by its owner"},
		{"nothing done", func(p *Pair) { *p = Pair{} }, Inconclusive, "nothing was measured"},
		{"a check without bytes", func(p *Pair) { p.Checks[4].Bytes = 0 }, Inconclusive, "read by ce was not verified"},
		{"not verified after the load", drop(After), Inconclusive, "write by ce was not verified before and after the load"},
		{"reach not verified", drop(Reached), Inconclusive, "how far the peer's memory"},
		{"no handshake", drop(Handshake), Inconclusive, "announced by a flag"},
		{"no bandwidth", func(p *Pair) { p.Measurements = p.Measurements[:1] }, Inconclusive, "read by ce was not verified"},
		{"wrong data outweighs bandwidth", func(p *Pair) { p.Checks = append(p.Checks, wrong) }, WrongData, "write by sm, after the load: 3 of 512 words"},
		{"wrong data outweighs a hang", func(p *Pair) {
			p.Checks = append(p.Checks, wrong)
			p.Problem = &Problem{Kind: Timeout}
		}, WrongData, "3 of 512"},
		{"wrong data outweighs a damaged source", func(p *Pair) { p.Checks = append(p.Checks, damaged, wrong) }, WrongData, "3 of 512"},
		{"wrong data outweighs lost flags", func(p *Pair) { p.Checks = append(p.Checks, lost, wrong) }, WrongData, "3 of 512"},
		{"source damaged", func(p *Pair) { p.Checks = append(p.Checks, damaged) }, Inconclusive, "the source of the copy lost its data"},
		{"flags lost", func(p *Pair) { p.Checks = append(p.Checks, lost) }, Hang, "write by sm, announced by a flag: 2 flags never came"},
		{"hang", func(p *Pair) {
			p.Step, p.Problem = "read by ce: bandwidth", &Problem{Kind: Timeout, Text: "no answer"}
		}, Hang, "read by ce: bandwidth: no answer"},
		{"atomics hang", func(p *Pair) { p.Step, p.Problem = stepAtomics, &Problem{Kind: Timeout, Text: "no answer"} }, OK, "25.00"},
		{"refused", func(p *Pair) { p.Problem = &Problem{Kind: Refused, Text: "no"} }, Unusable, "no"},
		{"failed", func(p *Pair) { p.Problem = &Problem{Kind: Failed, Text: "no"} }, Unusable, "no"},
		{"setup", func(p *Pair) { p.Problem = &Problem{Kind: Setup, Text: "no"} }, Inconclusive, "no"},
		{"no memory", func(p *Pair) { p.Problem = &Problem{Kind: NoMemory, Text: "no"} }, Inconclusive, "no"},
		{"crashed", func(p *Pair) { p.Problem = &Problem{Kind: Crashed, Text: "no"} }, Inconclusive, "no"},
		{"interrupted", func(p *Pair) { p.Problem = &Problem{Kind: Interrupted, Text: "no"} }, Inconclusive, "no"},
		{"near its ceiling", ceiling(26, 38), OK, ""},
		{"a ceiling of reads not reached", ceiling(26, 50), Slow, "read by ce, 25.00 GB/s, is 50 % of the 50.00 GB/s that the path can carry (Gen4 x16); slow is below 65 %"},
		{"ceiling not known", ceiling(0, 0), OK, ""},
		{"faster than through host memory", staged(20), OK, ""},
		{"slower than through host memory", staged(26), Slow, "read by ce, 25.00 GB/s, is slower than through host memory, 26.00 GB/s"},
		{"slow, and a link was throttled", func(p *Pair) {
			ceiling(50, 50)(p)
			p.Watch = &Watch{Links: []Link{{BDF: bdf0, MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16, Seen: []LinkState{{"8.0 GT/s PCIe", 16, 3}}}}}
		}, Slow, "under load the link of " + bdf0 + " ran at 8.0 GT/s PCIe x16"},
		{"IOMMU fault meanwhile", func(p *Pair) {
			p.Watch = &Watch{Kernel: []string{"AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010]"}}
		},
			Inconclusive, "meanwhile the kernel said: AMD-Vi: Event logged"},
		{"correctable errors meanwhile", func(p *Pair) {
			p.Watch = &Watch{Links: []Link{{BDF: bdf0, Errors: map[string]int64{"correctable": 2}}}}
		}, OK, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := good()
			tc.change(&p)
			_, v, reason := JudgePair(p, Settings{SlowFraction: DefaultSlowFraction})
			assert.Equal(t, tc.want, v, reason)
			assert.Contains(t, reason, tc.reason)
		})
	}
}

// Each way has a verdict of its own, and one that a problem kept from being begun
// has none.
func TestWaysAreJudgedByThemselves(t *testing.T) {
	p := good()
	p.Ceiling = &Ceiling{WriteGBps: 50, ReadGBps: 26}
	p.Measurements = append(p.Measurements, Measurement{Quantity: Bandwidth, Direction: Write, Method: Staged, Summary: Summary{Median: 10}})
	p.Checks = slices.DeleteFunc(p.Checks, func(c Check) bool { return c.Method == SM && (c.Direction == Read || c.Phase == After) })
	p.Checks = append(p.Checks, Check{Direction: Write, Method: SM, Phase: Before, Bytes: 8, Wrong: 1})
	p.Step, p.Problem = "read by sm: verify one copy", &Problem{Kind: Timeout, Text: "no answer"}
	ways, v, _ := JudgePair(p, Settings{SlowFraction: 0.6})
	assert.Equal(t, WrongData, v)
	var got []Verdict
	for _, w := range ways {
		got = append(got, w.Verdict)
	}
	assert.Equal(t, []Verdict{Slow, OK, WrongData, Hang}, got)
	assert.InDelta(t, 0.5, ways[0].OfCeiling, 1e-9)
	assert.InDelta(t, 2.5, ways[0].OnOff, 1e-9)
	assert.Zero(t, ways[1].OnOff)
}

// A verdict that no way accounts for holds for all of them.
func TestWaysSufferWithThePair(t *testing.T) {
	verdicts := func(change func(*Pair)) (all []Verdict) {
		p := good()
		change(&p)
		ways, _, _ := JudgePair(p, Settings{})
		for _, w := range ways {
			all = append(all, w.Verdict)
		}
		return all
	}
	problem := func(step string, kind ProblemKind) func(*Pair) {
		return func(p *Pair) { p.Step, p.Problem = step, &Problem{Kind: kind, Text: "no answer"} }
	}
	for _, tc := range []struct {
		name   string
		change func(*Pair)
		want   Verdict // of each way
	}{
		{"hang of the size sweep", problem("write by ce, 4096 bytes: bandwidth", Timeout), Hang},
		{"reach fails", problem("reach: write by sm", Failed), Unusable},
		{"fault in the kernel's log", func(p *Pair) { p.Watch = &Watch{Kernel: []string{"NVRM: Xid (PCI:0000:41:00): 31"}} }, Inconclusive},
		{"interrupted", problem("reach: write by sm", Interrupted), OK},
		{"atomics hang", problem(stepAtomics, Timeout), OK},
	} {
		assert.Equal(t, slices.Repeat([]Verdict{tc.want}, 4), verdicts(tc.change), tc.name)
	}
	lost := Check{Direction: Write, Method: SM, Phase: Handshake, Lost: 2}
	assert.Equal(t, []Verdict{OK, OK, Hang, OK}, verdicts(func(p *Pair) { p.Checks = append(p.Checks, lost) }), "flags lost")
}

func TestVerdictOf(t *testing.T) {
	p := Pair{Verdict: Hang, Reason: "late", Ways: []Way{{Direction: Write, Method: CE, Verdict: OK, Reason: "fine"}},
		Checks: []Check{{Direction: Read, Method: Staged, Phase: After, Bytes: 8}, {Direction: Write, Method: Staged, Phase: After, Bytes: 8, Wrong: 1}}}
	for way, want := range map[[2]string][2]string{
		{string(Write), string(CE)}:     {string(OK), "fine"},
		{string(Read), string(CE)}:      {string(Hang), "late"},
		{string(Read), string(Staged)}:  {string(OK), "data verified by its owner"},
		{string(Write), string(Staged)}: {string(Inconclusive), "write by staged was not verified"},
	} {
		v, reason := p.VerdictOf(Direction(way[0]), Method(way[1]))
		assert.Equal(t, want, [2]string{string(v), reason}, way)
	}
}

func TestFloor(t *testing.T) {
	for floor, want := range map[float64]Verdict{0: OK, 25: OK, 25.1: Slow} {
		_, v, _ := JudgePair(good(), Settings{MinGBps: floor})
		assert.Equal(t, want, v, "floor %v", floor)
	}
}

func TestJudgeTraffic(t *testing.T) {
	sum := func(gbps float64) *Measurement { return &Measurement{Summary: Summary{Median: gbps}} }
	right := Check{Direction: Write, Method: CE, Phase: Together, Bytes: 8}
	wrong := right
	wrong.Wrong = 1
	probe := func(k int, gbps float64) Traffic {
		t := Traffic{Shape: Collapse, Direction: Write, Method: CE, Sources: k, Sum: sum(gbps)}
		for range k {
			t.Flows = append(t.Flows, Flow{Initiator: bdf0, Peer: bdf1})
			t.Checks = append(t.Checks, right)
		}
		return t
	}
	bad := probe(2, 50)
	bad.Checks[1] = wrong
	unseen := probe(2, 50)
	unseen.Checks = unseen.Checks[:1]
	hung := probe(2, 50)
	hung.Sum, hung.Problem = nil, &Problem{Kind: Timeout, Text: "no answer"}
	fault := probe(2, 50)
	fault.Watch = &Watch{Kernel: []string{"NVRM: Xid (PCI:0000:41:00): 31"}}
	ring := probe(2, 1)
	ring.Shape = Ring
	alone, wrongly := probe(1, 37), probe(2, 200)
	alone.Verdict, wrongly.Verdict = OK, WrongData // what arrived wrong is no measure
	before := []Traffic{alone, wrongly}
	for _, tc := range []struct {
		name   string
		t      Traffic
		want   Verdict
		reason string
	}{
		{"more with two", probe(2, 50), OK, "2 flows, 50.00 GB/s together"},
		{"the same, through a shared uplink", probe(2, 37), OK, ""},
		{"collapsed", probe(2, 2.7), Slow, "2 GPUs under one switch write 2.70 GB/s together, where 1 reach 37.00 GB/s: posted writes collapse"},
		{"other shapes are not compared", ring, OK, ""},
		{"wrong data", bad, WrongData, "with copies at the same time"},
		{"a flow not verified", unseen, Inconclusive, "not every flow"},
		{"hang", hung, Hang, "no answer"},
		{"fault", fault, Inconclusive, "Xid"},
		{"not measured", Traffic{}, Inconclusive, "not every flow"},
	} {
		v, reason := JudgeTraffic(tc.t, before)
		assert.Equal(t, tc.want, v, tc.name)
		assert.Contains(t, reason, tc.reason, tc.name)
	}
}

func TestJudgeDevice(t *testing.T) {
	var sound []Check
	for _, d := range []Direction{H2D, D2H, Local} {
		sound = append(sound, Check{Direction: d, Method: CE, Phase: Before, Bytes: 8}, Check{Direction: d, Method: CE, Phase: After, Bytes: 8})
	}
	for _, tc := range []struct {
		name string
		d    Device
		want Verdict
	}{
		{"sound", Device{Checks: sound}, OK},
		{"not verified", Device{}, Inconclusive},
		{"the last copy not verified", Device{Checks: sound[:5]}, Inconclusive},
		{"wrong", Device{Checks: []Check{{Direction: Local, Phase: Before, Bytes: 8, Wrong: 1, SourceDamaged: true}}}, WrongData},
		{"hang", Device{Problem: &Problem{Kind: Timeout}}, Hang},
		{"no memory", Device{Problem: &Problem{Kind: NoMemory}}, Inconclusive},
	} {
		v, _ := JudgeDevice(tc.d)
		assert.Equal(t, tc.want, v, tc.name)
	}
}

func TestJudge(t *testing.T) {
	gpus := func(n int) *Inventory { return &Inventory{GPUs: make([]cuda.DeviceInfo, n)} }
	pair := func(v Verdict) Pair { return Pair{Initiator: bdf0, Peer: bdf1, Verdict: v, Reason: "because"} }
	for _, tc := range []struct {
		name   string
		r      Result
		want   Verdict
		reason string
	}{
		{"nothing", Result{}, Inconclusive, "no GPU"},
		{"no GPU", Result{Inventory: gpus(0)}, Inconclusive, "no GPU"},
		{"no libcuda", Result{Problem: &Problem{Kind: NoLibrary, Text: "no usable libcuda"}}, Inconclusive, "no usable libcuda"},
		{"one GPU", Result{Inventory: gpus(1), Devices: []Device{{Verdict: OK}}}, OK, "one GPU, so there is no pair to measure"},
		{"one unsound GPU", Result{Inventory: gpus(1), Devices: []Device{{BDF: bdf0, Verdict: Hang, Reason: "late"}}}, Hang, bdf0 + ": late"},
		{"two GPUs, no pair", Result{Inventory: gpus(2), Devices: []Device{{Verdict: OK}, {Verdict: OK}}}, Inconclusive, "no pair was measured"},
		{"good pairs", Result{Inventory: gpus(2), Pairs: []Pair{pair(OK), pair(OK)}}, OK, "2 ordered pairs of 2 GPUs"},
		{"worst traffic", Result{Inventory: gpus(2), Pairs: []Pair{pair(Slow)}, Traffic: []Traffic{{Shape: Ring, Direction: Write, Method: CE, Verdict: Hang, Reason: "late"}}}, Hang, "ring write by ce: late"},
		{"worst pair", Result{Inventory: gpus(2), Pairs: []Pair{pair(Slow), pair(WrongData), pair(Hang)}}, WrongData, bdf0 + " to " + bdf1 + ": because"},
	} {
		v, reason := Judge(tc.r)
		assert.Equal(t, tc.want, v, tc.name)
		assert.Equal(t, tc.reason, reason, tc.name)
	}
}
