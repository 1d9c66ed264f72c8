package gittree

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// fill writes a tree in which the order of names, modes and kinds matters.
func fill(t *testing.T) string {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"a.c": 0o644, "a/x": 0o600, "a0": 0o755, "deep/er/file": 0o664, "z": 0o744, "weird \xff name": 0o644,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("content of "+name), mode))
		require.NoError(t, os.Chmod(path, mode))
	}
	require.NoError(t, os.Symlink("../nowhere", filepath.Join(dir, "a/link")))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "empty/dir"), 0o755))
	return dir
}

// TestHash has the value that "git write-tree" gives for this tree.
func TestHash(t *testing.T) {
	dir := fill(t)
	got, err := Hash(dir)
	require.NoError(t, err)
	assert.Equal(t, "84ad53ee6748a866a9a8f33fa3a075ae190e6c13", got)

	require.NoError(t, os.Chmod(filepath.Join(dir, "a/x"), 0o700))
	changed, err := Hash(dir)
	require.NoError(t, err)
	assert.NotEqual(t, got, changed, "the owner may execute it")
}

func TestHashOfNothing(t *testing.T) {
	got, err := Hash(t.TempDir())
	require.NoError(t, err)
	assert.Equal(t, "4b825dc642cb6eb9a060e54bf8d69288fbee4904", got, "git's well-known empty tree")
}

func TestHashAsGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed: compared with its own answer only where it is")
	}
	dir := fill(t)
	var out []byte
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"write-tree"}} {
		cmd := exec.CommandContext(t.Context(), git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err = cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	got, err := Hash(dir)
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(out)), got)
}

func TestHashErrors(t *testing.T) {
	dir := fill(t)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "deep/pipe"), 0o600))
	_, err := Hash(dir)
	require.ErrorContains(t, err, "deep/pipe: is neither a file, a directory nor a symbolic link")

	_, err = Hash(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
