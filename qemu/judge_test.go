package qemu

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/report"
)

// goodReport is what an image with nothing wrong reports on the machine of
// testdata/machine.yaml.
func goodReport() []byte {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	w := report.New(report.Clock(func() time.Time { clock = clock.Add(100 * time.Millisecond); return clock }))
	w.Start(report.RunStart{Name: "p2pinit", Version: "0.1.0", DUT: report.DUT{ID: "test"}})
	step := func(id string, status report.Status, body func(*report.Step)) {
		s := w.Step(id, id)
		if body != nil {
			body(s)
		}
		s.End(status)
	}
	finding := func(s *report.Step, id checks.ID, status checks.Status, raw string) {
		s.Finding(checks.Finding{
			ID: id, Status: status, Title: "title of the finding",
			Evidence: []checks.Evidence{{What: "what", Where: "where", Raw: raw}},
		})
	}
	step(stepMount, report.StatusComplete, func(s *report.Step) {
		s.Diagnosis(report.Diagnosis{Verdict: diagImage, Type: report.DiagnosisPass, Message: "120 files as listed"})
	})
	step(stepModules, report.StatusComplete, nil)
	step(stepFacts, report.StatusComplete, func(s *report.Step) {
		s.Extension(report.ExtFacts, map[string]any{"version": 1, "devices": []string{"0000:01:00.0"}})
	})
	step(stepChecks, report.StatusComplete, func(s *report.Step) {
		finding(s, checks.ACSRedirect, checks.Fail, "001d")
		finding(s, checks.IOMMU, checks.Warn, "DMA-FQ")
		finding(s, checks.IOMMU, checks.Pass, "identity")
	})
	step(stepDriver, report.StatusComplete, func(s *report.Step) {
		s.Finding(checks.Finding{
			ID: findingLoad, Status: checks.Skip, Title: "nvidia.ko ran on this kernel and found no GPU",
			Evidence: []checks.Evidence{
				{What: "insertion of nvidia.ko", Where: "finit_module(2)", Raw: "errno 19, no such device"},
				{What: "kernel log", Where: "/dev/kmsg", Raw: "NVRM: No NVIDIA GPU found."},
			},
		})
		s.Diagnosis(report.Diagnosis{Verdict: diagUVM, Type: report.DiagnosisUnknown, Message: "nvidia-uvm.ko needs a bound nvidia.ko"})
	})
	step(stepBandwidth, report.StatusSkip, func(s *report.Step) { s.Log(report.Info, "no GPU to measure") })
	step(stepReport, report.StatusComplete, func(s *report.Step) {
		s.Verdict(report.Verdict{Verdict: checks.VerdictNoGPU, Reason: "no NVIDIA GPU"})
	})
	if err := w.End(report.Outcome(checks.VerdictNoGPU, false)); err != nil {
		panic(err)
	}
	return w.Bytes()
}

func readLines(t *testing.T, name string) []Line {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	return lines(string(data))
}

// lines gives each line a time of arrival: 0.1 s after the one before.
func lines(text string) []Line {
	var out []Line
	for line := range strings.Lines(text) {
		body, whole := strings.CutSuffix(line, "\n")
		out = append(out, Line{At: time.Duration(len(out)+1) * 100 * time.Millisecond, Text: body, Cut: !whole})
	}
	return out
}

func goodRun(t *testing.T) *Run {
	golden.Equal(t, "testdata/report.jsonl", string(goodReport()))
	return &Run{
		Machine: "test",
		Console: readLines(t, "console.log"),
		Report:  readLines(t, "report.jsonl"),
		Exit:    Exit{Kind: PowerOff},
		Took:    4 * time.Second,
	}
}

func testMachine(t *testing.T) *Machine {
	t.Helper()
	m, err := Lookup("testdata/machine.yaml")
	require.NoError(t, err)
	return m
}

func TestJudgeReportOnSerialPort(t *testing.T) {
	run := goodRun(t)
	noise := lines("BdsDxe: loading Boot0001\n\x1b[2J\x1b[01;01H")
	run.Report[0].Text = noise[1].Text + run.Report[0].Text
	run.Report = append(noise[:1], run.Report...)
	assert.Empty(t, failedChecks(Judge(testMachine(t), run)), "what the firmware wrote before is not the report's fault")
	assert.Equal(t, run.Report[1].At.Seconds(), run.Times().Init)
}

