package cachedir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

func write(dir string) error {
	return os.WriteFile(filepath.Join(dir, "file"), []byte("whole"), 0o644)
}

func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a/b")
	require.NoError(t, os.MkdirAll(dir+".partial/old", 0o755)) // of a killed program

	require.NoError(t, Make(t.Context(), dir, func(partial string) error {
		assert.NoDirExists(t, dir)
		assert.NoDirExists(t, filepath.Join(partial, "old"))
		return write(partial)
	}))
	assert.FileExists(t, filepath.Join(dir, "file"))
	assert.NoDirExists(t, dir+".partial")

	require.NoError(t, Make(t.Context(), dir, func(string) error { return errors.New("called again") }))
}

func TestMakeFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	failed := errors.New("no such compiler")
	assert.ErrorIs(t, Make(t.Context(), dir, func(partial string) error {
		require.NoError(t, write(partial))
		return failed
	}), failed)
	assert.NoDirExists(t, dir)
	assert.NoDirExists(t, dir+".partial")
	require.NoError(t, Make(t.Context(), dir, write))

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	assert.ErrorContains(t, Make(t.Context(), filepath.Join(file, "a"), write), "cache: ")
}

func TestMakeOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	var calls atomic.Int32
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			return Make(t.Context(), dir, func(partial string) error {
				calls.Add(1)
				return write(partial)
			})
		})
	}
	require.NoError(t, g.Wait())
	assert.EqualValues(t, 1, calls.Load())
}

func TestMakeWaitCancelled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	unlock, err := lock(t.Context(), dir+".lock")
	require.NoError(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = Make(ctx, dir, write)
	assert.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "a.lock, which another program holds")
	_, err = os.Stat(dir)
	assert.ErrorIs(t, err, fs.ErrNotExist)
}

func TestTemp(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "cache")
	first, removeFirst, err := Temp(parent, "scratch-")
	require.NoError(t, err)
	require.NoError(t, write(first))
	for _, name := range []string{"scratch-1/deep", "scratch-x", "other-1"} {
		require.NoError(t, os.MkdirAll(filepath.Join(parent, name), 0o755))
	}

	second, removeSecond, err := Temp(parent, "scratch-")
	require.NoError(t, err)
	assert.NotEqual(t, first, second)
	assert.FileExists(t, filepath.Join(first, "file"), "in use")
	assert.NoDirExists(t, filepath.Join(parent, "scratch-1"), "of a killed program")
	assert.DirExists(t, filepath.Join(parent, "scratch-x"))
	assert.DirExists(t, filepath.Join(parent, "other-1"))

	removeFirst()
	assert.NoDirExists(t, first)
	assert.DirExists(t, second)
	removeSecond()
	assert.NoDirExists(t, second)
}

func TestTempAtOnce(t *testing.T) {
	parent := t.TempDir()
	var g errgroup.Group
	for range 8 {
		g.Go(func() error {
			for range 20 {
				dir, remove, err := Temp(parent, "t-")
				if err != nil {
					return err
				}
				if err := write(dir); err != nil {
					return err
				}
				remove()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	list, err := os.ReadDir(parent)
	require.NoError(t, err)
	assert.Empty(t, list)
}
