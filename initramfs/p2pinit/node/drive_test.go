package node

import (
	"context"
	"testing"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLateDriverStageInsertsNothing(t *testing.T) {
	m := newMachine(t, "no-gpu", "")
	n := &Node{Root: m.root, System: m}
	task := &stage.Task{Step: report.New().Step("driver", "driver")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, n.insert(ctx, task, "/x/nvidia.ko", silent{}), context.Canceled)
	assert.Empty(t, m.inserted)
}

func TestGPUGoneSinceTheFacts(t *testing.T) {
	m := withGPUs(t, "p2p.after=poweroff")
	m.noGPU()
	run, _ := m.run()
	assert.Equal(t, "nvidia.ko found no GPU, but stage facts saw 0000:01:00.0: it may have dropped off the bus since", run.Step("driver").Reason())
	assert.Equal(t, checks.VerdictUnknown, run.Verdict.Verdict)
}

func TestDamageOfBothModulesOnOneLine(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff")
	for _, name := range []string{"nvidia", "nvidia-uvm"} {
		m.write(layout.DriverModule(release, "p2p", name), "x")
	}
	run, _ := m.run()
	assert.Regexp(t, `damaged: /lib/.*/nvidia\.ko: has .*; /lib/.*/nvidia-uvm\.ko: has `, run.Step("driver").Reason())
	assert.NotContains(t, run.Step("driver").Reason(), "\n")
}
