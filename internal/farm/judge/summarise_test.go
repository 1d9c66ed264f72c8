package judge

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

func TestSummarise(t *testing.T) {
	f, r := h200(t)
	good := machine(t, "acs-sv-only")
	for name, s := range map[string]*farm.Summary{
		"h200":      summary(t, f, r),
		"switch":    summary(t, good, measured(good)),
		"acs":       summary(t, machine(t, "acs-switch"), nil),
		"no-gpu":    summary(t, machine(t, "no-gpu"), nil),
		"emulated":  summary(t, machine(t, "emulated"), nil),
		"iommu":     summary(t, machine(t, "iommu-translating"), nil),
		"rebar-off": summary(t, machine(t, "rebar-off"), nil),
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.MarshalIndent(s, "", " ")
			require.NoError(t, err)
			golden.Equal(t, "testdata/summary-"+name+".json", append(text, '\n'))
		})
	}
}

// TestSummariseSample takes a report of the tree that has neither facts nor a
// result.
func TestSummariseSample(t *testing.T) {
	raw, err := os.ReadFile("../../report/testdata/sample.jsonl")
	require.NoError(t, err)
	s := Summarise(parsed(t, raw))
	require.NotNil(t, s)
	assert.Equal(t, "0.1", s.Product)
	assert.Equal(t, "6.12.117", s.Kernel)
	assert.Empty(t, s.Pairs)
	assert.Nil(t, s.Worst)
	assert.Nil(t, Summarise(nil))
	assert.Nil(t, Summarise(&report.Run{}))
}

// TestSummarisePart takes what has arrived of a report that goes on, or was cut
// off: each part says no less than the one before, and nothing that the whole
// does not say.
func TestSummarisePart(t *testing.T) {
	f := machine(t, "acs-sv-only")
	raw := written(t, f, measured(f))
	whole := Summarise(parsed(t, raw))
	var part []byte
	var before *farm.Summary
	for line := range bytes.Lines(raw) {
		part = append(part, line...)
		s := Summarise(parsed(t, part))
		if before != nil {
			require.NotNil(t, s)
			assert.GreaterOrEqual(t, len(s.Settings), len(before.Settings))
			assert.GreaterOrEqual(t, len(s.Findings), len(before.Findings))
		}
		if s != nil && len(s.Pairs) > 0 {
			assert.Equal(t, whole.Pairs, s.Pairs)
		}
		before = s
	}
	assert.Equal(t, whole, before)
}

// TestSummariseDamaged loses the line with the whole result, the longest of a
// report, as a serial console may: the lines of the figures and checks make up for
// it, but for the ceilings.
func TestSummariseDamaged(t *testing.T) {
	f := machine(t, "acs-sv-only")
	for name, test := range map[string]func(r *measure.Result){
		"good":    func(*measure.Result) {},
		"corrupt": func(r *measure.Result) { corrupt(r, 1, measure.Read, measure.SM) },
	} {
		t.Run(name, func(t *testing.T) {
			r := measured(f)
			test(r)
			raw := written(t, f, r)
			var lost []byte
			for line := range strings.Lines(string(raw)) {
				if !strings.Contains(line, `"extension":{"name":"bandwidth"`) {
					lost = append(lost, line...)
				}
			}
			require.Less(t, len(lost), len(raw))
			want := Summarise(parsed(t, raw)).Pairs
			for i := range want {
				want[i].Ceiling = 0
			}
			assert.ElementsMatch(t, want, Summarise(parsed(t, lost)).Pairs)
		})
	}
}

// corrupt has wrong data on a way of the n-th pair.
func corrupt(r *measure.Result, n int, d measure.Direction, m measure.Method) {
	p := &r.Pairs[n]
	for i := range p.Checks {
		if c := &p.Checks[i]; c.Direction == d && c.Method == m && c.Phase == measure.After {
			c.Wrong = 512
		}
	}
	p.Ways, p.Verdict, p.Reason = measure.JudgePair(*p, r.Settings)
	r.Verdict, r.Reason = measure.Judge(*r)
}

// A bandwidth counts for nothing until the data was verified.
func TestUnverified(t *testing.T) {
	f := machine(t, "acs-sv-only")
	r := measured(f)
	corrupt(r, 0, measure.Write, measure.CE)
	s := summary(t, f, r)
	assert.Equal(t, "wrong-data", s.Pairs[0].Verdict)
	assert.Zero(t, s.Pairs[0].GBps)
	require.NotNil(t, s.Worst)
	assert.Zero(t, *s.Worst, "the pair delivers nothing that can be used")
	assert.Positive(t, s.Pairs[1].GBps, "the other way is sound")

	hung := measured(f)
	hung.Pairs[0].Problem, hung.Pairs[0].Ways = &measure.Problem{Kind: measure.Timeout, Text: "no end"}, nil
	hung.Pairs[0].Verdict = measure.Hang
	s = summary(t, f, hung)
	assert.Equal(t, "hang", s.Pairs[0].Verdict)
	assert.Zero(t, s.Pairs[0].GBps)
}

// What a report says may come from anyone: no text can break a line, a terminal or
// a database, no figure is one that JSON can't have.
func TestSummariseForeign(t *testing.T) {
	w := report.New()
	w.Start(report.RunStart{Name: "x", Version: "1\x00\x1b[31m\n2", CommandLine: "x", DUT: report.DUT{ID: "x"}})
	s := w.Step("bandwidth", "x")
	s.Finding(checks.Finding{ID: "X\u202e", Status: checks.Fail, Title: strings.Repeat("a", 3*maxText), Fix: "one\r\ntwo\x07", Devices: []string{"\x00"}})
	huge := measure.Pair{Initiator: "a\n", Peer: "b", Ceiling: &measure.Ceiling{WriteGBps: 1e-300}, Ways: []measure.Way{{Direction: measure.Write, Method: measure.CE, Verdict: measure.OK}}}
	huge.Measurements = []measure.Measurement{{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE, Summary: measure.Summary{Median: 1e308}}}
	s.Extension(report.ExtBandwidth, measure.Result{Version: measure.Version, Pairs: []measure.Pair{huge}})
	got := Summarise(parsed(t, w.Bytes()))
	assert.Equal(t, "1[31m 2", got.Product)
	require.Len(t, got.Findings, 1)
	assert.Equal(t, checks.ID("X"), got.Findings[0].ID)
	assert.Equal(t, "one\ntwo", got.Findings[0].Fix)
	assert.LessOrEqual(t, len([]rune(got.Findings[0].Title)), maxText+1)
	assert.Equal(t, "a", got.Pairs[0].Initiator)
	assert.Zero(t, got.Pairs[0].GBps)
	_, err := json.Marshal(got)
	require.NoError(t, err)
}

func FuzzSummarise(f *testing.F) {
	sample, err := os.ReadFile("../../report/testdata/sample.jsonl")
	require.NoError(f, err)
	f.Add(sample)
	m := machine(f, "good-2x4090")
	f.Add(written(f, m, measured(m)))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := report.Parse(bytes.NewReader(raw))
		if err != nil {
			return
		}
		s := Summarise(r)
		if s == nil {
			return
		}
		text, err := json.Marshal(s)
		require.NoError(t, err)
		assert.NotContains(t, string(text), `\u0000`)
		run := night(5, s)
		// Whatever it says, it is no worse than the same three nights in a row, unless
		// its data is wrong.
		for _, c := range Judge(farm.Node{Name: "node7"}, run, nights(4, s), nil) {
			assert.Equal(t, farm.DataChanged, c.Kind, "%+v", c)
		}
	})
}
