package arms

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/rm"
)

const gpu0, gpu1 = "0000:01:00.0", "0000:02:00.0"

// figure is a measurement of writes whose samples spread by half a unit.
func figure(m measure.Method, median float64) measure.Measurement {
	return measure.Measurement{
		Quantity: measure.Bandwidth, Direction: measure.Write, Method: m, Unit: measure.GBps, Size: 512 << 20,
		Summary: measure.Summary{Median: median, P5: median - 0.25, P95: median + 0.25},
	}
}

// outcome is an arm with one pair, whose copies over the link have a verdict.
func outcome(a Arm, options string, path rm.Path, v measure.Verdict, ms ...measure.Measurement) Outcome {
	p := measure.Pair{Initiator: gpu0, Peer: gpu1, Measurements: ms, Verdict: v, Reason: "because",
		Ways:   []measure.Way{{Direction: measure.Write, Method: measure.CE, Verdict: v, Reason: "because"}},
		Checks: []measure.Check{{Direction: measure.Write, Method: measure.Staged, Phase: measure.After, Bytes: 8}}}
	return Outcome{
		Arm: a, Options: options,
		Survey: &rm.Survey{Pairs: []rm.Pair{{A: gpu0, B: gpu1, Path: path}, {A: gpu1, B: gpu0, Path: path}}},
		Result: &measure.Result{Pairs: []measure.Pair{p}, Verdict: v, Reason: "one pair"},
	}
}

func TestCompare(t *testing.T) {
	const keys = `NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=`
	stock := outcome(Arm{Set: Stock}, "NVreg_EnableResizableBar=1", rm.NoPath, measure.Unusable, figure(measure.Staged, 12))
	box := outcome(Arm{Set: P2P, Mailbox: true}, keys+`0"`, rm.Mailbox, measure.OK,
		figure(measure.Staged, 12), figure(measure.CE, 20))
	acs := outcome(Arm{Set: P2P, NoACS: true}, keys+`1"`, rm.BAR1, measure.OK, figure(measure.CE, 25.1))
	acs.ACS = []string{"0000:02:00.0: 0x001d -> 0x0000"}
	bar1 := outcome(Arm{Set: P2P}, keys+`1"`, rm.BAR1, measure.Slow, figure(measure.CE, 25))

	c := Compare([]Outcome{stock, box, acs, bar1}, []Left{{"stock-noacs", "no"}})
	require.Len(t, c.Arms, 4)
	assert.Equal(t, "2 none", c.Arms[0].Paths)
	assert.Equal(t, []string{"modules: stock, not p2p", "with NVreg_EnableResizableBar=1", "without ForceP2P=0x211 RMPcieP2PType=1", "paths: 2 none, not 2 bar1"}, c.Arms[0].Differs)
	assert.Equal(t, []string{"with RMPcieP2PType=0", "without RMPcieP2PType=1", "paths: 2 mailbox, not 2 bar1"}, c.Arms[1].Differs)
	assert.Equal(t, []string{"ACS redirect cleared on 1 ports"}, c.Arms[2].Differs)
	assert.Empty(t, c.Arms[3].Differs)
	assert.Equal(t, []Left{{"stock-noacs", "no"}}, c.Left)

	require.Len(t, c.Rows, 2)
	staged, ce := c.Rows[0], c.Rows[1]
	assert.Equal(t, measure.Staged, staged.Method)
	assert.InEpsilon(t, 12, staged.Cells[0].Median, 1e-9, "a copy through host memory counts without peer access")
	assert.Zero(t, staged.Cells[0].Ratio, "the last arm has none to compare with")
	require.Len(t, ce.Cells, 4)
	assert.Equal(t, Cell{Why: "unusable: because", Path: rm.NoPath}, ce.Cells[0])
	assert.InEpsilon(t, 1.25, ce.Cells[1].Ratio, 1e-9)
	assert.True(t, ce.Cells[1].Clear)
	assert.Equal(t, rm.Mailbox, ce.Cells[1].Path)
	assert.InEpsilon(t, 25/25.1, ce.Cells[2].Ratio, 1e-9)
	assert.False(t, ce.Cells[2].Clear, "within the spread")
	assert.Zero(t, ce.Cells[3].Ratio)
}

// TestUnverifiedIsNotCompared has figures that look good and arrived wrong, or
// were never checked.
func TestUnverifiedIsNotCompared(t *testing.T) {
	bar1 := outcome(Arm{Set: P2P}, "", rm.BAR1, measure.OK, figure(measure.CE, 25))
	for _, v := range []measure.Verdict{measure.WrongData, measure.Hang, measure.Inconclusive, measure.Unusable} {
		c := Compare([]Outcome{outcome(Arm{Set: P2P, Mailbox: true}, "", rm.Mailbox, v, figure(measure.CE, 30)), bar1}, nil)
		assert.Equal(t, Cell{Why: string(v) + ": because", Path: rm.Mailbox}, c.Rows[0].Cells[0])
	}
	staged := outcome(Arm{Set: Stock}, "", rm.NoPath, measure.Unusable, figure(measure.Staged, 12))
	staged.Result.Pairs[0].Checks = nil
	c := Compare([]Outcome{staged, bar1}, nil)
	assert.Equal(t, Cell{Why: "inconclusive: write by staged was not verified", Path: rm.NoPath}, c.Rows[0].Cells[0])
	for name, o := range map[string]Outcome{
		"the driver of another arm is still loaded": {Arm: Arm{Set: Stock}, Skipped: "the driver of another arm is still loaded"},
		"not measured":      {Arm: Arm{Set: Stock}},
		"pair not measured": {Arm: Arm{Set: Stock}, Result: &measure.Result{}},
	} {
		c := Compare([]Outcome{o, bar1}, nil)
		assert.Equal(t, Cell{Why: name}, c.Rows[0].Cells[0])
		assert.Equal(t, "not told", c.Arms[0].Paths)
	}
	assert.Equal(t, Comparison{Arms: []Column{}, Rows: []Row{}}, Compare(nil, nil))
}

func TestTotals(t *testing.T) {
	both := func(a Arm, one, other float64) Outcome {
		o := outcome(a, "", rm.BAR1, measure.OK, figure(measure.CE, one))
		back := o.Result.Pairs[0]
		back.Initiator, back.Peer = gpu1, gpu0
		back.Measurements = []measure.Measurement{figure(measure.CE, other)}
		o.Result.Pairs = append(o.Result.Pairs, back)
		return o
	}
	c := Compare([]Outcome{both(Arm{Set: Stock}, 20, 10), {Arm: Arm{Set: P2P, Mailbox: true}, Skipped: "x"}, both(Arm{Set: P2P}, 25, 10.1)}, nil)
	totals := c.Totals()
	require.Len(t, totals, 1)
	assert.Equal(t, measure.Write, totals[0].Direction)
	require.Len(t, totals[0].Cells, 3)
	first := totals[0].Cells[0]
	assert.Equal(t, 2, first.Pairs)
	assert.InEpsilon(t, 15, first.Median, 1e-9)
	assert.InEpsilon(t, (1.25+1.01)/2, first.Ratio, 1e-9)
	assert.InEpsilon(t, 1.01, first.Least, 1e-9)
	assert.InEpsilon(t, 1.25, first.Most, 1e-9)
	assert.Equal(t, 2, first.Compared)
	assert.Equal(t, 1, first.Clear)
	assert.Equal(t, TotalCell{}, totals[0].Cells[1])
	assert.Zero(t, totals[0].Cells[2].Compared, "the last arm is what is compared with")
}
