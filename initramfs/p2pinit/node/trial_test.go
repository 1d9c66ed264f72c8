package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
	"mkp2pimg/kmod/loadopt"
)

// offers is what an image of release 580 says about its options.
func offers() *loadopt.Data {
	return &loadopt.Data{
		Offer:  loadopt.Offer{ForceP2P: true, BAR1: loadopt.Separate, Static: loadopt.StaticAuto},
		Edited: []string{"p2p"},
		Models: map[string]loadopt.Model{"2684": {Name: "GeForce RTX 4090", Memory: 24 << 10, Patch: true}},
	}
}

// driverCalls are the insertions and removals of the driver's modules.
func driverCalls(m *machine) []string {
	return slices.DeleteFunc(slices.Clone(m.inserted), func(s string) bool { return !strings.Contains(s, "nvidia") })
}

func stepIDs(run *report.Run) []string {
	var ids []string
	for _, s := range run.Steps {
		ids = append(ids, s.ID)
	}
	return ids
}

func comparisonOf(t *testing.T, run *report.Run) arms.Comparison {
	t.Helper()
	require.NotNil(t, run.Comparison)
	return *run.Comparison
}

func TestTwoDriversInOneBoot(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.driver=ab")
	m.img.Driver, m.img.Load = "580.142", offers()
	m.p2pbw(good(), 0)
	run, console := m.run()
	assert.Equal(t, []string{
		"nvidia.ko", "nvidia-uvm.ko", "-nvidia_uvm", "-nvidia",
		`nvidia.ko NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=1;RMForceStaticBar1=1"`, "nvidia-uvm.ko",
	}, driverCalls(m))
	assert.Equal(t, []string{"mount", "modules", "facts", "checks",
		"driver-stock", "paths-stock", "bandwidth-stock", "unload-stock",
		"driver", "paths", "bandwidth", "compare", "report", "after"}, stepIDs(run))
	c := comparisonOf(t, run)
	require.Len(t, c.Arms, 2)
	assert.Equal(t, measure.OK, c.Arms[0].Verdict)
	require.NotEmpty(t, c.Rows)
	assert.InEpsilon(t, 1, c.Rows[0].Cells[0].Ratio, 1e-9)
	require.Len(t, c.Left, 1)
	assert.Equal(t, "p2p-mailbox", c.Left[0].Arm)
	assert.Contains(t, c.Left[0].Why, "the mailbox between 0000:01:00.0 and 0000:02:00.0 does not work", "GeForce cards have none")
	assert.Equal(t, checks.VerdictReady, run.Verdict.Verdict)
	assert.Equal(t, "2 of 3 arms measured", run.Step("compare").Reason())
	assert.Contains(t, console, "A/B in one boot")

	stock := run.Step("bandwidth-stock")
	for _, measured := range stock.Measurements {
		assert.Empty(t, measured.Validators, "nothing judges the other arm")
		assert.Equal(t, "stock", measured.Metadata["arm"])
	}
	assert.True(t, slices.ContainsFunc(run.Step("bandwidth").Measurements, func(m report.Measurement) bool { return m.Validators != nil }))
}

// What another arm finds is in the report and not in the verdict.
func TestAnotherArmIsNotJudged(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.driver=ab")
	m.img.Load = offers()
	bad := good()
	bad.Pairs[0].Verdict, bad.Verdict, bad.Reason = measure.WrongData, measure.WrongData, "wrong"
	m.p2pbw(bad, 2)
	text, err := json.Marshal(good())
	require.NoError(t, err)
	m.write("bin/good.json", string(text))
	// The first call measures the other arm.
	m.write("bin/p2pbw", fmt.Sprintf("#!/bin/sh\ncd %s/bin\ncat result.json\nmv good.json result.json\n", m.root))
	run, _ := m.run()
	assert.Equal(t, checks.VerdictReady, run.Verdict.Verdict)
	c := comparisonOf(t, run)
	assert.Equal(t, measure.WrongData, c.Arms[0].Verdict)
	assert.Zero(t, c.Rows[0].Cells[0].Ratio, "what arrived wrong is not compared")
	assert.True(t, slices.ContainsFunc(run.Step("bandwidth-stock").Extensions, func(e report.Extension) bool {
		return e.Name == ExtArm && strings.Contains(string(e.Content), "P2P-MEASURED")
	}))
}

