package main

import (
	"bytes"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/intake"
	"mkp2pimg/internal/farm/store/storetest"
)

// farmCommand executes a command of the farm.
func farmCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, append([]string{"farm"}, args...)...)
}

// good executes a command that is to succeed, and returns what it printed.
func good(t *testing.T, args ...string) string {
	t.Helper()
	code, stdout, stderr := farmCommand(t, args...)
	require.Zero(t, code, stderr)
	return stdout
}

// sample is a file with the sample report as of yesterday, since a report from
// another time is taken for one of a machine whose clock is wrong, and the night
// that it is of.
func sample(t *testing.T) (name, night string) {
	t.Helper()
	raw, err := os.ReadFile("../../internal/report/testdata/sample.jsonl")
	require.NoError(t, err)
	night = time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	name = filepath.Join(t.TempDir(), "sample.jsonl")
	require.NoError(t, os.WriteFile(name, bytes.ReplaceAll(raw, []byte("2026-03-05"), []byte(night)), 0o600))
	return name, night
}

// serialLog is a file with the sample report among other lines.
func serialLog(t *testing.T) string {
	t.Helper()
	report, _ := sample(t)
	raw, err := os.ReadFile(report)
	require.NoError(t, err)
	text := "[    0.000000] Linux version 6.12\r\n" + strings.ReplaceAll(string(raw), "\n", "\r\n[   12.3] usb 1-1: \xff\r\n")
	name := filepath.Join(t.TempDir(), "rack1-3.log")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

func TestImportExport(t *testing.T) {
	report, night := sample(t)
	dir := t.TempDir()
	db, other, lines := dir+"/farm.db", dir+"/other.db", dir+"/farm.jsonl"
	stdout := good(t, "import", "--store", db, report)
	assert.Contains(t, stdout, "sample.jsonl: run ")
	assert.Contains(t, stdout, " of node7, night "+night+"\n")
	assert.Contains(t, good(t, "import", "--store", db, report), "night "+night+", which was there already")
	assert.Contains(t, good(t, "import", "--store", db, "--source", "serial", "--node", "rack1-3", serialLog(t)), " of rack1-3, night ")

	good(t, "export", "--store", db, "-o", lines)
	text, err := os.ReadFile(lines)
	require.NoError(t, err)
	assert.Equal(t, 4, bytes.Count(text, []byte("\n")), "two nodes, two runs")
	assert.Contains(t, string(text), `"verdict":"P2P-READY"`, "what was imported is judged")
	info, err := os.Stat(lines)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	assert.Contains(t, good(t, "import", "--store", other, lines), "2 runs, 0 of them were there already")
	assert.Contains(t, good(t, "import", "--store", other, lines), "2 runs, 2 of them were there already")
	assert.Equal(t, string(text), good(t, "export", "--store", other))
	assert.Equal(t, 2, strings.Count(good(t, "export", "--store", other, "--node", "node7"), "\n"))

	assert.Contains(t, good(t, "export", "--store", other, "--format", "text"), "night "+night+": 2 nodes: 2 pass")
	for format, want := range map[string]string{"json": `"version": 1`, "junit": "<testsuites>", "openmetrics": "# EOF"} {
		assert.Contains(t, good(t, "export", "--store", other, "--format", format), want)
	}
	assert.Contains(t, good(t, "retain", "--store", other), "removed 0 runs, and 0 reports")
	assert.Contains(t, good(t, "retain", "--store", other, "--runs", "1"), "removed 2 runs")
	assert.NotContains(t, good(t, "export", "--store", other), `"run":{`)
}

func TestImportToServer(t *testing.T) {
	report, night := sample(t)
	const secret = "the-token-of-the-administrator"
	in := intake.New(intake.Config{
		Store: storetest.Open(t, t.TempDir()+"/farm.db"), Judge: judgement,
		Night: func(t time.Time) string { return t.Format(time.DateOnly) },
		Known: func(name string) bool { return name == "node7" },
		Admin: func(token string) bool { return token == secret },
	})
	server := httptest.NewServer(in)
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(secret+"\n"), 0o600))
	args := func(more ...string) []string {
		return append([]string{"import", "--server", server.URL, "--token-file", token}, more...)
	}
	assert.Contains(t, good(t, args(report)...), " of node7, night "+night+"\n")
	assert.Contains(t, good(t, args(report)...), "which was there already")

	code, _, stderr := farmCommand(t, args("--node", "other", report)...)
	assert.Equal(t, exitData, code)
	assert.Contains(t, stderr, `there is no node "other"`)

	require.NoError(t, os.WriteFile(token, []byte("wrong\n"), 0o600))
	code, _, stderr = farmCommand(t, args(report)...)
	assert.Equal(t, exitUnavailable, code)
	assert.Contains(t, stderr, "401")
	server.Close()
	code, _, stderr = farmCommand(t, args(report)...)
	assert.Equal(t, exitUnavailable, code)
	assert.Contains(t, stderr, "is the farm's server running")
}

func TestFarmStoreMistakes(t *testing.T) {
	dir := t.TempDir()
	report, _ := sample(t)
	db, junk := dir+"/farm.db", dir+"/junk"
	good(t, "import", "--store", db, report)
	require.NoError(t, os.WriteFile(junk, []byte("junk\n"), 0o600))
	lines := dir + "/lines"
	require.NoError(t, os.WriteFile(lines, []byte("{\"version\":1,\"node\":{\"name\":\"a\"}}\n{\"version\":9,\"node\":{}}\n"), 0o600))
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no store":            {[]string{"export", "--lab", dir + "/lab.yaml"}, exitIO, "or the store with --store"},
		"no such store":       {[]string{"export", "--store", dir + "/none.db"}, exitIO, "none.db"},
		"format":              {[]string{"export", "--store", db, "--format", "xml"}, exitUsage, "want lines or one of json, junit, openmetrics, text"},
		"night":               {[]string{"export", "--store", db, "--night", "today"}, exitUsage, `"today" is no night`},
		"source":              {[]string{"import", "--store", db, "--source", "network", report}, exitUsage, "want stick or serial"},
		"no file":             {[]string{"import", "--store", db, dir + "/none"}, exitIO, "none"},
		"no report":           {[]string{"import", "--store", db, junk}, exitData, "no report found"},
		"damaged lines":       {[]string{"import", "--store", db, lines}, exitData, "line 2: version 9"},
		"lines to a server":   {[]string{"import", "--server", "http://127.0.0.1:1", "--token-file", junk, lines}, exitUsage, "go to a store"},
		"store and server":    {[]string{"import", "--server", "http://x", "--store", db, report}, exitUsage, "store"},
		"name":                {[]string{"import", "--store", db, "--node", "../x", report}, exitData, `there is no node "../x"`},
		"days":                {[]string{"retain", "--store", db, "--runs", "-1"}, exitUsage, "negative"},
		"one of two is taken": {[]string{"import", "--store", db, junk, report}, exitData, "junk: "},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := farmCommand(t, test.args...)
			assert.Equal(t, test.code, code, stderr)
			assert.Contains(t, stderr, test.want)
		})
	}
}
