package page

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

func verdictOf(s string) checks.Verdict { return checks.Verdict(s) }

func TestHeats(t *testing.T) {
	const a, b, c = "0000:01:00.0", "0000:02:00.0", "0000:41:00.0"
	pair := func(from, to, direction, method string, gbps, ceiling, ns float64, v measure.Verdict) farm.Pair {
		return farm.Pair{Initiator: from, Peer: to, Direction: direction, Method: method, GBps: gbps, Ceiling: ceiling, LatencyNS: ns, Verdict: string(v)}
	}
	all := heats([]farm.Pair{
		pair(a, b, "read", "sm", 20, 25, 1000, measure.OK), pair(b, a, "read", "sm", 10, 0, 2000, measure.Slow), pair(a, c, "read", "sm", 25, 25, 1500, measure.WrongData),
		pair(a, b, "write", "ce", 25.04, 25, 0, measure.OK), pair(b, a, "write", "ce", 9.994, 25, 0, measure.Slow), pair(a, c, "write", "ce", 25, 25, 0, measure.WrongData),
		pair(c, a, "write", "ce", 0, 25, 0, measure.Hang), pair(b, c, "write", "ce", 0, 25, 0, measure.Unusable), pair(c, b, "write", "ce", 0, 25, 0, measure.Inconclusive),
	})
	var text strings.Builder
	for _, m := range all {
		fmt.Fprintf(&text, "%s, %s (%s)\n", m.Name, m.Unit, m.Long)
		for i, row := range m.Rows {
			fmt.Fprintf(&text, "  %s", m.GPUs[i])
			for _, cell := range row {
				fmt.Fprintf(&text, " [%s%s %s]", cell.Text, cell.Mark, cell.Class)
			}
			text.WriteString("\n")
		}
	}
	assert.Equal(t, `write, ce, GB/s (written by the copy engine)
  0000:01:00.0 [· self] [25.0 h10] [WRONG bad]
  0000:02:00.0 [9.99▼ h3] [· self] [none bad]
  0000:41:00.0 [HANG bad] [? open] [· self]
read, sm, GB/s (read by loads of a kernel)
  0000:01:00.0 [· self] [20.0 h8] [WRONG bad]
  0000:02:00.0 [10.0▼ h4] [· self] [– ]
  0000:41:00.0 [– ] [– ] [· self]
latency, ns (dependent load, there and back)
  0000:01:00.0 [· self] [1000 h10] [WRONG bad]
  0000:02:00.0 [2000▼ h5] [· self] [– ]
  0000:41:00.0 [– ] [– ] [· self]
`, text.String())
	assert.Equal(t, a+" → "+b+": ok, 100 % of the ceiling of 25.0 GB/s", all[0].Rows[0][1].Hint)

	assert.Nil(t, heats(nil))
	var crowd []farm.Pair
	for i := range maxGPUs {
		crowd = append(crowd, pair(fmt.Sprint("g", i), "other", "write", "ce", 1, 1, 0, measure.OK))
	}
	assert.Nil(t, heats(crowd), "more GPUs than a machine has")
}

func TestPlot(t *testing.T) {
	var runs []farm.Run
	for i, gbps := range []float64{26, 26.1, 25.9, math.NaN(), 26, 13, 13.2} {
		verdict := measure.OK
		if math.IsNaN(gbps) {
			verdict, gbps = measure.Hang, 0
		}
		p := farm.Pair{Initiator: "a<b", Peer: "c", Direction: "write", Method: "ce", GBps: gbps, Ceiling: 28.8, LatencyNS: 1400, Verdict: string(verdict)}
		r := farm.Run{ID: fmt.Sprintf("run-%d", i), Night: fmt.Sprintf("2026-01-%02d", 3+2*i), Summary: &farm.Summary{Pairs: []farm.Pair{p}}}
		runs = append([]farm.Run{r}, runs...)
	}
	runs = append(runs, farm.Run{Night: "no date", Summary: &farm.Summary{}}, farm.Run{Night: "2026-01-01"})
	pair := runs[0].Summary.Pairs[0]
	base := []farm.Baseline{{Key: string(judge.Bandwidth(pair)), Unit: "GB/s", Median: 26, MAD: 0.1, Runs: 10}}
	all := allSeries(runs, base, ways[0])
	require.Len(t, all, 1)
	all[0].Name = "GPU 0 → <GPU 1>"
	assert.True(t, all[0].IsOut)
	golden.Equal(t, "testdata/plot.svg", string(all[0].SVG())+"\n")

	latency := allSeries(runs, nil, way{})
	require.Len(t, latency, 1)
	assert.Equal(t, ", latency, 7 nights: last 1400 ns", latency[0].Words())
	assert.Empty(t, allSeries(runs, nil, ways[1]))
	for _, v := range []float64{0, 1e-300, 1e300, math.MaxFloat64, -1, math.Inf(1), math.Inf(-1), math.NaN()} {
		p := pair
		p.GBps, p.Ceiling = v, v
		for _, s := range allSeries([]farm.Run{{Night: tonight, Summary: &farm.Summary{Pairs: []farm.Pair{p}}}}, base, ways[0]) {
			assert.NotRegexp(t, "NaN|Inf", s.SVG(), v)
		}
	}
}

