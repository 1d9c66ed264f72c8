package report

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
)

var acs = checks.Finding{
	ID: checks.ACSRedirect, Status: checks.Fail,
	Title: "ACS sends traffic between 0000:03:00.0 and 0000:04:00.0 up to the root port",
	Evidence: []checks.Evidence{
		{What: "ACS control of 0000:02:00.0", Where: "config 0x14e", Raw: "0x001d, SV RR CR UF"},
		{What: "ACS control of 0000:02:01.0", Where: "config 0x14e", Raw: "0x001d, SV RR CR UF"},
		{What: "IOMMU group type", Where: "/sys/kernel/iommu_groups/14/type", Raw: "DMA-FQ"},
		{What: "a", Raw: "1"}, {What: "b", Raw: "2"}, {What: "c", Raw: "3"},
	},
	Meaning: "Requests between the two GPUs leave the switch, cross its uplink twice and are translated by the IOMMU, which drops those it has no mapping for.",
	Fix: "Set \"ACS Enable\" to Disabled in the firmware setup (AMD CBS, NBIO Common Options).\n" +
		"Or boot with pci=config_acs=xxxx000@0000:02:00.0;xxxx000@0000:02:01.0 (kernel 6.11 or newer).",
	Pairs: [][2]string{{"0000:03:00.0", "0000:04:00.0"}},
}

var rebarWarn = checks.Finding{
	ID: checks.ReBAR, Status: checks.Warn, Title: "BAR1 of 0000:03:00.0 is 256 MiB of 32 GiB",
	Meaning: "A peer reaches only a window of the memory.", Fix: "Enable \"Re-Size BAR Support\" in the firmware setup.",
	Devices: []string{"0000:03:00.0"},
}

var passed = []checks.Finding{
	{ID: checks.GPUPresent, Status: checks.Pass, Title: "2 GPUs on the bus"},
	{ID: checks.Above4G, Status: checks.Pass, Title: "BAR1 is above 4 GiB"},
	{ID: checks.Above4G, Status: checks.Pass, Title: "BAR1 is above 4 GiB"},
}

// finished returns a run with the given findings and verdict, read back from
// its report.
func finished(t *testing.T, findings []checks.Finding, v Verdict, more func(*Writer)) *Run {
	t.Helper()
	w := New(Clock(tick()))
	w.Start(RunStart{Name: "mkp2pimg", Version: "0.1", DUT: DUT{ID: "node7", Name: "ASUS ESC8000A-E12",
		Software: []SoftwareInfo{{ID: "kernel", Name: "linux", Version: "6.12.117"}, {ID: "driver", Name: "nvidia", Version: "535.261.03"}}}})
	s := w.Step("checks", "judge the facts")
	for _, f := range findings {
		s.Finding(f)
	}
	s.End(StatusComplete)
	if more != nil {
		more(w)
	}
	s = w.Step("report", "deliver the report")
	s.Verdict(v)
	s.End(StatusComplete)
	require.NoError(t, w.End(Outcome(v.Verdict, false)))
	require.Empty(t, Check(w.Bytes()))
	run, err := Parse(bytes.NewReader(w.Bytes()))
	require.NoError(t, err)
	assert.Equal(t, findings, run.Findings)
	return run
}

func measured(w *Writer) {
	s := w.Step("bandwidth", "measure")
	r := measure.Result{Version: measure.Version}
	for i := range 3 {
		for j := range 3 {
			if i != j {
				m := measure.Measurement{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE, Unit: measure.GBps}
				m.Median = 26.25 - float64(i+j)/4
				r.Pairs = append(r.Pairs, measure.Pair{Initiator: fmt.Sprintf("0000:0%d:00.0", i+3), Peer: fmt.Sprintf("0000:0%d:00.0", j+3),
					Verdict: measure.OK, Measurements: []measure.Measurement{m}})
			}
		}
	}
	s.Extension(ExtBandwidth, r)
	s.End(StatusComplete)
	s = w.Step("bandwidth-stock", "measure another arm")
	r.Pairs = nil
	s.Extension(ExtBandwidth, r)
	s.End(StatusComplete)
	s = w.Step("compare", "compare")
	s.Extension(ExtComparison, arms.Compare([]arms.Outcome{{Arm: arms.Arm{Set: arms.Stock}, Skipped: "no"}, {Arm: arms.Arm{Set: arms.P2P}, Result: &r}}, nil))
	s.End(StatusComplete)
}

func broke(w *Writer) {
	s := w.Step("driver", "load the driver")
	s.Error("deadline", "did not end within 1m0s; it was inserting nvidia.ko. The run goes on without it.")
	s.End(StatusError)
	s = w.Step("bandwidth", "measure")
	s.Log(Info, "needs stage driver, which broke")
	s.End(StatusSkip)
}

