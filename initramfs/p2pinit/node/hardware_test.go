package node

import (
	"context"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mkp2pimg/initramfs/p2pinit/modules"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A module that hung the modules stage must not keep the report from being sent.
func TestLateModulesThatHang(t *testing.T) {
	m := newMachine(t, "no-gpu", "")
	m.write("lib/modules/"+release+"/modules.alias", "alias pci:v00001AF4* virtio_net\n")
	m.write("sys/bus/virtio/devices/virtio0/modalias", "pci:v00001AF4\n")
	index, err := modules.ReadIndex(os.DirFS(m.root), "lib/modules/"+release)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		n := &Node{Root: m.root, System: m, Started: time.Now(), report: report.New(), console: &report.Stream{}}
		var asked atomic.Bool
		n.loader = modules.NewLoader(index, func(string, string) error {
			asked.Store(true)
			<-stuck
			return nil
		})
		n.late(t.Context())
		assert.True(t, asked.Load())
		assert.Equal(t, lateLimit, time.Since(n.Started))
		assert.Contains(t, string(n.report.Bytes()), "still loading, one may hang")
		close(stuck)
	})
}

func TestWatchdogBeforeTheDrivers(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff")
	m.noGPU()
	run, _ := m.run()
	logs := run.Step("modules").Logs
	line := func(text string) int {
		return slices.IndexFunc(logs, func(l report.Log) bool { return l.Message == text })
	}
	armed := line("watchdog armed: fake, 1m0s")
	require.GreaterOrEqual(t, armed, 0)
	assert.Less(t, armed, line("1 loaded, 0 failed: virtio_net"))
}

func TestLateModulesStageArmsNoWatchdog(t *testing.T) {
	m := newMachine(t, "no-gpu", "")
	n := &Node{Root: m.root, System: m}
	index, err := modules.ReadIndex(os.DirFS(m.root), "lib/modules/"+release)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n.arm(ctx, &stage.Task{Step: report.New().Step("modules", "modules")}, modules.NewLoader(index, nil))
	assert.Nil(t, n.guard)
}