func TestSparkline(t *testing.T) {
	nan := math.NaN()
	assert.Empty(t, sparkline(nil))
	assert.Empty(t, sparkline([]float64{nan, nan}))
	golden.Equal(t, "testdata/spark.svg", string(sparkline([]float64{nan, 90, 88, nan, nan, 91, 46, -5, 1e9, nan}))+"\n")
	assert.NotContains(t, sparkline([]float64{50}), "NaN")
	assert.NotRegexp(t, `[0-9]"?Inf`, sparkline([]float64{math.Inf(1), math.Inf(-1)}))
}

func TestStages(t *testing.T) {
	parsed := &report.Run{Steps: []*report.StepResult{
		{Name: "mount", Status: report.StatusComplete, Started: now, Ended: now.Add(1500 * time.Millisecond)},
		{Name: "driver", Status: report.StatusError, Errors: []report.Error{{Symptom: "load", Message: "no such device"}}},
		{Name: "compare", Status: report.StatusSkip}, {Name: "bandwidth"},
	}}
	for over, last := range map[bool]state{false: stateRunning, true: stateLost} {
		all := stages(parsed, over)
		var got []state
		for _, s := range all {
			got = append(got, s.Status)
		}
		assert.Equal(t, []state{stageDone, stageFailed, stageSkipped, last}, got)
		assert.Equal(t, "1.5 s", all[0].Took)
		assert.Equal(t, []string{"ERROR load: no such device"}, all[1].Lines)
	}
}

// TestNodeRuns has the page of a node show the last run that is over, and the
// history of the last that has figures.
func TestNodeRuns(t *testing.T) {
	pairs := []farm.Pair{{Initiator: "a", Peer: "b", Direction: "write", Method: "ce", GBps: 1, Verdict: "ok"}}
	whole := farm.Run{ID: "whole", Night: "2026-01-01", State: farm.Complete, Summary: &farm.Summary{Pairs: pairs}}
	hung := farm.Run{ID: "hung", Night: "2026-01-02", State: farm.Lost, Summary: &farm.Summary{Reason: "it hung"}}
	silent := farm.Run{ID: "silent", Night: "2026-01-02", State: farm.Lost}
	live := farm.Run{ID: "live", Night: "2026-01-03", State: farm.Running, Summary: &farm.Summary{Pairs: pairs[:1]}}
	offered := farm.Run{ID: "offered", Night: "2026-01-03", State: farm.Offered}
	for _, tt := range []struct {
		runs         []farm.Run // oldest first
		shown        string
		state        state
		heats, plots int
	}{
		{nil, "", stateNever, 0, 0},
		{[]farm.Run{silent}, "", stateLost, 0, 0},
		{[]farm.Run{whole}, "whole", stateUnknown, 1, 1},
		{[]farm.Run{whole, hung}, "hung", stateLost, 0, 1},
		{[]farm.Run{whole, silent}, "whole", stateLost, 1, 1},
		{[]farm.Run{whole, live}, "whole", stateRunning, 1, 1},
		{[]farm.Run{whole, hung, live}, "hung", stateRunning, 0, 1},
		{[]farm.Run{whole, offered}, "whole", stateOffered, 1, 1},
		{[]farm.Run{live}, "live", stateRunning, 1, 1},
	} {
		d := nodeData{State: stateNever}
		d.fill(tt.runs, nil, "")
		shown := ""
		if d.Run != nil {
			shown = d.Run.ID
		}
		assert.Equal(t, tt.shown, shown)
		assert.Equal(t, tt.state, d.State, shown)
		assert.Len(t, d.Heats, tt.heats, shown)
		assert.Len(t, d.Plots, tt.plots, shown)
		assert.Equal(t, d.State == stateRunning || d.State == stateOffered, d.Every > 0)
	}
}

func TestProgress(t *testing.T) {
	h := handler{Config: Config{Lab: read(&lab.Lab{Nodes: []lab.Node{{Name: "n1"}, {Name: "n9"}, {Name: "off", Settings: lab.Settings{Boot: lab.Never}}}})}}
	runs := []farm.Run{
		{Node: "n1", State: farm.Complete, Summary: &farm.Summary{Verdict: checks.VerdictReady}}, {Node: "n1", State: farm.Lost},
		{Node: "n2", State: farm.Running, Stage: "driver"}, {Node: "n3", State: farm.Lost, Why: "it hung"}, {Node: "n4", State: farm.Offered},
	}
	d := nightData{Tonight: true, Filter: readFilter(nil)}
	d.fill(h.nightRows(runs, true))
	assert.Equal(t, progress{Total: 5, Complete: 1, Running: 1, Lost: 1, Waiting: 2}, d.Progress)
	assert.Equal(t, 2, d.Progress.Over())
	assert.Equal(t, 3, d.Every, "something runs")
	assert.Equal(t, 2, d.Rows[4].Attempts, "n1 was started twice")

	d = nightData{Filter: readFilter(nil)}
	d.fill(h.nightRows(runs[:2], false))
	assert.Zero(t, d.Every, "a night that is over stays as it is")
}

