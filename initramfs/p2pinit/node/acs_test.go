package node

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/report"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// found returns the findings with an id.
func found(run *report.Run, id checks.ID) []checks.Finding {
	var out []checks.Finding
	for _, f := range run.Findings {
		if f.ID == id {
			out = append(out, f)
		}
	}
	return out
}

// logs returns the lines that a step logged.
func logs(run *report.Run, step string) []string {
	var out []string
	for _, l := range run.Step(step).Logs {
		out = append(out, l.Message)
	}
	return out
}

// port is one of the ports of the machine acs-switch.
const port = "0000:02:04.0"

// control returns the access control of port in the facts of the report.
func control(t *testing.T, run *report.Run) string {
	t.Helper()
	var f facts.Facts
	require.NoError(t, json.Unmarshal(run.Facts, &f))
	return f.Device(port).Config.ACS.Control.String()
}

func TestACSIsCleared(t *testing.T) {
	m := newMachine(t, "acs-switch", "p2p.plan=check p2p.acs=clear p2p.after=hold")
	run, console := m.run()
	assert.Contains(t, logs(run, "acs"), "written and read back: "+port+": 0x001d (SV RR CR UF) -> 0x0011 (SV UF)")
	assert.Equal(t, "4 of 4 ports between GPUs cleared", run.Step("acs").Reason())
	assert.Equal(t, "SV UF", control(t, run), "the report ends with the new facts")

	redirect := found(run, checks.ACSRedirect)
	require.Len(t, redirect, 1)
	assert.Equal(t, checks.Pass, redirect[0].Status, "the checks judge the new state")
	changed := found(run, checks.ACSChanged)
	require.Len(t, changed, 1)
	assert.Equal(t, checks.Warn, changed[0].Status)
	require.Len(t, changed[0].Evidence, 4)
	assert.Equal(t, "0x001d (SV RR CR UF) before, 0x0011 (SV UF) now", changed[0].Evidence[1].Raw)
	assert.Contains(t, changed[0].Fix, "disable_acs_redir=")
	assert.Equal(t, checks.VerdictDegraded, run.Verdict.Verdict, "the machine starts with the redirect")
	assert.Contains(t, console, "the ACS redirect of 4 ports was cleared for this run")
}

func TestACSIsShown(t *testing.T) {
	m := newMachine(t, "acs-switch", "p2p.plan=check p2p.acs=show p2p.after=hold")
	run, _ := m.run()
	assert.Contains(t, logs(run, "acs"), port+" switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)")
	assert.Equal(t, "4 of 4 ports between GPUs redirect and can be cleared", run.Step("acs").Reason())
	assert.Equal(t, "SV RR CR UF", control(t, run))
	assert.Empty(t, found(run, checks.ACSChanged))
}

func TestACSIsKept(t *testing.T) {
	m := newMachine(t, "acs-switch", "p2p.plan=check p2p.after=hold")
	run, _ := m.run()
	assert.Nil(t, run.Step("acs"))
	assert.Equal(t, "SV RR CR UF", control(t, run))
}

// TestACSCannotBeCleared has a port whose configuration space can be read and
// not opened for writing: its file leads out of the root.
func TestACSCannotBeCleared(t *testing.T) {
	m := newMachine(t, "acs-switch", "p2p.plan=check p2p.acs=clear p2p.after=hold")
	config := filepath.Join(m.root, "sys/bus/pci/devices", port, "config")
	outside := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.Rename(config, outside))
	require.NoError(t, os.Symlink(outside, config))
	run, _ := m.run()
	assert.Equal(t, report.StatusComplete, run.Step("acs").Status)
	assert.Contains(t, run.Step("acs").Reason(), "not cleared: open configuration space of "+port)
	changed := found(run, checks.ACSChanged)
	require.Len(t, changed, 1)
	assert.Equal(t, "the ACS redirect could not be cleared", changed[0].Title)
	redirect := found(run, checks.ACSRedirect)
	require.Len(t, redirect, 1)
	assert.Equal(t, checks.Warn, redirect[0].Status)
}

// TestACSOfStandIns has the report say that what was cleared is no GPU's.
func TestACSOfStandIns(t *testing.T) {
	m := newMachine(t, "testdev-standin", "intel_iommu=on p2p.gpu=1b36:0005 p2p.plan=check p2p.acs=clear p2p.after=hold")
	run, _ := m.run()
	changed := found(run, checks.ACSChanged)
	require.Len(t, changed, 1)
	assert.True(t, changed[0].StandIn)
	assert.Equal(t, checks.VerdictNoGPU, run.Verdict.Verdict)
}
