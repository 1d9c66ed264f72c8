package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
)

// ways writes a pair with a way of each outcome.
func ways(w *Writer) {
	figure := func(q measure.Quantity, d measure.Direction, m measure.Method, median float64) measure.Measurement {
		v := measure.Measurement{Quantity: q, Direction: d, Method: m}
		v.Median = median
		return v
	}
	s := w.Step("bandwidth", "measure")
	s.Extension(ExtBandwidth, measure.Result{Version: measure.Version, Pairs: []measure.Pair{{
		Initiator: "0000:41:00.0", Peer: "0000:61:00.0",
		Ways: []measure.Way{
			{Direction: measure.Write, Method: measure.CE, Verdict: measure.OK},
			{Direction: measure.Read, Method: measure.CE, Verdict: measure.Slow},
			{Direction: measure.Write, Method: measure.SM, Verdict: measure.WrongData},
			{Direction: measure.Read, Method: measure.SM, Verdict: measure.OK},
		},
		Measurements: []measure.Measurement{
			figure(measure.Bandwidth, measure.Write, measure.CE, 26.127),
			figure(measure.Bandwidth, measure.Read, measure.CE, 3.1),
			figure(measure.Bandwidth, measure.Write, measure.SM, 99),
			figure(measure.Bandwidth, measure.Read, measure.SM, 20),
			figure(measure.LoadLatency, measure.Read, measure.SM, 1234.5),
		},
	}, {
		Initiator: "0000:61:00.0", Peer: "0000:41:00.0",
		Ways: []measure.Way{
			{Direction: measure.Write, Method: measure.CE, Verdict: measure.Hang},
			{Direction: measure.Read, Method: measure.CE, Verdict: measure.Inconclusive},
		},
	}}})
	s.End(StatusComplete)
}

func TestLAVA(t *testing.T) {
	findings := append([]checks.Finding{rebarWarn, {ID: checks.GPUPair, Status: checks.Unknown}, {ID: checks.DriverLoad, Status: checks.Skip}}, passed...)
	findings = append(findings, acs)
	run := finished(t, findings, Verdict{checks.VerdictBlocked, "no"}, ways)
	var b bytes.Buffer
	require.NoError(t, LAVA(&b, run))
	golden.Equal(t, "testdata/lava.txt", b.String())

	// LAVA changes IDs to \w+ of lower case; nothing is to be left to change.
	for line := range strings.Lines(b.String()) {
		if id := regexp.MustCompile(`TEST_CASE_ID=(\S+)`).FindStringSubmatch(line); id != nil {
			assert.Regexp(t, `^[a-z0-9_]+$`, id[1])
		}
	}
}

func TestLAVAVerdicts(t *testing.T) {
	for verdict, want := range map[checks.Verdict]string{
		checks.VerdictReady: "pass", checks.VerdictDegraded: "fail", checks.VerdictBlocked: "fail",
		checks.VerdictNoGPU: "skip", checks.VerdictUnknown: "unknown", "": "unknown",
	} {
		run := &Run{Verdict: &Verdict{Verdict: verdict}}
		if verdict == "" {
			run.Verdict = nil
		}
		var b bytes.Buffer
		require.NoError(t, LAVA(&b, run))
		assert.Equal(t, LAVAStart+"\n<LAVA_SIGNAL_TESTCASE TEST_CASE_ID=verdict RESULT="+want+">\n"+LAVAEnd+"\n", b.String())
	}
}
