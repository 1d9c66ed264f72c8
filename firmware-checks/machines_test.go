package checks_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/rm"
)

// TestMachines judges the facts of real machines, as "mkp2pimg facts" wrote them.
func TestMachines(t *testing.T) {
	files, err := filepath.Glob("testdata/machines/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := facts.LoadFile(file)
			require.NoError(t, err)
			golden.Equal(t, strings.TrimSuffix(file, ".json")+".txt", text(checks.Run(f)))
		})
	}
}

// TestAgreesWithNVIDIASMI holds what the resource manager answered about a pair
// of GPUs, and what follows from it, to what nvidia-smi printed on that machine.
func TestAgreesWithNVIDIASMI(t *testing.T) {
	said, err := os.ReadFile("../docs/measurements/h200/two-nvidia-smi.txt")
	require.NoError(t, err)
	cell := func(option string) string { // of GPU 0 as the row, GPU 1 as the column
		_, table, ok := strings.Cut(string(said), "$ nvidia-smi topo "+option+"\n")
		require.True(t, ok, option)
		row := strings.Fields(strings.Split(table, "\n")[1])
		require.Equal(t, []string{"GPU0", "X"}, row[:2])
		return row[2]
	}
	f, err := facts.LoadFile("testdata/machines/h200-pair-guest.json")
	require.NoError(t, err)
	pair := f.NVIDIA.Survey.Pairs[0]
	for option, index := range map[string]int{
		"-p2p r": rm.IndexRead, "-p2p w": rm.IndexWrite, "-p2p n": rm.IndexNVLink, "-p2p a": rm.IndexAtomics, "-p2p p": rm.IndexProp,
	} {
		assert.Equal(t, cell(option), pair.Status[index].String(), option)
	}
	assert.Regexp(t, `^NV\d+$`, cell("-m"))
	assert.Equal(t, rm.NVLink, pair.Path)
	assert.Contains(t, text(checks.Run(f)), "P2P-PREDICTION pass: driver 580.159.04: NVLink if NVLink joins the GPUs")
}
