package node

import (
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
	"mkp2pimg/kmod/loadopt"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLateDriverStageInsertsNothing(t *testing.T) {
	m := newMachine(t, "no-gpu", "")
	n := &trial{Node: &Node{Root: m.root, System: m}}
	task := &stage.Task{Step: report.New().Step("driver", "driver")}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, n.insert(ctx, task, "/x/nvidia.ko", silent{}), context.Canceled)
	assert.Empty(t, m.inserted)
}

func TestOptionsFollowTheMachine(t *testing.T) {
	load := &loadopt.Data{
		Offer:  loadopt.Offer{ResizableBAR: true, BAR1: loadopt.Separate, Static: loadopt.StaticAuto},
		Edited: []string{"p2p"},
		Models: map[string]loadopt.Model{"2684": {Name: "GeForce RTX 4090", Memory: 24 << 10, Patch: true}},
	}
	for name, test := range map[string]struct {
		cmdline, want string
		left          []string
	}{
		"p2p":   {"", `nvidia.ko NVreg_EnableResizableBar=1 NVreg_RegistryDwords="RMPcieP2PType=1;RMForceStaticBar1=1"`, nil},
		"stock": {" p2p.driver=stock", "nvidia.ko NVreg_EnableResizableBar=1", []string{"RMPcieP2PType"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := withGPUs(t, "p2p.after=poweroff"+test.cmdline)
			m.img.Load = load
			m.p2pbw(good(), 0)
			run, _ := m.run()
			assert.Contains(t, m.inserted, test.want)

			extensions := run.Step("driver").Extensions
			require.NotEmpty(t, extensions)
			assert.Equal(t, ExtOptions, extensions[0].Name)
			var c loadopt.Choice
			require.NoError(t, json.Unmarshal(extensions[0].Content, &c))
			assert.Equal(t, test.want, "nvidia.ko "+loadopt.Arguments(c.Options))
			var left []string
			for _, o := range c.Left {
				left = append(left, o.Name)
			}
			assert.Equal(t, test.left, left)
		})
	}
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

// TestDriverLoadedBefore: the image's user space on a system with a driver of its
// own measures with that, and inserts nothing.
func TestDriverLoadedBefore(t *testing.T) {
	for _, c := range []struct {
		version, says string
		verdict       checks.Verdict
	}{
		{"580.159.04\n", "driver 580.159.04 was loaded before", checks.VerdictReady},
		{"", "p2p.driver=loaded, but the kernel has no module nvidia: load it first, or leave p2p.driver out", checks.VerdictUnknown},
	} {
		m := withGPUs(t, "iommu=pt p2p.driver=loaded")
		if c.version != "" {
			m.write("sys/module/nvidia/version", c.version)
		}
		m.write("proc/sys/kernel/osrelease", "7.3.4-amd64\n")
		m.write(layout.DriverModule(release, "p2p", "nvidia"), "of another size")
		m.p2pbw(good(), 0)
		run, _ := m.run()
		assert.Empty(t, m.inserted)
		assert.Empty(t, m.nodes)
		assert.Equal(t, report.StatusComplete, run.Step("mount").Status)
		assert.Equal(t, report.StatusComplete, run.Step("modules").Status)
		assert.Equal(t, c.says, run.Step("driver").Reason())
		assert.Equal(t, c.verdict, run.Verdict.Verdict)
	}
}

// TestDriverEnlargesBARs: what the driver has mended does not count against the
// machine any more.
func TestDriverEnlargesBARs(t *testing.T) {
	large := withGPUs(t, "")
	small := newMachine(t, "rebar-off", "")
	bars := func(from *machine) map[string][]byte {
		files := map[string][]byte{}
		for _, pattern := range []string{"config", "resource"} {
			all, err := fs.Glob(os.DirFS(from.root), "sys/bus/pci/devices/*/"+pattern)
			require.NoError(t, err)
			for _, file := range all {
				files[file], err = os.ReadFile(filepath.Join(from.root, file))
				require.NoError(t, err)
			}
		}
		return files
	}
	for _, c := range []struct {
		after   map[string][]byte
		status  checks.Status
		verdict checks.Verdict
	}{
		{bars(small), checks.Warn, checks.VerdictDegraded},
		{bars(large), checks.Pass, checks.VerdictReady},
	} {
		m := withGPUs(t, "iommu=pt")
		for file, content := range bars(small) {
			m.write(file, string(content))
		}
		m.changes = c.after
		m.p2pbw(good(), 0)
		run, _ := m.run()
		for _, id := range []checks.ID{checks.ReBAR, checks.BAR1Memory} {
			assert.Equal(t, c.status, findingOf(t, run, id).Status)
		}
		assert.Equal(t, c.verdict, run.Verdict.Verdict, run.Verdict.Reason)
	}
}
