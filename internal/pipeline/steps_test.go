package pipeline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTreeMemorySumsDescendantsOnly(t *testing.T) {
	proc := t.TempDir()
	for pid, line := range map[string]string{
		"10": "10 (mkp2pimg) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 100 0",
		"11": "11 (a b) c) S 10 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0",
		"12": "12 (cc1) R 11 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 3 0",
		"13": "13 (other) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 4000 0",
		"14": "14 (short",
	} {
		require.NoError(t, os.Mkdir(filepath.Join(proc, pid), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(proc, pid, "stat"), []byte(line), 0o644))
	}
	assert.Equal(t, int64(123*os.Getpagesize()), treeMemory(proc, 10))
}

func TestStepsReportAndStopAtErrors(t *testing.T) {
	var log bytes.Buffer
	s := steps{log: &log}
	require.NoError(t, s.run("inputs", func() (string, error) { return "3 files", nil }))
	assert.Regexp(t, `^inputs +\d+\.\d s +\d+ MB  3 files\n$`, log.String())
	assert.Positive(t, s.done[0].Peak)

	broken := errors.New("no route to host")
	assert.ErrorIs(t, s.run("fetch", func() (string, error) { return "", broken }), broken)
	assert.Len(t, s.done, 1)
}

func TestStepsTellWhatRuns(t *testing.T) {
	told := make(chan string, 100)
	o := Options{Log: io.Discard, Doing: func(step string, _ time.Duration) { told <- step }}
	require.NoError(t, o.steps().run("modules", func() (string, error) {
		assert.Equal(t, "modules", <-told)
		return "", nil
	}))
	close(told)
	last := "none"
	for step := range told {
		last = step
	}
	assert.Empty(t, last, "the step's end")
}