func TestScreen(t *testing.T) {
	tests := map[string]struct {
		findings []checks.Finding
		verdict  Verdict
		more     func(*Writer)
		opt      ScreenOptions
	}{
		"blocked": {append([]checks.Finding{passed[0], rebarWarn, acs}, passed[1:]...),
			Verdict{checks.VerdictBlocked, "P2P-ACS-REDIRECT: ACS …"}, nil,
			ScreenOptions{Notes: []string{"/run/mkp2pimg/report.jsonl", "not sent to http://lab/reports/node7: no link on any port"}}},
		"blocked-color":  {[]checks.Finding{acs}, Verdict{checks.VerdictBlocked, ""}, nil, ScreenOptions{Color: true, Evidence: 1}},
		"blocked-narrow": {[]checks.Finding{acs}, Verdict{checks.VerdictBlocked, ""}, nil, ScreenOptions{Width: 40}},
		"ready":          {passed, Verdict{checks.VerdictReady, "every check passed"}, measured, ScreenOptions{}},
		"broken": {append([]checks.Finding{{ID: checks.IOMMU, Status: checks.Unknown, Title: "IOMMU groups could not be read"},
			{ID: checks.ReBAR, Status: checks.Unknown, Title: "no capability"}}, passed...),
			Verdict{checks.VerdictUnknown, "stage driver: did not end within 1m0s; it was inserting nvidia.ko"}, broke, ScreenOptions{}},
		"unknown": {[]checks.Finding{{ID: checks.IOMMU, Status: checks.Unknown, Title: "IOMMU groups could not be read"},
			{ID: checks.ReBAR, Status: checks.Unknown, Title: "no capability"}},
			Verdict{checks.VerdictUnknown, "P2P-IOMMU: …"}, nil, ScreenOptions{}},
		"no-gpu": {[]checks.Finding{{ID: checks.GPUPresent, Status: checks.Skip, Title: "no NVIDIA GPU among 12 PCI functions"}},
			Verdict{checks.VerdictNoGPU, "no NVIDIA GPU among 12 PCI functions"}, nil, ScreenOptions{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			require.NoError(t, Screen(&out, finished(t, tt.findings, tt.verdict, tt.more), tt.opt))
			golden.Equal(t, "testdata/screen-"+name+".txt", out.Bytes())
		})
	}
}

func TestScreenOfAnUnfinishedRun(t *testing.T) {
	w := New()
	w.Step("facts", "gather facts")
	run, err := Parse(bytes.NewReader(w.Bytes()))
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, Screen(&out, run, ScreenOptions{}))
	assert.Equal(t, "P2P UNKNOWN: the run ended before it reached a verdict\n", out.String())
	boom := errors.New("boom")
	require.ErrorIs(t, Screen(failing{write: boom}, run, ScreenOptions{}), boom)
}

func TestWrap(t *testing.T) {
	tests := map[string]struct {
		in    string
		width int
		want  []string
	}{
		"empty":         {"", 10, []string{""}},
		"exact":         {"12345 7890", 10, []string{"12345 7890"}},
		"one over":      {"12345 78901", 10, []string{"12345", "78901"}},
		"long word":     {"see /sys/kernel/iommu_groups/14/type now", 10, []string{"see", "/sys/kernel/iommu_groups/14/type", "now"}},
		"newline kept":  {"a\nb c", 10, []string{"a", "b c"}},
		"no room":       {"a b", -3, []string{"a", "b"}},
		"runes counted": {"éé ü", 4, []string{"éé ü"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, wrap(tt.in, tt.width)) })
	}
}

func TestOutcome(t *testing.T) {
	for _, v := range []checks.Verdict{checks.VerdictReady, checks.VerdictDegraded, checks.VerdictBlocked,
		checks.VerdictNoGPU, checks.VerdictUnknown, ""} {
		for _, broken := range []bool{false, true} {
			s, r := Outcome(v, broken)
			assert.True(t, Legal(s, r))
			assert.Equal(t, v == checks.VerdictReady && !broken, r == ResultPass, "%s, broken %v", v, broken)
		}
	}
	s, _ := Outcome(checks.VerdictNoGPU, false)
	assert.Equal(t, StatusSkip, s)
	_, r := Outcome(checks.VerdictBlocked, true)
	assert.Equal(t, ResultFail, r)
}

func TestFindingDiagnosis(t *testing.T) {
	for status, want := range map[checks.Status]DiagnosisType{
		checks.Pass: DiagnosisPass, checks.Warn: DiagnosisFail, checks.Fail: DiagnosisFail, checks.Unknown: DiagnosisUnknown, checks.Skip: "",
	} {
		w := New()
		w.Step("checks", "c").Finding(checks.Finding{ID: checks.IOMMU, Status: status, Title: "t", Devices: []string{"0000:01:00.0"}})
		text := string(w.Bytes())
		if want == "" {
			assert.NotContains(t, text, `"diagnosis"`)
			continue
		}
		assert.Contains(t, text, fmt.Sprintf(`"diagnosis":{"verdict":"P2P-IOMMU","type":%q,"message":"t","hardwareInfoId":"0000:01:00.0"}`, want))
		assert.Equal(t, 1, strings.Count(text, `"extension"`))
	}
}
