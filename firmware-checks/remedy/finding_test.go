package remedy_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/remedy"
)

func TestFinding(t *testing.T) {
	harmful := behindSwitch(fixture.ACS(fixture.KernelACS), gpu(), gpu())
	harmless := onRoot(fixture.ACS(fixture.KernelACS), gpu(), gpu())
	tests := map[string]struct {
		machine fixture.Machine
		failure error
		status  checks.Status
		title   string
		raw     []string
		meaning string
		fix     bool
	}{
		"where it did harm": {machine: harmful, status: checks.Warn, title: "the ACS redirect of 2 ports was cleared for this run",
			raw:     []string{"0x001d (SV RR CR UF) before, 0x0011 (SV UF) now", "0x001d (SV RR CR UF) before, 0x0011 (SV UF) now"},
			meaning: "The machine starts with it", fix: true},
		"where it did none": {machine: harmless, status: checks.Pass, title: "the ACS redirect of 2 ports was cleared for this run, where it did no harm",
			raw:     []string{"0x001d (SV RR CR UF) before, 0x0011 (SV UF) now", "0x001d (SV RR CR UF) before, 0x0011 (SV UF) now"},
			meaning: "without effect on the path"},
		"nothing to do": {machine: onRoot(fixture.ACS(0), gpu(), gpu()), status: checks.Skip, title: "no ACS redirect between GPUs to clear",
			raw:     []string{"0x0000 (none) left, it does not redirect", "0x0000 (none) left, it does not redirect"},
			meaning: "Nothing was changed"},
		"no port": {machine: fixture.Machine{}, status: checks.Skip, title: "no ACS redirect between GPUs to clear", meaning: "Nothing was changed"},
		"failed": {machine: harmful, failure: errors.New("locked down"), status: checks.Warn, title: "the ACS redirect could not be cleared",
			raw:     []string{"locked down", "0x001d (SV RR CR UF)", "0x001d (SV RR CR UF)"},
			meaning: "as it started", fix: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root, f := gather(t, tt.machine)
			plan, err := remedy.NewPlan(f, remedy.Options{})
			require.NoError(t, err)
			var done []remedy.Change
			if tt.failure == nil {
				done, err = remedy.Clear(root, "", plan.Changes())
				require.NoError(t, err)
			}
			found := remedy.Finding(checks.Run(f), plan, done, tt.failure)
			assert.Equal(t, checks.ACSChanged, found.ID)
			assert.Equal(t, tt.status, found.Status)
			assert.Equal(t, tt.title, found.Title)
			assert.Contains(t, found.Meaning, tt.meaning)
			assert.Equal(t, tt.fix, found.Fix != "")
			var raw []string
			for _, e := range found.Evidence {
				raw = append(raw, e.Raw)
			}
			assert.Equal(t, tt.raw, raw)
		})
	}
}

func TestFindingAboutStandIns(t *testing.T) {
	assert.True(t, remedy.Finding([]checks.Finding{{StandIn: true}}, remedy.Plan{}, nil, nil).StandIn)
}