// failedChecks lists the ids of the checks that failed.
func failedChecks(checks []Check) []string {
	ids := []string{}
	for _, c := range checks {
		if c.Status == Fail {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func TestJudgeGoodRun(t *testing.T) {
	checks := Judge(testMachine(t), goodRun(t))
	assert.Empty(t, failedChecks(checks))
	for _, c := range checks {
		assert.NotEmpty(t, c.Detail, c.ID)
		switch c.ID {
		case "gpu", "nvidia-uvm", "bandwidth":
			assert.Equal(t, Skip, c.Status, "%s: no GPU is never a pass", c.ID)
		default:
			assert.Equal(t, Pass, c.Status, c.ID)
		}
	}
}

// TestJudgeFaults breaks the good run in one way at a time: each has to be
// seen, by the check that is there for it.
func TestJudgeFaults(t *testing.T) {
	cutReport := func(r *Run, lines int) { r.Report = r.Report[:len(r.Report)-lines] }
	replace := func(of *[]Line, old, with string) func() {
		return func() {
			found := false
			for i := range *of {
				if strings.Contains((*of)[i].Text, old) {
					found = true
					(*of)[i].Text = strings.ReplaceAll((*of)[i].Text, old, with)
				}
			}
			if !found {
				panic("the good run has no " + old)
			}
		}
	}
	everything := []string{"init", "image", "modules", "facts", "checks", "finding P2P-ACS-REDIRECT", "finding P2P-IOMMU",
		"nvidia-insert", "gpu", "nvidia-uvm", "bandwidth", "verdict", "report"}
	tests := []struct {
		name   string
		fault  func(r *Run)
		want   []string // ids of failed checks
		detail string   // in the detail of the first of them
	}{
		{"hang before init", func(r *Run) {
			r.Report, r.Exit = nil, Exit{Deadline, "killed after 3m0s"}
		}, append(everything, "power-off"), "no report found"},
		{"hang in the driver stage", func(r *Run) {
			cutReport(r, 11)
			r.Exit = Exit{Deadline, "killed after 3m0s"}
		}, []string{"nvidia-insert", "gpu", "nvidia-uvm", "bandwidth", "verdict", "report", "power-off"}, "not reported"},
		{"panic", func(r *Run) {
			r.Console = append(r.Console, Line{At: time.Second, Text: "[    3.1] Kernel panic - not syncing: Attempted to kill init!"})
			cutReport(r, 2)
			r.Exit = Exit{Reset, "the guest reset the machine"}
		}, []string{"console", "report", "power-off"}, "after 1.0 s: [    3.1] Kernel panic"},
		{"initramfs cut by want of memory", func(r *Run) {
			r.Console = append(r.Console, Line{Text: "[    1.0] Initramfs unpacking failed: write error"})
		}, []string{"console"}, "unpacking failed"},
		{"oops in a module", func(r *Run) {
			r.Console = append(r.Console, Line{Text: "[    1.0] Oops: 0000 [#1] PREEMPT SMP NOPTI"})
		}, []string{"console"}, "Oops"},
		{"reset by the watchdog", func(r *Run) { r.Exit = Exit{Reset, "the guest reset the machine"} }, []string{"power-off"}, "reset"},
		{"last line cut", func(r *Run) {
			last := &r.Report[len(r.Report)-1]
			last.Text, last.Cut = last.Text[:20], true
		}, []string{"report"}, "cut short"},
		{"line lost", func(r *Run) { r.Report = append(r.Report[:6:6], r.Report[7:]...) }, []string{"modules", "report"}, ""},
		{"kernel message in the report", func(r *Run) { r.Report[4].Text = "[ 1.0] noise " + r.Report[4].Text }, []string{"report"}, "not a JSON object"},
		{"silent console", func(r *Run) { r.Console = nil }, []string{"kernel", "console", "nvidia-insert", "gpu"}, "no kernel on the console"},
		{"emulator refuses", func(r *Run) {
			*r = Run{Stderr: "warning\nqemu: no bus rp9", Exit: Exit{Failed, "exit status 1"}}
		}, append(append([]string{"kernel", "console"}, everything...), "power-off"), "the emulator says: qemu: no bus rp9"},
		{"image not whole", func(r *Run) {
			replace(&r.Report, `"type":"PASS","message":"120`, `"type":"FAIL","message":"2 of 120`)()
		},
			[]string{"image"}, "2 of 120 files"},
		{"image not verified", func(r *Run) { replace(&r.Report, diagImage, "SOMETHING")() }, []string{"image"}, "no diagnosis " + diagImage},
		{"a stage fails", func(r *Run) {
			replace(&r.Report, `"testStepId":"checks","testStepEnd":{"status":"COMPLETE"}`, `"testStepId":"checks","testStepEnd":{"status":"ERROR"}`)()
		}, []string{"checks"}, "ended as ERROR"},
		{"no facts", func(r *Run) { replace(&r.Report, `"name":"facts","content"`, `"name":"fax","content"`)() }, []string{"facts"}, "no facts"},
		{"facts without version", func(r *Run) { replace(&r.Report, `"version":1`, `"version":0`)() }, []string{"facts"}, "no version"},
		{"finding missing", func(r *Run) { replace(&r.Report, "P2P-ACS-REDIRECT", "P2P-OTHER")() }, []string{"finding P2P-ACS-REDIRECT"}, "not reported; expected fail with 001d"},
		{"finding turned round", func(r *Run) { replace(&r.Report, `"status":"fail"`, `"status":"pass"`)() }, []string{"finding P2P-ACS-REDIRECT"}, "reported as pass"},
		{"evidence of another state", func(r *Run) { replace(&r.Report, "DMA-FQ", "identity")() }, []string{"finding P2P-IOMMU"}, "without DMA-FQ"},
		{"driver not recognised", func(r *Run) { replace(&r.Report, findingLoad, "P2P-OTHER")() }, []string{"nvidia-insert", "gpu"}, "not reported"},
		{"driver never ran", func(r *Run) {
			replace(&r.Console, "NVRM: No NVIDIA GPU found", "nvidia: Unknown symbol drm_gem_object_free (err -2)")()
		},
			[]string{"nvidia-insert", "gpu"}, "the kernel never printed"},
		{"driver claims a pass", func(r *Run) {
			replace(&r.Report, `"id":"P2P-DRIVER-LOAD","status":"skip"`, `"id":"P2P-DRIVER-LOAD","status":"pass"`)()
		}, []string{"nvidia-insert", "gpu"}, "reported as pass"},
		{"driver stage broke", func(r *Run) {
			replace(&r.Report, `"diagnosis":{"verdict":"UVM-NOT-INSERTED","type":"UNKNOWN","message":"nvidia-uvm.ko needs a bound nvidia.ko"}`,
				`"error":{"symptom":"failed","message":"the driver's module is damaged"}`)()
		}, []string{"nvidia-insert", "gpu", "nvidia-uvm"}, "stage driver: failed: the driver's module is damaged"},
		{"another error of insertion", func(r *Run) { replace(&r.Report, "errno 19, no such device", "errno 2, no such file")() },
			[]string{"nvidia-insert", "gpu"}, "without errno 19"},
		{"bandwidth without a GPU", func(r *Run) {
			replace(&r.Report, `"testStepId":"bandwidth","testStepEnd":{"status":"SKIP"}`, `"testStepId":"bandwidth","testStepEnd":{"status":"COMPLETE"}`)()
		}, []string{"bandwidth"}, "has to be skipped"},
		{"wrong verdict", func(r *Run) { replace(&r.Report, `"P2P-NO-GPU"`, `"P2P-READY"`)() }, []string{"verdict"}, "P2P-READY"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := goodRun(t)
			tt.fault(run)
			checks := Judge(testMachine(t), run)
			assert.ElementsMatch(t, tt.want, failedChecks(checks))
			for _, c := range checks {
				if c.Status == Fail {
					assert.Contains(t, c.Detail, tt.detail, c.ID)
					break
				}
			}
		})
	}
}

// TestJudgeExactly holds a run to expectations that say all that is wrong.
func TestJudgeExactly(t *testing.T) {
	exact := func(e Expect) *Machine { return &Machine{Name: "test", Expect: e} }
	failures := func(e Expect) []string {
		var out []string
		for _, c := range Judge(exact(e), goodRun(t)) {
			if c.Status == Fail {
				out = append(out, c.ID+": "+c.Detail)
			}
		}
		return out
	}
	right := Trouble{Fail: []checks.ID{checks.ACSRedirect}, Warn: []checks.ID{checks.IOMMU}}
	assert.Empty(t, failures(Expect{Trouble: &right}))
	assert.Equal(t, []string{"trouble: expected and missing: none; not expected: fail P2P-ACS-REDIRECT, warn P2P-IOMMU"}, failures(Expect{Trouble: &Trouble{}}))
	more := right
	more.Unknown = []checks.ID{checks.ReBAR}
	assert.Equal(t, []string{"trouble: expected and missing: unknown P2P-REBAR; not expected: none"}, failures(Expect{Trouble: &more}))

	assert.Equal(t, []string{"paths: predicted: none; expected: 535.1: no path"}, failures(Expect{Paths: []string{"535.1: no path"}}))
	assert.Equal(t, []string{"bars: none; expected 32G each"}, failures(Expect{BAR: 32 * GiB}))
	assert.Equal(t, []string{"verdict: P2P-NO-GPU (no NVIDIA GPU); expected it judged as if it were one: P2P-READY"}, failures(Expect{AsIf: checks.VerdictReady}))
}

// TestJudgeEmulated judges what the driver did with emulated GPUs.
func TestJudgeEmulated(t *testing.T) {
	m := &Machine{
		PCIe:   []Device{{Kind: GPU}, {Kind: GPU}},
		Expect: Expect{BAR: 32 * GiB, Paths: []string{"535.1: BAR1 (1 GPU pair)"}},
	}
	run := func(path, log string, bars ...Size) *Run {
		w := report.New()
		w.Start(report.RunStart{Name: "p2pinit"})
		s := w.Step(stepChecks, stepChecks)
		s.Finding(checks.Finding{ID: checks.PathPrediction, Status: checks.Warn, Title: "stand-in device: driver " + path})
		s.End(report.StatusComplete)
		s = w.Step(stepDriver, stepDriver)
		s.Finding(checks.Finding{ID: findingLoad, Status: checks.Pass, Title: "nvidia.ko is loaded"})
		s.Finding(checks.NotStarted([]string{log}))
		s.End(report.StatusComplete)
		s = w.Step(stepBandwidth, stepBandwidth)
		s.End(report.StatusSkip)
		require.NoError(t, w.End(report.Outcome(checks.VerdictNoGPU, false)))
		return &Run{Report: lines(string(w.Bytes())), Console: lines(noGPU), BARs: bars}
	}
	outcomes := func(r *Run) map[string]Status {
		out := map[string]Status{}
		for _, c := range Judge(m, r) {
			switch c.ID {
			case "paths", "bars", "nvidia-insert", "gpu", "nvidia-uvm", "bandwidth":
				out[c.ID] = c.Status
			}
		}
		return out
	}
	const failed = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x25:1679)"
	good := map[string]Status{"paths": Pass, "bars": Pass, "nvidia-insert": Pass, "gpu": Skip, "nvidia-uvm": Pass, "bandwidth": Skip}
	with := func(id string, s Status) map[string]Status {
		m := maps.Clone(good)
		m[id] = s
		return m
	}
	assert.Equal(t, good, outcomes(run("535.1: BAR1 (1 GPU pair)", failed, 32*GiB, 32*GiB)))
	assert.Equal(t, with("bars", Fail), outcomes(run("535.1: BAR1 (1 GPU pair)", failed, 32*GiB, 256*MiB)))
	assert.Equal(t, with("paths", Fail), outcomes(run("535.1: no path (1 GPU pair)", failed, 32*GiB, 32*GiB)))
	assert.Equal(t, with("paths", Skip), outcomes(run("580.1: no path (1 GPU pair)", failed, 32*GiB, 32*GiB)), "of another driver")
	assert.Equal(t, with("gpu", Fail), outcomes(run("535.1: BAR1 (1 GPU pair)", "NVRM: loaded", 32*GiB, 32*GiB)), "nobody says that they can't be started")
}

func TestJudgeLeftOut(t *testing.T) {
	w := report.New()
	w.Start(report.RunStart{Name: "p2pinit"})
	step := w.Step(stepDriver, stepDriver)
	step.Log(report.Info, "p2p.plan=check")
	step.End(report.StatusSkip)
	require.NoError(t, w.End(report.Outcome(checks.VerdictNoGPU, false)))
	seen := 0
	for _, c := range Judge(&Machine{}, &Run{Report: lines(string(w.Bytes()))}) {
		switch c.ID {
		case "nvidia-insert", "gpu", "nvidia-uvm":
			seen++
			assert.Equal(t, Check{c.ID, Skip, "left out by p2p.plan=check"}, c)
		}
	}
	assert.Equal(t, 3, seen)
}

func TestTimes(t *testing.T) {
	run := &Run{
		Took: 9 * time.Second,
		Console: []Line{
			{At: time.Second, Text: "SeaBIOS"},
			{At: 1500 * time.Millisecond, Text: "[    0.000000] Linux version"}, // held back until there was a console
			{At: 1600 * time.Millisecond, Text: "[    0.600000] next"},
			{At: 4 * time.Second, Text: "[    2.000000] slow to arrive"},
		},
		Report: []Line{
			{At: 3 * time.Second, Text: `{"schemaVersion":{}}`},
			{At: 5 * time.Second, Text: `{"testStepArtifact":{"extension":{"name":"finding"}}}`},
			{At: 6 * time.Second, Text: `{"testStepArtifact":{"extension":{"name":"finding"}}}`},
			{At: 7 * time.Second, Text: `{"testRunArtifact":{"testRunEnd":{}}}`},
		},
	}
	got := run.Times()
	assert.InDelta(t, 1.0, got.Kernel, 1e-9)
	got.Kernel = 0
	assert.Equal(t, Times{Init: 3, FirstFinding: 5, ReportEnd: 7, End: 9}, got)
	assert.Equal(t, Times{}, (&Run{}).Times())
}

func TestResultText(t *testing.T) {
	run := goodRun(t)
	result := func(checks []Check) *Result {
		return &Result{Version: 1, Machine: "test", Emulator: Version{7, 2, 22}, Accel: TCG, AccelReason: "asked for",
			Exit: run.Exit, Times: Times{Kernel: 1, Init: 3, FirstFinding: 3.5, ReportEnd: 4, End: 4.25}, Checks: checks}
	}
	good := result(Judge(testMachine(t), run))
	assert.True(t, good.OK())
	assert.Equal(t, 3, good.Count(Skip))
	run.Report = run.Report[:12]
	bad := result(Judge(testMachine(t), run))
	assert.False(t, bad.OK())

	var text, data bytes.Buffer
	require.NoError(t, good.WriteText(&text))
	require.NoError(t, bad.WriteText(&text))
	golden.Equal(t, "testdata/result.txt", text.String())

	require.NoError(t, bad.WriteJSON(&data))
	var again Result
	require.NoError(t, json.Unmarshal(data.Bytes(), &again))
	assert.Equal(t, bad.Checks, again.Checks)
	assert.Equal(t, bad.Emulator, again.Emulator)
}

// FuzzJudge feeds a guest's arbitrary output to the judgement.
func FuzzJudge(f *testing.F) {
	f.Add([]byte("[    0.000000] Linux version 6.12.117+deb12-amd64 (x)\n"), goodReport())
	f.Add([]byte(""), []byte(`{"testStepArtifact":{"testStepId":"facts","extension":{"name":"finding","content":{}}},"sequenceNumber":0,"timestamp":"2026-01-02T03:04:05Z"}`))
	m, err := Lookup("testdata/machine.yaml")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, console, rep []byte) {
		run := &Run{Console: lines(string(console)), Report: lines(string(rep)), Exit: Exit{Kind: PowerOff}}
		run.Times()
		for _, c := range Judge(m, run) {
			require.NotEmpty(t, c.Detail, c.ID)
		}
	})
}
