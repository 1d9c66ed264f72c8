package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openAt opens a file with only some of the migrations.
func openAt(t *testing.T, path string, steps []string) (*Store, error) {
	t.Helper()
	s := &Store{name: path}
	require.NoError(t, s.openSQLite())
	t.Cleanup(func() { assert.NoError(t, errors.Join(s.w.Close(), s.r.Close())) })
	return s, s.migrate(context.Background(), steps)
}

func TestMigrate(t *testing.T) {
	steps := []string{
		"CREATE TABLE a (key {{rowkey}}, x TEXT NOT NULL); INSERT INTO a (x) VALUES ('kept')",
		"ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'new'",
	}
	path := filepath.Join(t.TempDir(), "farm.db")
	_, err := openAt(t, path, steps[:1])
	require.NoError(t, err)
	for range 2 { // the second time there is nothing to do
		s, err := openAt(t, path, steps)
		require.NoError(t, err)
		var x, y string
		require.NoError(t, s.r.QueryRowContext(t.Context(), "SELECT x, y FROM a").Scan(&x, &y))
		assert.Equal(t, []string{"kept", "new"}, []string{x, y})
	}
	_, err = openAt(t, path, append(steps, "CREATE TABLE b (x TEXT)", "CREATE TABLE a (x TEXT)"))
	require.ErrorContains(t, err, "migrate the schema to version 4: ")
	s, err := openAt(t, path, steps)
	require.NoError(t, err, "a migration that fails changes nothing")
	assert.Error(t, s.r.QueryRowContext(t.Context(), "SELECT x FROM b").Err())
	_, err = openAt(t, path, steps[:1])
	assert.ErrorContains(t, err, "its schema has version 2, this program knows versions up to 1")
}

// TestOnStableStorage asks the databases whether a commit waits for the disk.
func TestOnStableStorage(t *testing.T) {
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	require.NoError(t, err)
	defer s.Close()
	var mode string
	require.NoError(t, s.w.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	assert.Equal(t, "wal", mode)
	var level int
	require.NoError(t, s.w.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&level))
	assert.Equal(t, 2, level, "FULL: https://sqlite.org/pragma.html#pragma_synchronous")
}

func TestFilesAreTheOwners(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), filepath.Join(dir, "farm.db"))
	require.NoError(t, err)
	defer s.Close()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 3, "the database, its log and the log's index")
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), f.Name())
	}
}

// TestWaitingWritesShareATransaction counts the transactions of writes that wait.
func TestWaitingWritesShareATransaction(t *testing.T) {
	s := &Store{queue: make(chan *write, 3*maxBatch)}
	for range 2*maxBatch + 9 {
		s.queue <- &write{}
	}
	var batches []int
	for len(s.queue) > 0 {
		batches = append(batches, len(s.waiting(<-s.queue)))
	}
	assert.Equal(t, []int{maxBatch, maxBatch, 9}, batches)
}

func TestHeldByAnotherProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "farm.db")
	s, err := Open(t.Context(), path)
	require.NoError(t, err)
	defer s.Close()
	other, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	defer other.Close()
	other.SetMaxOpenConns(1)
	_, err = other.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	require.NoError(t, err)
	_, err = s.w.ExecContext(t.Context(), fmt.Sprintf("PRAGMA busy_timeout = %d", time.Millisecond.Milliseconds()))
	require.NoError(t, err)
	err = s.Disarm(t.Context(), "2026-03-05", "n1")
	assert.EqualError(t, err, "store "+path+": disarm n1: begin: database is locked (5) (SQLITE_BUSY): another program holds the file; is a second server running on it?")
	_, err = other.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.NoError(t, s.Disarm(t.Context(), "2026-03-05", "n1"))
}

func TestTrend(t *testing.T) {
	for text, want := range map[string][]float64{
		"":              nil,
		"97.2":          {97.2},
		"NaN":           {math.NaN()},
		"97.2,NaN,88.1": {97.2, math.NaN(), 88.1},
	} {
		got := parseTrend(text)
		assert.Equal(t, fmt.Sprint(want), fmt.Sprint(got))
		assert.Equal(t, text, formatTrend(want))
	}
}

func TestRefusal(t *testing.T) {
	err := error(refusal{fmt.Errorf("run x: %w", ErrNotFound)})
	assert.ErrorIs(t, err, ErrNotFound)
	var seq *SequenceError
	assert.True(t, errors.As(refusal{&SequenceError{Next: 3}}, &seq))
	assert.Equal(t, 3, seq.Next)
}
