package escape

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIs(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o644))
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "up")))
	require.NoError(t, os.Symlink(dir, filepath.Join(dir, "absolute")))
	require.NoError(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	for name, want := range map[string]bool{
		"up/x": true, "up": true, "absolute/file": true,
		"none": false, "file/x": false, "loop": false, "link": false, "file": false,
	} {
		_, err := fs.ReadFile(root.FS(), name)
		assert.Equal(t, want, Is(err), "%s: %v", name, err)
		if err != nil {
			assert.Equal(t, want, Is(fmt.Errorf("read: %w", err)))
		}
	}
	assert.True(t, Is(root.Link("../x", "y")))
	assert.True(t, Is(root.Mkdir("up/x", 0o755)))
	assert.True(t, Is(root.Mkdir("../x", 0o755)))
	assert.True(t, Is(root.Mkdir("/x", 0o755)))
	assert.True(t, Is(root.MkdirAll("absolute/x/y", 0o755)))
	assert.False(t, Is(root.Mkdir("file", 0o755)))
	assert.False(t, Is(errors.New("another")))
	assert.False(t, Is(nil))
}
