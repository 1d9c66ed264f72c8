package node

import (
	"testing"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/measure"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Whatever a measurement found, the person reading it learns what to do.
func TestMeasuredFindings(t *testing.T) {
	tests := map[measure.Verdict]checks.Status{
		measure.Slow: checks.Warn, measure.Inconclusive: checks.Unknown, measure.Unusable: checks.Fail,
		measure.Hang: checks.Fail, measure.WrongData: checks.Fail,
	}
	for verdict, status := range tests {
		t.Run(string(verdict), func(t *testing.T) {
			r := good()
			r.Pairs[0].Verdict, r.Pairs[0].Reason = verdict, "why"
			r.Devices = []measure.Device{{BDF: pair[0], Verdict: verdict, Reason: "why"}}
			found := findings(&r)
			require.Len(t, found, 2)
			for _, f := range found {
				assert.Equal(t, status, f.Status)
				assert.NotEmpty(t, f.Meaning)
				assert.NotEmpty(t, f.Fix)
			}
			assert.Equal(t, []string{pair[0]}, found[0].Devices)
			assert.Equal(t, [][2]string{{pair[0], pair[1]}}, found[1].Pairs)
		})
	}
	r := good()
	found := findings(&r)
	require.Len(t, found, 1)
	assert.Equal(t, checks.Pass, found[0].Status)
	assert.Empty(t, found[0].Fix)
}
