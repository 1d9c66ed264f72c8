package patch

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forked makes the changes of a fork to a stock tree of testdata: pairs of file, old and new text.
func forked(t *testing.T, name string, changes ...[3]string) fstest.MapFS {
	t.Helper()
	tree := loadTree(t, name)
	for _, c := range changes {
		text := string(tree[c[0]].Data)
		require.Equal(t, 1, strings.Count(text, c[1]), "%s: %s", c[0], c[1])
		tree[c[0]] = &fstest.MapFile{Data: []byte(strings.Replace(text, c[1], c[2], 1))}
	}
	return tree
}

func TestForksAreRecognised(t *testing.T) {
	forced := [3]string{kernelBIF, "p2pOverride = BIF_P2P_NOT_OVERRIDEN;", "p2pOverride = 0x11;"} //nolint:misspell // as in the source
	rebound := [3]string{busHAL, "&kbusCreateP2PMappingForBar1P2P_395e98;", "&kbusCreateP2PMappingForBar1P2P_GH100;"}
	const p2pAPI, gmmuFmt, uvmGPU = "src/nvidia/src/kernel/gpu/bus/p2p_api.c", "src/nvidia/src/libraries/mmu/gmmu_fmt.c", "kernel-open/nvidia-uvm/uvm_gpu.h"
	for name, test := range map[string]struct {
		changes [][3]string
		want    string
	}{
		"first": {
			[][3]string{forced, {p2pAPI, "kbusCreateP2PMapping_HAL(", "kbusCreateP2PMapping_GH100("}},
			"those of tinygrad's first P2P driver",
		},
		"simplified": {
			[][3]string{forced, rebound, {gmmuFmt, "fldAddrPeer", "fldAddrSysmem"}},
			"those of the simplified P2P driver",
		},
		"575": {
			[][3]string{forced, rebound, {kernBus, "STATIC_BAR1_AUTO;", "STATIC_BAR1_ENABLE;"}},
			"those of aikitoria's P2P driver for 575 and later",
		},
		"RTX 50": {
			[][3]string{forced, rebound, {kernBus, "STATIC_BAR1_AUTO;", "STATIC_BAR1_ENABLE;"},
				{uvmGPU, "return parent_gpu->system_bus.memory_window_end > parent_gpu->system_bus.memory_window_start;", "return true;"}},
			"those of aikitoria's P2P driver with RTX 50 support",
		},
		"minimal": {
			[][3]string{forced, rebound},
			"those of a minimal P2P driver",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := forked(t, "c", test.changes...)
			for _, mode := range []Mode{Auto, Minimal, All} {
				r, err := Plan(tree, P2P(mode))
				var fork *ForkError
				require.ErrorAs(t, err, &fork)
				assert.Nil(t, r)
				assert.Len(t, fork.Evidence, len(fork.Fork.Signs))
				assert.ErrorContains(t, err, test.want)
				assert.ErrorContains(t, err, kernelBIF+":")
				assert.ErrorContains(t, err, "git clone --depth 1 -b 580.1 https://github.com/NVIDIA/open-gpu-kernel-modules")
			}
			_, err := Plan(tree, P2P(None))
			assert.NoError(t, err, "a fork can be built as it is")
		})
	}
	for name, changes := range map[string][][3]string{
		"stock": nil, "one changed default": {forced}, "a changed function table": {rebound},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(forked(t, "c", changes...), P2P(Auto))
			assert.NoError(t, err)
		})
	}
}
