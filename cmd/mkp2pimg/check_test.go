package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/internal/checkup"
	"mkp2pimg/kmod/catalog"
)

// machineOf writes a machine of the library and returns its root, and a file with
// its kernel's log.
func machineOf(t testing.TB, kind string) (root, log string) {
	t.Helper()
	for _, k := range fixture.Kinds() {
		if k.Name == kind {
			root, log = t.TempDir(), filepath.Join(t.TempDir(), "dmesg")
			require.NoError(t, k.Write(root))
			require.NoError(t, os.WriteFile(log, []byte(k.Log), 0o644))
			return root, log
		}
	}
	t.Fatalf("no machine is named %s", kind)
	return "", ""
}

// saved returns a file with the facts of a machine.
func saved(t *testing.T, kind string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "facts.json")
	root, log := machineOf(t, kind)
	code, _, stderr := command(t, "facts", "--passive", "--root", root, "--kernel-log", log, "-o", file)
	require.Equal(t, exitOK, code, stderr)
	return file
}

// TestCheckVerdict has the exit code, the first line and the JSON document tell
// the same, of the machine as of its facts.
func TestCheckVerdict(t *testing.T) {
	seen := map[int]bool{}
	for _, kind := range []string{"good-2x4090", "acs-switch", "bar-unassigned", "unprivileged", "no-gpu", "one-gpu"} {
		t.Run(kind, func(t *testing.T) {
			root, log := machineOf(t, kind)
			code, stdout, stderr := command(t, "check", "--passive", "--root", root, "--kernel-log", log)
			assert.Empty(t, stderr)
			seen[code] = true

			file := saved(t, kind)
			again, offline, _ := command(t, "check", "--facts", file)
			assert.Equal(t, code, again)
			assert.Equal(t, stdout, offline)

			again, doc, _ := command(t, "check", "--facts", file, "--json")
			assert.Equal(t, code, again)
			var answer checkup.Checkup
			require.NoError(t, json.Unmarshal([]byte(doc), &answer))
			assert.Equal(t, verdictCodes[answer.Verdict], code)
			words := strings.ReplaceAll(string(answer.Verdict), "-", " ")
			assert.True(t, strings.HasPrefix(stdout, words+": "), stdout)
		})
	}
	assert.Equal(t, map[int]bool{exitOK: true, exitFailed: true, exitBlocked: true, exitUnknown: true}, seen)
}

func TestCheckOfStandardInput(t *testing.T) {
	doc, err := os.ReadFile(saved(t, "acs-switch"))
	require.NoError(t, err)
	root := newRoot()
	root.SetArgs([]string{"check", "--facts", "-"})
	root.SetIn(bytes.NewReader(doc))
	var stdout bytes.Buffer
	root.SetOut(&stdout)
	assert.ErrorAs(t, root.Execute(), new(quietError))
	assert.Contains(t, stdout.String(), "[P2P-ACS-REDIRECT]")
}

func TestCheckPage(t *testing.T) {
	facts := saved(t, "acs-switch")
	_, page, _ := command(t, "check", "--facts", facts, "--html")
	assert.True(t, strings.HasPrefix(page, "<!DOCTYPE html>"))
	file := filepath.Join(t.TempDir(), "check.html")
	_, text, _ := command(t, "check", "--facts", facts, "--html="+file)
	assert.Contains(t, text, "[P2P-ACS-REDIRECT]")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, page, string(written))
}

func TestCheckPredicts(t *testing.T) {
	facts := saved(t, "good-2x4090")
	r, err := catalog.Load().Lookup("580")
	require.NoError(t, err)
	edited := "predicted for " + r.Version + " with the P2P edits"
	stock := "predicted for " + r.Version + " as published"

	_, stdout, _ := command(t, "check", "--facts", facts, "--driver", "580")
	assert.Contains(t, stdout, edited)
	assert.NotContains(t, stdout, stock)
	assert.Contains(t, stdout, "path     bar1")

	_, stdout, _ = command(t, "check", "--facts", facts, "--driver", "580", "--stock")
	assert.NotContains(t, stdout, edited)
	assert.Contains(t, stdout, stock)
	assert.Contains(t, stdout, "path     none")

	_, stdout, _ = command(t, "check", "--facts", facts)
	assert.Equal(t, 2, strings.Count(stdout, "predicted for "), "as it is and with the edits")
}

func TestCheckStyle(t *testing.T) {
	facts := saved(t, "good-2x4090")
	for locale, branch := range map[string]string{"C.UTF-8": "├─ ", "C": "|- "} {
		t.Setenv("LC_ALL", locale)
		_, stdout, _ := command(t, "check", "--facts", facts)
		assert.Contains(t, stdout, branch)
	}
}

func TestExplain(t *testing.T) {
	for _, d := range checks.Docs() {
		code, stdout, _ := command(t, "check", "--explain", strings.ToLower(string(d.ID)))
		assert.Equal(t, exitOK, code)
		assert.True(t, strings.HasPrefix(stdout, fmt.Sprintf("%s: %s\n", d.ID, d.Question)), stdout)
		for _, o := range d.Outcomes {
			assert.Contains(t, stdout, o.When)
		}
	}
}

func TestCheckMistakes(t *testing.T) {
	good := saved(t, "good-2x4090")
	bad := filepath.Join(t.TempDir(), "facts.json")
	require.NoError(t, os.WriteFile(bad, []byte(`{"version":99}`), 0o644))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--explain", "P2P-X"}, exitUsage, `no finding is named "P2P-X": choose one of P2P-`},
		{[]string{"--facts", bad}, exitData, "document has version 99"},
		{[]string{"--facts", bad + ".gone"}, exitIO, "no such file"},
		{[]string{"--facts", good, "--root", "/"}, exitUsage, "--facts can't go with --root or --kernel-log"},
		{[]string{"--facts", good, "--json", "--html"}, exitUsage, "--json and --html both go to standard output"},
		{[]string{"--facts", good, "--driver", "12"}, exitUsage, "12"},
		{[]string{"--facts", good, "--html=" + bad + "/x"}, exitIO, "not a directory"},
		{[]string{"--root", bad}, exitUsage, "is not a directory"},
		{[]string{"extra"}, exitUsage, `unknown command "extra"`},
	} {
		code, stdout, stderr := command(t, append([]string{"check"}, tt.args...)...)
		assert.Equal(t, tt.code, code, tt.args)
		assert.Contains(t, stderr, tt.want)
		assert.Empty(t, stdout)
	}
}

// BenchmarkCheck64 is all that check does on a machine of 64 functions with 8
// GPUs, from reading its tree to the text.
func BenchmarkCheck64(b *testing.B) {
	root := b.TempDir()
	require.NoError(b, fixture.Crowd().Write(root))
	o := checkOptions{gathering: gathering{root: root, passive: true}}
	b.ReportAllocs()
	for b.Loop() {
		f, err := o.facts(b.Context())
		require.NoError(b, err)
		drivers, err := o.drivers(f)
		require.NoError(b, err)
		var text bytes.Buffer
		require.NoError(b, o.write(&text, checkup.New(f, drivers)))
	}
}
