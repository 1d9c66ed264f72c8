package node

import (
	"encoding/json"
	"slices"
	"testing"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// findingOf returns the finding with this ID.
func findingOf(t *testing.T, run *report.Run, id checks.ID) checks.Finding {
	t.Helper()
	i := slices.IndexFunc(run.Findings, func(f checks.Finding) bool { return f.ID == id })
	require.GreaterOrEqual(t, i, 0, "no finding %s", id)
	return run.Findings[i]
}

// mailbox makes the driver grant the mailbox.
func mailbox(m *machine) {
	const caps = rm.CapRead | rm.CapWrite | rm.CapPCI | rm.CapProp
	for i := range m.survey.Pairs {
		m.survey.Pairs[i].Caps, m.survey.Pairs[i].Path = caps, caps.Path()
		m.survey.GPUs[i].StaticBAR1.Enabled = false
	}
}

func TestFallthrough(t *testing.T) {
	for name, tt := range map[string]struct {
		exit    int
		verdict checks.Verdict
	}{
		"not measured":              {3, checks.VerdictBlocked},
		"measured and verified yet": {0, checks.VerdictDegraded},
	} {
		t.Run(name, func(t *testing.T) {
			m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.driver=stock")
			mailbox(m)
			m.write(rm.ParamsFile, "RegistryDwords: \"ForceP2P=0x11;RMPcieP2PType=1\"\n")
			r := good()
			if tt.exit != 0 {
				r.Version = 99
			}
			m.p2pbw(r, tt.exit)
			run, console := m.run()
			f := findingOf(t, run, checks.MailboxFallthrough)
			assert.Equal(t, checks.Fail, f.Status)
			assert.Equal(t, tt.verdict, run.Verdict.Verdict, run.Verdict.Reason)
			assert.Contains(t, console, "mailbox granted that was not set up")
		})
	}
}

func TestPathsInReport(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.driver=stock")
	m.p2pbw(good(), 0)
	run, _ := m.run()
	var s rm.Survey
	i := slices.IndexFunc(run.Step("paths").Extensions, func(e report.Extension) bool { return e.Name == ExtPaths })
	require.GreaterOrEqual(t, i, 0)
	require.NoError(t, json.Unmarshal(run.Step("paths").Extensions[i].Content, &s))
	assert.Equal(t, *m.survey, s)
}

// A driver that doesn't answer leaves the path open, not the proof.
func TestDriverDoesNotAnswer(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff")
	m.survey = nil
	m.p2pbw(good(), 0)
	run, _ := m.run()
	assert.Equal(t, report.StatusComplete, run.Step("paths").Status)
	f := findingOf(t, run, checks.RMPath)
	assert.Equal(t, checks.Unknown, f.Status)
	assert.Contains(t, f.Evidence[0].Raw, "permission denied")
	assert.Equal(t, checks.VerdictReady, run.Verdict.Verdict)
	assert.Contains(t, run.Verdict.Reason, "over which path the driver does not tell")
}
