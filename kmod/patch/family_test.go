package patch

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func applied(r *Result) []string {
	ids := []string{}
	for _, o := range r.Edits {
		if o.Status == Applied {
			ids = append(ids, o.Edit.ID)
		}
	}
	return ids
}

// nativeBlackwell is a tree in the shape of release 590, in which BAR1 is whole for Blackwell.
func nativeBlackwell(t *testing.T) fstest.MapFS {
	return forked(t, "c",
		[3]string{busHeader, "NV_STATUS kbusEnable", "NvBool PDB_PROP_KBUS_SUPPORT_BAR1_P2P_BY_DEFAULT;\nNV_STATUS kbusEnable"},
		[3]string{"kernel-open/nvidia-uvm/uvm_gpu.h", "UVM_GPU_LINK_PCIE }", "UVM_GPU_LINK_PCIE, UVM_GPU_LINK_PCIE_BAR1 }"})
}

func TestFamilies(t *testing.T) {
	guards := []string{"P2P-E5-FALLBACK-PCIE", "P2P-E6-MANAGED-PARENT"}
	core := []string{
		"P2P-E2-CREATE", "P2P-E2-REMOVE", "P2P-E2-HAS", "P2P-E2-SUPPORTED", "P2P-E2-DMA", "P2P-E4-CREATE", "P2P-E4-REMOVE",
	}
	for name, test := range map[string]struct {
		tree     fstest.MapFS
		families []Family
		want     []string
	}{
		"580, all":                  {loadTree(t, "c"), nil, append(core, guards...)},
		"580, ada":                  {loadTree(t, "c"), []Family{Ada}, append(core, guards...)},
		"580, hopper":               {loadTree(t, "c"), []Family{Hopper}, guards},
		"580, blackwell":            {loadTree(t, "c"), []Family{Blackwell}, guards},
		"590, blackwell":            {nativeBlackwell(t), []Family{Blackwell}, []string{}},
		"590, blackwell and turing": {nativeBlackwell(t), []Family{Blackwell, Turing}, append(core, guards[0])},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Plan(test.tree, P2P(Auto, test.families...))
			require.NoError(t, err)
			assert.Equal(t, test.want, applied(r))
		})
	}

	r, err := Plan(nativeBlackwell(t), P2P(Auto, Blackwell))
	require.NoError(t, err)
	assert.Equal(t, "auto: 0 edits that peer-to-peer can't work without (0 files); "+
		"left out: 3 that set defaults, which module options set as well, 7 for GPUs that were not named", r.Summary())
	for _, o := range r.Edits {
		switch o.Edit.ID {
		case "P2P-E4-CREATE":
			assert.Equal(t, "it serves turing, ampere and ada only", o.Reason)
		case "P2P-E5-FALLBACK-PCIE":
			assert.Equal(t, blackwellLacksBar1.Else, o.Reason)
		}
	}
}

func TestReportTellsFamilies(t *testing.T) {
	r, err := Plan(nativeBlackwell(t), P2P(Auto))
	require.NoError(t, err)
	rep := r.Report()
	require.Len(t, rep.Families, 5)
	for _, f := range rep.Families {
		wantCore := 0
		if f.Family == Turing || f.Family == Ampere || f.Family == Ada {
			wantCore = 7
		}
		assert.Len(t, f.Core, wantCore, f.Family)
		assert.Equal(t, []string{"P2P-E5-FALLBACK-PCIE"}, f.Guards, f.Family)
		assert.Empty(t, f.LeftOut)
	}
	assert.Equal(t, "auto: 7 edits that peer-to-peer can't work without (2 files), "+
		"1 edit that guards what it would break (1 file); left out: 3 that set defaults, which module options set as well", rep.Why)

	none, err := Plan(loadTree(t, "c"), P2P(None))
	require.NoError(t, err)
	rep = none.Report()
	assert.Empty(t, rep.Files)
	assert.Len(t, rep.Families[0].LeftOut, 7)
	assert.True(t, strings.HasPrefix(rep.Why, "none: 0 edits"), rep.Why)

	old, err := Plan(loadTree(t, "a1"), P2P(Auto))
	require.NoError(t, err)
	assert.Len(t, old.Report().Families, 4, "this release does not know Blackwell")
	compat, err := Plan(loadTree(t, "a1"), Compat(fstest.MapFS{}))
	require.NoError(t, err)
	assert.Empty(t, compat.Report().Families)
	assert.Empty(t, compat.Report().Why)
}
