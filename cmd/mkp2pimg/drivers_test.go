package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

// command runs a command line that reads and writes no files.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestDrivers(t *testing.T) {
	for name, args := range map[string][]string{
		"drivers.txt":         {"drivers"},
		"drivers-4090.txt":    {"drivers", "--gpu", "4090"},
		"drivers-pro6000.txt": {"drivers", "--gpu", "rtx pro 6000"},
		"drivers-2080ti.txt":  {"drivers", "--gpu", "2080ti"},
		"drivers-25b6.txt":    {"drivers", "--gpu", "10de:25b6"},
		"drivers-4090.json":   {"drivers", "--gpu", "4090", "--json"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, args...)
			assert.Equal(t, exitOK, code, stderr)
			golden.Equal(t, "testdata/"+name, stdout)
		})
	}
}

func TestAllDriversAsJSON(t *testing.T) {
	code, stdout, stderr := command(t, "drivers", "--all", "--json")
	require.Equal(t, exitOK, code, stderr)
	var l driverList
	require.NoError(t, json.Unmarshal([]byte(stdout), &l))
	assert.Len(t, l.Releases, 147)
	assert.Len(t, l.Families, 5)
	for _, r := range l.Releases {
		assert.Contains(t, r.Needs, "ada", r.Version)
		assert.Len(t, r.Tree, 40, r.Version)
	}
}

func TestDriversRefused(t *testing.T) {
	for args, says := range map[[2]string]string{
		{"--gpu", "5099"}: `GPU "5099" is not known; near it are GeForce RTX 5090, `,
		{"570", ""}:       `unknown command "570"`,
	} {
		code, stdout, stderr := command(t, "drivers", args[0], args[1])
		assert.Equal(t, exitUsage, code)
		assert.Empty(t, stdout)
		assert.Contains(t, stderr, says)
	}
}