func TestDriverStays(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.driver=ab")
	m.img.Load = offers()
	m.stays = map[string]error{"nvidia": fmt.Errorf("delete_module: %w", syscall.EWOULDBLOCK)}
	m.write("proc/93/comm", "p2pbw\n")
	require.NoError(t, os.MkdirAll(filepath.Join(m.root, "proc/93/fd"), 0o755))
	require.NoError(t, os.Symlink("/dev/nvidia0", filepath.Join(m.root, "proc/93/fd/3")))
	m.p2pbw(good(), 0)
	run, _ := m.run()
	assert.Equal(t, []string{"nvidia.ko", "nvidia-uvm.ko", "-nvidia_uvm", "-nvidia"}, driverCalls(m), "the other is not loaded beside it")
	f := findingOf(t, run, checks.DriverUnload)
	assert.Equal(t, "nvidia is in use and was not unloaded", f.Title)
	assert.Equal(t, "p2pbw (process 93)", f.Evidence[1].Raw)
	assert.Equal(t, "nvidia of an earlier arm is still loaded", run.Step("driver").Reason())
	assert.Equal(t, checks.VerdictUnknown, run.Verdict.Verdict)
	c := comparisonOf(t, run)
	assert.Equal(t, measure.OK, c.Arms[0].Verdict, "the run goes on with what it has")
	assert.Equal(t, "needs stage driver, which was skipped: nvidia of an earlier arm is still loaded", c.Arms[1].Reason)
}

func TestOptionsOfTheMailbox(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.arms=p2p-mailbox,p2p")
	m.img.Load = offers()
	m.p2pbw(good(), 0)
	run, _ := m.run()
	assert.Contains(t, m.inserted, `nvidia.ko NVreg_RegistryDwords="ForceP2P=0x211;RMPcieP2PType=0"`)
	c := comparisonOf(t, run)
	assert.Equal(t, []string{"with RMPcieP2PType=0", "without RMPcieP2PType=1 RMForceStaticBar1=1"}, c.Arms[0].Differs)
	assert.Equal(t, "p2p-mailbox,p2p", run.Start.Parameters["p2p.arms"])

	m = withGPUs(t, "iommu=pt p2p.after=poweroff p2p.arms=p2p-mailbox")
	m.p2pbw(good(), 0)
	run, _ = m.run()
	assert.Contains(t, run.Step("driver").Reason(), "this image does not say how to choose the mailbox")
}

func TestRedirectOffAndOnAgain(t *testing.T) {
	m := newMachine(t, "acs-switch", "p2p.after=poweroff p2p.acs=ab")
	m.p2pbw(good(), 0)
	before := configs(t, m)
	run, _ := m.run()
	assert.Equal(t, []string{"mount", "modules", "facts", "checks",
		"driver", "acs-p2p-noacs", "paths-p2p-noacs", "bandwidth-p2p-noacs", "restore-p2p-noacs",
		"paths", "bandwidth", "compare", "report", "after"}, stepIDs(run))
	assert.Len(t, driverCalls(m), 2, "one load of the driver")
	assert.Equal(t, before, configs(t, m), "the ports are as they were")
	c := comparisonOf(t, run)
	assert.NotEmpty(t, c.Arms[0].ACS)
	assert.Regexp(t, `^ACS redirect cleared on \d+ ports$`, c.Arms[0].Differs[0])
	assert.Contains(t, run.Step("restore-p2p-noacs").Reason(), "as they were")
	assert.Equal(t, report.StatusComplete, run.Step("restore-p2p-noacs").Status)
}

// TestNothingRedirects leaves the arm out.
func TestNothingRedirects(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=poweroff p2p.acs=ab")
	m.p2pbw(good(), 0)
	run, _ := m.run()
	assert.Equal(t, []arms.Left{{Arm: "p2p-noacs", Why: "no port between GPUs redirects that can be changed"}}, comparisonOf(t, run).Left)
}

func TestArmsWithoutGPU(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff p2p.driver=ab")
	m.noGPU()
	run, _ := m.run()
	c := comparisonOf(t, run)
	require.Len(t, c.Arms, 2)
	for _, a := range c.Arms {
		assert.Contains(t, a.Reason, "nvidia.ko ran on this kernel and found no GPU")
	}
	assert.Equal(t, checks.VerdictNoGPU, run.Verdict.Verdict)
	assert.Equal(t, "no module of the driver is loaded", run.Step("unload-stock").Reason())
}

// configs is the configuration space of all functions of the machine.
func configs(t *testing.T, m *machine) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.root, "sys/bus/pci/devices/*/config"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[filepath.Base(filepath.Dir(file))] = fmt.Sprintf("%x", text)
	}
	return all
}
