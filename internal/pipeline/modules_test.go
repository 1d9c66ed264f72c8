package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"mkp2pimg/kmod/patch"
)

// TestPlanRefusesEditedSource plans over a source that "mkp2pimg patch" was at: its
// stock modules would not be what NVIDIA ships.
func TestPlanRefusesEditedSource(t *testing.T) {
	archive, err := txtar.ParseFile("../../kmod/patch/testdata/c.txtar")
	require.NoError(t, err)
	tree, headers := t.TempDir(), t.TempDir()
	for _, f := range archive.Files {
		path := filepath.Join(tree, f.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, f.Data, 0o644))
	}
	_, err = plan(tree, headers, "auto")
	require.NoError(t, err)

	require.NoError(t, write(tree, patch.P2P(patch.Minimal)))
	_, err = plan(tree, headers, "auto")
	var refused *RequestError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "has edit P2P-E2-")
	require.ErrorContains(t, err, "mkp2pimg patch --revert")
}
