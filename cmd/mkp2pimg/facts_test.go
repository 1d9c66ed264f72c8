package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
)

func TestFacts(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, fixture.Kinds()[0].Write(root))
	b := newBench(t)

	code, stdout, stderr := b.run(t.Context(), "facts", "--root", root)
	require.Equal(t, exitOK, code, stderr)
	f, err := facts.Load(bytes.NewReader([]byte(stdout)))
	require.NoError(t, err)
	assert.Len(t, f.GPUs(), 2)
	assert.NotContains(t, stdout, "MUST-NOT-LEAK")
	assert.Contains(t, stderr, "2 GPUs, 0 things not known")

	out := filepath.Join(t.TempDir(), "facts.json")
	code, stdout, _ = b.run(t.Context(), "facts", "--root", root, "--private", "--passive", "-o", out)
	require.Equal(t, exitOK, code)
	assert.Empty(t, stdout)
	private, err := facts.LoadFile(out)
	require.NoError(t, err)
	assert.Equal(t, "SN-MUST-NOT-LEAK", private.Firmware.BoardSerial)
}

// It runs on any Linux, whoever runs it.
func TestFactsOfThisMachine(t *testing.T) {
	code, stdout, stderr := newBench(t).run(t.Context(), "facts", "--passive")
	require.Equal(t, exitOK, code, stderr)
	assert.True(t, json.Valid([]byte(stdout)))
}

func TestFactsErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	root := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no root":        {[]string{"--root", "/does/not/exist"}, exitUsage, "/does/not/exist"},
		"root is a file": {[]string{"--root", file}, exitUsage, "is not a directory"},
		"no folder":      {[]string{"--root", root, "-o", filepath.Join(root, "none", "f.json")}, exitIO, "none/f.json"},
		"argument":       {[]string{"f.json"}, exitUsage, "f.json"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := newBench(t).run(t.Context(), append([]string{"facts"}, tc.args...)...)
			assert.Equal(t, tc.code, code)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tc.want)
		})
	}
}
