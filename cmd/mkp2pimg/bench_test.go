package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// measured is a result of two GPUs whose pairs came to a verdict.
func measured(v measure.Verdict) measure.Result {
	r := measure.Result{Version: measure.Version, Verdict: v, Reason: "because", Devices: []measure.Device{}}
	for _, p := range [][2]string{{"0000:01:00.0", "0000:02:00.0"}, {"0000:02:00.0", "0000:01:00.0"}} {
		m := measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE, Unit: measure.GBps, Samples: []float64{26.3}}
		m.Median = 26.3
		r.Pairs = append(r.Pairs, measure.Pair{Initiator: p[0], Peer: p[1], Verdict: v, Reason: "because", Measurements: []measure.Measurement{m}, Checks: []measure.Check{}})
	}
	return r
}

// fakeProgram is a measuring program that prints this result and keeps its
// arguments and its input in a folder.
func fakeProgram(t *testing.T, r measure.Result, exit int) (file, dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "result"), text, 0o644))
	file = filepath.Join(dir, "p2pbw")
	script := fmt.Sprintf("#!/bin/sh\ncd %s\ncat >ceilings\necho \"$@\" >arguments\necho measuring >&2\ncat result\nexit %d\n", dir, exit)
	require.NoError(t, os.WriteFile(file, []byte(script), 0o755))
	return file, dir
}

// answered is the answer about a machine of the library, as a file.
func answered(t *testing.T, kind string, v measure.Verdict) (file string, a *benchAnswer) {
	t.Helper()
	root, _ := machineOf(t, kind)
	f, err := gathering{root: root, passive: true}.facts(t.Context())
	require.NoError(t, err)
	r := measured(v)
	a = judge(f, &r)
	text, err := json.Marshal(a)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "bench.json")
	require.NoError(t, os.WriteFile(file, text, 0o644))
	return file, a
}

// TestBenchVerdict has the exit code of each verdict, in all forms of the answer.
func TestBenchVerdict(t *testing.T) {
	for v, code := range map[measure.Verdict]int{
		measure.OK:   exitFailed, // well, and the machine has findings that warn
		measure.Slow: exitFailed, measure.WrongData: exitBlocked, measure.Hang: exitBlocked,
		measure.Unusable: exitBlocked, measure.Inconclusive: exitUnknown,
	} {
		t.Run(string(v), func(t *testing.T) {
			file, a := answered(t, "good-2x4090", v)
			if v == measure.OK && a.Verdict == checks.VerdictReady {
				code = exitOK
			}
			got, stdout, stderr := command(t, "bench", "--from", file)
			assert.Equal(t, code, got, "%s: %s", a.Verdict, a.Reason)
			assert.Empty(t, stderr)
			words := strings.ReplaceAll(string(a.Verdict), "-", " ")
			assert.True(t, strings.HasPrefix(stdout, words+": "), stdout)
			assert.Contains(t, stdout, "write, CE, GB/s")

			got, doc, _ := command(t, "bench", "--from", file, "--json")
			assert.Equal(t, code, got)
			var again benchAnswer
			require.NoError(t, json.Unmarshal([]byte(doc), &again))
			assert.Equal(t, *a, again)
		})
	}
}

func TestBenchOutputs(t *testing.T) {
	file, _ := answered(t, "good-2x4090", measure.OK)
	dir := t.TempDir()
	_, stdout, _ := command(t, "bench", "--from", file, "--html", dir+"/x.html", "--csv", "-")
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	require.NoError(t, err)
	assert.Len(t, rows, 3)
	page, err := os.ReadFile(dir + "/x.html")
	require.NoError(t, err)
	assert.Contains(t, string(page), "write by the copy engine, GB/s")
	code, _, stderr := command(t, "bench", "--from", file, "--json", "--html", "-")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "go to standard output")
	code, _, stderr = command(t, "bench", "--from", file, "--html", dir+"/no/such")
	assert.Equal(t, exitIO, code, stderr)
}

// TestBenchOfReport reads the report of an image that compared two drivers.
func TestBenchOfReport(t *testing.T) {
	w := report.New()
	w.Start(report.RunStart{Name: "mkp2pimg", Version: "1", DUT: report.DUT{ID: "node7", Software: []report.SoftwareInfo{{ID: "kernel", Name: "linux", Version: "6.12"}, {ID: "driver", Name: "nvidia", Version: "580.142", Revision: "ab"}}}})
	r := measured(measure.OK)
	s := w.Step("bandwidth", "measure")
	s.Extension(report.ExtBandwidth, r)
	s.End(report.StatusComplete)
	s = w.Step("compare", "compare")
	s.Extension(report.ExtComparison, arms.Compare([]arms.Outcome{{Arm: arms.Arm{Set: arms.Stock}, Skipped: "no"}, {Arm: arms.Arm{Set: arms.P2P}, Result: &r}}, nil))
	s.Verdict(report.Verdict{Verdict: checks.VerdictReady, Reason: "well"})
	s.End(report.StatusComplete)
	file := filepath.Join(t.TempDir(), "report.jsonl")
	require.NoError(t, os.WriteFile(file, w.Bytes(), 0o644))
	code, stdout, stderr := command(t, "bench", "--from", file)
	assert.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "A/B in one boot")
	assert.Contains(t, stdout, "node7")
	assert.Contains(t, stdout, "nvidia 580.142 ab")
}

