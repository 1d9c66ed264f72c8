package measure

import (
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
	for _, d := range []Direction{Write, Read} {
		for _, phase := range []Phase{Before, After} {
			p.Checks = append(p.Checks, Check{Direction: d, Phase: phase, Bytes: 4096})
		}
		p.Measurements = append(p.Measurements, Measurement{Direction: d, Method: CE, Summary: Summary{Median: 25}})
	}
	return p
}

func TestJudgePair(t *testing.T) {
	wrong := Check{Direction: Write, Phase: After, Bytes: 4096, Wrong: 3}
	damaged := wrong
	damaged.SourceDamaged = true
	for _, tc := range []struct {
		name   string
		change func(*Pair)
		want   Verdict
		reason string
	}{
		{"good", func(*Pair) {}, OK, "write 25.00 GB/s"},
		{"nothing done", func(p *Pair) { *p = Pair{} }, Inconclusive, "not verified"},
		{"a check without bytes", func(p *Pair) { p.Checks[2].Bytes = 0 }, Inconclusive, "direction read was not verified"},
		{"not verified after the load", func(p *Pair) { p.Checks = p.Checks[:3] }, Inconclusive, "direction read"},
		{"no bandwidth", func(p *Pair) { p.Measurements = p.Measurements[:1] }, Inconclusive, "bandwidth was not measured"},
		{"wrong data outweighs bandwidth", func(p *Pair) { p.Checks = append(p.Checks, wrong) }, WrongData, "3 of 512 words"},
		{"wrong data outweighs a hang", func(p *Pair) {
			p.Checks = append(p.Checks, wrong)
			p.Problem = &Problem{Kind: Timeout}
		}, WrongData, "3 of 512"},
		{"wrong data outweighs a damaged source", func(p *Pair) { p.Checks = append(p.Checks, damaged, wrong) }, WrongData, "3 of 512"},
		{"source damaged", func(p *Pair) { p.Checks = append(p.Checks, damaged) }, Inconclusive, "the source of the copy lost its data"},
		{"hang", func(p *Pair) { p.Step, p.Problem = "read: bandwidth", &Problem{Kind: Timeout, Text: "no answer"} }, Hang, "read: bandwidth: no answer"},
		{"refused", func(p *Pair) { p.Problem = &Problem{Kind: Refused, Text: "no"} }, Unusable, "no"},
		{"failed", func(p *Pair) { p.Problem = &Problem{Kind: Failed, Text: "no"} }, Unusable, "no"},
		{"setup", func(p *Pair) { p.Problem = &Problem{Kind: Setup, Text: "no"} }, Inconclusive, "no"},
		{"crashed", func(p *Pair) { p.Problem = &Problem{Kind: Crashed, Text: "no"} }, Inconclusive, "no"},
		{"interrupted", func(p *Pair) { p.Problem = &Problem{Kind: Interrupted, Text: "no"} }, Inconclusive, "no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := good()
			tc.change(&p)
			v, reason := JudgePair(p, Settings{})
			assert.Equal(t, tc.want, v)
			assert.Contains(t, reason, tc.reason)
		})
	}
}

func TestJudgeDevice(t *testing.T) {
	sound := []Check{{Direction: Local, Phase: Before, Bytes: 8}, {Direction: Local, Phase: After, Bytes: 8}}
	for _, tc := range []struct {
		name string
		d    Device
		want Verdict
	}{
		{"sound", Device{Checks: sound}, OK},
		{"not verified", Device{}, Inconclusive},
		{"wrong", Device{Checks: []Check{{Direction: Local, Phase: Before, Bytes: 8, Wrong: 1, SourceDamaged: true}}}, WrongData},
		{"hang", Device{Problem: &Problem{Kind: Timeout}}, Hang},
		{"no memory", Device{Problem: &Problem{Kind: Setup}}, Inconclusive},
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
		{"worst pair", Result{Inventory: gpus(2), Pairs: []Pair{pair(Slow), pair(WrongData), pair(Hang)}}, WrongData, bdf0 + " to " + bdf1 + ": because"},
	} {
		v, reason := Judge(tc.r)
		assert.Equal(t, tc.want, v, tc.name)
		assert.Equal(t, tc.reason, reason, tc.name)
	}
}