func TestWhen(t *testing.T) {
	f := frame{Now: now, Zone: time.FixedZone("lab", 3600)}
	assert.Equal(t, moment{}, f.When(time.Time{}))
	assert.Equal(t, moment{"2026-02-01T00:40:00+01:00", "2026-02-01 00:40", "just now"}, f.When(now))
	for ago, want := range map[time.Duration]string{90 * time.Minute: "90 min ago", 3 * time.Hour: "3 h ago", 50 * time.Hour: "2 days ago", -time.Hour: "just now"} {
		assert.Equal(t, want, f.When(now.Add(-ago)).Ago)
	}
	assert.Equal(t, []string{"7 s", "1 min 52 s", "2 h 0 min"}, []string{took(6600 * time.Millisecond), took(112 * time.Second), took(2 * time.Hour)})
	assert.Equal(t, []string{"5 B", "2 KiB", "1.5 MiB"}, []string{mebi(5), mebi(2048), mebi(3 << 19)})
}

// TestContrast holds the colours of text against what WCAG 2.2 asks for (1.4.3:
// 4.5 to 1; 1.4.11: 3 to 1 for what is no text), in light and in dark.
func TestContrast(t *testing.T) {
	css, err := files.ReadFile("assets/page.css")
	require.NoError(t, err)
	colours := [2]map[string][3]float64{{}, {}}
	for _, m := range regexp.MustCompile(`--([a-z-]+): light-dark\(#(\w{6}), #(\w{6})\)`).FindAllStringSubmatch(string(css), -1) {
		for i := range colours {
			v, err := strconv.ParseUint(m[2+i], 16, 32)
			require.NoError(t, err)
			colours[i][m[1]] = [3]float64{float64(v >> 16), float64(v >> 8 & 0xff), float64(v & 0xff)}
		}
	}
	require.Len(t, colours[0], 21)
	for i, scheme := range []string{"light", "dark"} {
		c := colours[i]
		check := func(text, on string, back [3]float64, least float64) {
			assert.GreaterOrEqual(t, contrast(c[text], back), least, "%s on %s, %s", text, on, scheme)
		}
		for _, on := range []string{"paper", "raised"} {
			for _, text := range []string{"ink", "dim", "link", "ready", "degraded", "blocked", "unknown", "running", "none"} {
				check(text, on, c[on], 4.5)
			}
			for _, line := range []string{"strong-line", "focus", "heat"} {
				check(line, on, c[on], 3)
			}
		}
		for _, state := range []string{"ready", "degraded", "blocked", "unknown", "running", "none"} {
			check(state, state+"-bg", c[state+"-bg"], 4.5)
			check("ink", state+"-bg", c[state+"-bg"], 4.5)
		}
		for _, m := range regexp.MustCompile(`var\(--heat\) (\d+)%`).FindAllStringSubmatch(string(css), -1) {
			part, err := strconv.Atoi(m[1])
			require.NoError(t, err)
			var mix [3]float64
			for k := range mix {
				mix[k] = c["paper"][k] + (c["heat"][k]-c["paper"][k])*float64(part)/100
			}
			check("ink", "heat of "+m[1]+" %", mix, 4.5)
		}
	}
}

// contrast is the ratio of WCAG 2.2 between two colours.
func contrast(a, b [3]float64) float64 {
	luminance := func(c [3]float64) float64 {
		var l [3]float64
		for i, v := range c {
			if v /= 255; v <= 0.04045 {
				l[i] = v / 12.92
			} else {
				l[i] = math.Pow((v+0.055)/1.055, 2.4)
			}
		}
		return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2]
	}
	x, y := luminance(a), luminance(b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// reportStore has one run with a report.
type reportStore struct {
	Store
	report []byte
}

func (s reportStore) Run(context.Context, string) (farm.Run, error) {
	return farm.Run{ID: "r", Node: "n", Night: tonight, State: farm.Complete}, nil
}

func (s reportStore) Report(context.Context, string) (io.Reader, error) {
	return bytes.NewReader(s.report), nil
}

// FuzzReport makes the pages of any report.
func FuzzReport(f *testing.F) {
	for _, m := range []machine{{name: "n", kind: "good-2x4090", compared: true}, {name: "n", kind: "no-gpu"}} {
		text := m.report(f, gathered(f, m.kind), nil, now, 0, newRandom())
		f.Add(text)
		f.Add(text[:len(text)/2])
	}
	f.Add([]byte(`{"testStepArtifact":{"testStepId":"compare","extension":{"name":"comparison","content":{"arms":[{}],"rows":[{"cells":[]},{}]}}},"sequenceNumber":1,"timestamp":"2026-01-02T03:04:05Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h := Handler(Config{Store: reportStore{report: text}, Lab: read(newLabFile()), Log: slog.New(slog.DiscardHandler)})
		for _, path := range []string{"/runs/r", "/runs/r/measurements"} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			require.NotEqual(t, http.StatusInternalServerError, w.Code, path)
		}
	})
}