func TestBenchMeasures(t *testing.T) {
	program, dir := fakeProgram(t, measured(measure.WrongData), 2)
	code, stdout, stderr := command(t, "bench", "--p2pbw", program, "--pair", "0000:01:00.0,0000:02:00.0", "--json", "--", "--sweep", "4KiB")
	assert.Contains(t, []int{exitBlocked, exitUnknown}, code, "unknown where this machine has no two GPUs: %s", stderr)
	assert.Contains(t, stderr, "measuring")
	var a benchAnswer
	require.NoError(t, json.Unmarshal([]byte(stdout), &a))
	assert.Equal(t, measure.WrongData, a.Result.Verdict)
	arguments, err := os.ReadFile(filepath.Join(dir, "arguments"))
	require.NoError(t, err)
	assert.Equal(t, "--json --ceilings - --profile quick --sweep 4KiB --pair 0000:01:00.0,0000:02:00.0\n", string(arguments))
	var ceilings []measure.Ceiling
	text, err := os.ReadFile(filepath.Join(dir, "ceilings"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &ceilings))
}

func TestBenchMistakes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
		return file
	}
	usage, dead := write("usage", "#!/bin/sh\necho 'p2pbw: --sweep x' >&2\nexit 64\n"), write("dead", "#!/bin/sh\nkill -9 $$\n")
	for name, tt := range map[string]struct {
		args []string
		code int
		want string
	}{
		"argument":        {[]string{"x"}, exitUsage, `unexpected argument "x"`},
		"from and pair":   {[]string{"--from", "x", "--pair", "a,b"}, exitUsage, "--from measures nothing"},
		"no such file":    {[]string{"--from", dir + "/none"}, exitIO, "no such file"},
		"no such program": {[]string{"--p2pbw", dir + "/none"}, exitIO, "the measuring program"},
		"bad flag of it":  {[]string{"--p2pbw", usage, "--", "--sweep", "x"}, exitUsage, "p2pbw: --sweep x"},
		"it dies":         {[]string{"--p2pbw", dead}, exitFailed, "p2pbw gave no result: signal: killed"},
		"no result":       {[]string{"--from", write("x.json", "{}")}, exitData, "neither a result"},
		"other version":   {[]string{"--from", write("y.json", `{"version":9,"findings":[]}`)}, exitData, "version 9"},
		"old measurement": {[]string{"--from", write("z.json", `{"version":1,"findings":[],"result":{"version":7}}`)}, exitData, "measurement result of version 7"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := command(t, append([]string{"bench"}, tt.args...)...)
			assert.Equal(t, tt.code, code, stderr)
			assert.Empty(t, stdout)
			assert.Contains(t, stderr, tt.want)
		})
	}
}

func FuzzBenchAnswer(f *testing.F) {
	f.Add([]byte(`{"version":1,"findings":[],"result":{"version":2,"pairs":[{"initiator":"a","peer":"b","verdict":"ok"}]},"comparison":{"arms":[{"arm":"p2p"}],"rows":[{"cells":[]}]}}`))
	f.Add([]byte("{\"schemaVersion\":{\"major\":2,\"minor\":0},\"sequenceNumber\":0,\"timestamp\":\"2026-01-01T00:00:00Z\"}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		a, err := parseAnswer(text)
		if err != nil {
			return
		}
		dir := t.TempDir()
		o := benchOptions{csv: dir + "/csv", html: dir + "/html"}
		assert.NoError(t, o.write(&strings.Builder{}, a, false))
	})
}

func TestProgramIsUnpackedAndRemoved(t *testing.T) {
	file, remove, err := unpackProgram([]byte("#!/bin/sh\n"))
	require.NoError(t, err)
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	require.NoError(t, remove())
	assert.NoFileExists(t, file)
}

func TestReadUpTo(t *testing.T) {
	text, err := readUpTo(strings.NewReader("four"), 4)
	require.NoError(t, err)
	assert.Equal(t, "four", string(text))
	_, err = readUpTo(strings.NewReader("fives"), 4)
	assert.ErrorIs(t, err, errTooLong)
}
