package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unpack stands for the unpacking of packages with the given programs.
func unpack(dir string, programs ...string) error {
	bin := filepath.Join(dir, "usr/bin")
	err := os.MkdirAll(bin, 0o755)
	for _, p := range programs {
		err = errors.Join(err, os.WriteFile(filepath.Join(bin, p), nil, 0o755))
	}
	return err
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unpack(dir, "mawk", "gcc-12", "gcc-13", "which", "which.debianutils"))
	for range 2 { // the second time nothing is left to do
		require.NoError(t, Prepare(dir))
		links := map[string]string{}
		entries, err := os.ReadDir(filepath.Join(dir, "usr/bin"))
		require.NoError(t, err)
		for _, e := range entries {
			if target, err := os.Readlink(filepath.Join(dir, "usr/bin", e.Name())); err == nil {
				links[e.Name()] = target
			}
		}
		assert.Equal(t, map[string]string{"awk": "mawk", "gcc": "gcc-12", "cc": "gcc"}, links)
	}
}

func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "roots", "0123")
	root, err := Make(t.Context(), dir, func(dir string) error { return unpack(dir, "mawk") })
	require.NoError(t, err)
	assert.Equal(t, Root{dir}, root)
	assert.FileExists(t, filepath.Join(dir, "usr/bin/awk"))

	broken := errors.New("truncated archive")
	_, err = Make(t.Context(), dir+"4", func(string) error { return broken })
	assert.ErrorIs(t, err, broken)
	assert.NoDirExists(t, dir+"4")
}
