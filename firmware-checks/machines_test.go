package checks_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/golden"
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
