package export

import (
	"bytes"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/golden"
)

func run(node string, attempt int, state farm.State, s *farm.Summary, changes ...farm.Change) farm.Run {
	at := time.Date(2026, 3, 5, 18, 10*attempt, 0, 0, time.UTC)
	r := farm.Run{
		ID: node + "-" + string(rune('0'+attempt)), Node: node, Night: "2026-03-05", Source: farm.Network, State: state, Image: "full", Plan: "full",
		Offered: at, Started: at.Add(time.Minute), Ended: at.Add(5*time.Minute + 250*time.Millisecond), Chunks: 4, Bytes: 123456, Summary: s, Changes: changes,
	}
	if state == farm.Lost {
		r.Why = "the deadline of 30m0s passed"
	}
	return r
}

func pair(verdict string, gbps float64) farm.Pair {
	return farm.Pair{Initiator: "0000:41:00.0", Peer: "0000:61:00.0", Direction: "write", Method: "ce", GBps: gbps, Ceiling: 28.8, Verdict: verdict}
}

func found(v checks.Verdict, reason string, worst float64, pairs ...farm.Pair) *farm.Summary {
	return &farm.Summary{
		Verdict: v, Reason: reason, Driver: "580.159.04", Kernel: "6.12.94", Product: "0.1", Worst: &worst, Pairs: pairs,
		Settings: map[string]string{"bios.version": "1.2"},
		Findings: []farm.Finding{{ID: checks.LinkWidth, Status: checks.Pass, Title: "2 links with all lanes"}},
	}
}

// made is a night in which every kind of thing happens.
func made() *Night {
	read := pair("ok", 25.25)
	read.Direction, read.Method, read.LatencyNS = "read", "sm", 1204
	blocked := found(checks.VerdictBlocked, "P2P-IOMMU: the IOMMU translates the DMA of 2 GPUs", 0)
	blocked.Worst = nil
	blocked.Findings = append(blocked.Findings, farm.Finding{
		ID: checks.IOMMU, Status: checks.Fail, Title: "the IOMMU translates the DMA of 2 GPUs", Fix: "Boot with iommu=pt.", Devices: []string{"0000:41:00.0", "0000:61:00.0"},
	})
	noGPU := found(checks.VerdictNoGPU, "stand-in device in place of a GPU", 0)
	noGPU.Worst = nil
	silent := run("offered", 1, farm.Offered, nil)
	silent.Ended, silent.Chunks = time.Time{}, 0
	cut := run("cut", 1, farm.Lost, &farm.Summary{}, farm.Change{
		Kind: farm.NotDelivered, Subject: "report", Before: "complete (12 runs)", After: "cut off in stage bandwidth", Worse: true, Fix: "Look at the console.",
	})
	cut.Stage = "bandwidth"
	hung := run("hung", 1, farm.Lost, nil)
	hung.Chunks = 0
	unstarted := farm.Run{Node: "unstarted", Night: "2026-03-05", State: farm.Lost, Why: "wake-on-LAN: no route to host"}
	return New("2026-03-05", []Expected{{Node: "ready"}, {Node: "broken-bmc", Why: "redfish: POST https://bmc/Systems/1: 401 Unauthorized"}, {Node: "dark"}}, []farm.Run{
		run("ready", 2, farm.Complete, found(checks.VerdictReady, "every pair was measured and its data verified", 97.2, pair("ok", 28), read)),
		run("ready", 1, farm.Lost, nil),
		run("worse", 1, farm.Complete, found(checks.VerdictDegraded, "P2P-LINK-WIDTH: 1 link with lanes missing", 48.6, pair("slow", 14)),
			farm.Change{Kind: farm.LinkChanged, Subject: "link.0000:41:00.0.width", Before: "x16 (12 runs)", After: "x8", Worse: true, Fix: "Reseat the GPU."},
			farm.Change{Kind: farm.BandwidthChanged, Subject: "0000:41:00.0 → 0000:61:00.0 write, ce", Before: "28.0 GB/s (median of 12 runs)", After: "14.0 GB/s, 50 % less", Worse: true, Fix: "A likely cause is reported above."},
			farm.Change{Kind: farm.SettingChanged, Subject: "bios.version", Before: "1.1 (12 runs)", After: "1.2"}),
		run("blocked", 1, farm.Complete, blocked),
		run("wrong", 1, farm.Complete, found(checks.VerdictBlocked, "P2P-MEASURED: wrong", 0, pair("wrong-data", 0)),
			farm.Change{Kind: farm.DataChanged, Subject: "0000:41:00.0 → 0000:61:00.0", Before: "not verified before", After: "wrong data", Worse: true, Fix: "Do not use the pair."}),
		run("unknown", 1, farm.Complete, found(checks.VerdictUnknown, "stage driver: no module", 0)),
		run("no-gpu", 1, farm.Complete, noGPU),
		run("a\"b\\c\nd<&>\x01", 1, farm.Complete, found(checks.VerdictReady, "]]> \x00 \u202e", 97, pair("ok", 28))),
		silent, cut, hung, unstarted,
	})
}

func TestNight(t *testing.T) {
	n := made()
	status := map[string]Status{}
	for _, node := range n.Nodes {
		status[node.Node] = node.Status
		for _, c := range node.Cases {
			if c.Status != Pass {
				assert.NotEmpty(t, c.Message, "%s: what is not well says why", node.Node)
			}
		}
	}
	assert.Equal(t, map[string]Status{
		"ready": Pass, "worse": Fail, "blocked": Fail, "wrong": Fail, "unknown": Error, "no-gpu": Skip, "a\"b\\c\nd<&>\x01": Pass,
		"broken-bmc": Error, "dark": Error, "offered": Error, "cut": Error, "hung": Error, "unstarted": Error,
	}, status)
	assert.Equal(t, "ready-2", n.Nodes[0].Run.ID, "the complete run counts")
	assert.Equal(t, 2, n.Nodes[0].Runs)
	i := slices.IndexFunc(n.Nodes, func(n Node) bool { return n.Node == "unstarted" })
	assert.Nil(t, n.Nodes[i].Run)
	assert.Equal(t, "not started: wake-on-LAN: no route to host", n.Nodes[i].Cases[0].Message)
	assert.Equal(t, map[Status]int{Pass: 2, Skip: 1, Fail: 3, Error: 7}, n.Count())
}

// The runs that the server lists for a night lack the pairs.
func TestNightWithoutPairs(t *testing.T) {
	s := found(checks.VerdictReady, "", 97)
	n := New("2026-03-05", nil, []farm.Run{run("a", 1, farm.Complete, s)})
	assert.Equal(t, Case{Name: Data, Status: Pass}, n.Nodes[0].Cases[2])
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, made().WriteText(&b))
	golden.Equal(t, "testdata/night.txt", b.Bytes())

	b.Reset()
	require.NoError(t, New("2026-03-05", nil, nil).WriteText(&b))
	assert.Equal(t, "night 2026-03-05: 0 nodes\n", b.String())
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, made().WriteJSON(&b))
	golden.Equal(t, "testdata/night.json", b.Bytes())

	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	require.NoError(t, err)
	for _, n := range []*Night{made(), New("2026-03-05", nil, nil)} {
		b.Reset()
		require.NoError(t, n.WriteJSON(&b))
		v, err := jsonschema.UnmarshalJSON(&b)
		require.NoError(t, err)
		require.NoError(t, schema.Validate(v))
	}
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, made().WriteJUnit(&b))
	golden.Equal(t, "testdata/night.xml", b.Bytes())

	var got junitSuites
	require.NoError(t, xml.Unmarshal(b.Bytes(), &got))
	require.Len(t, got.Suites, 1)
	s := got.Suites[0]
	var tests, failures, errors, skipped int
	for _, c := range s.Cases {
		tests++
		for n, is := range map[*int]bool{&failures: c.Failure != nil, &errors: c.Error != nil, &skipped: c.Skipped != nil} {
			if is {
				*n++
			}
		}
	}
	assert.Equal(t, 4*len(made().Nodes), tests)
	assert.Equal(t, []int{tests, failures, errors, skipped}, []int{s.Tests, s.Failures, s.Errors, s.Skipped})
}

// TestJUnitSchema validates against the XML schemas that JUNIT_XSD names, separated
// by colons: JUnit.xsd of windyroad/JUnit-Schema and junit-10.xsd of
// jenkinsci/xunit-plugin, which are not ours to copy.
func TestJUnitSchema(t *testing.T) {
	schemas := filepath.SplitList(os.Getenv("JUNIT_XSD"))
	if len(schemas) == 0 {
		t.Skip("JUNIT_XSD names no schema")
	}
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Skip("xmllint is not installed")
	}
	for name, n := range map[string]*Night{"made": made(), "empty": New("2026-03-05", nil, nil)} {
		file := filepath.Join(t.TempDir(), name+".xml")
		var b bytes.Buffer
		require.NoError(t, n.WriteJUnit(&b))
		require.NoError(t, os.WriteFile(file, b.Bytes(), 0o600))
		for _, schema := range schemas {
			out, err := exec.CommandContext(t.Context(), lint, "--nonet", "--noout", "--schema", schema, file).CombinedOutput()
			assert.NoError(t, err, "%s against %s: %s", name, schema, out)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, made().WriteOpenMetrics(&b))
	golden.Equal(t, "testdata/night.metrics", b.Bytes())
	assert.True(t, strings.HasSuffix(b.String(), "# EOF\n"))

	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	bandwidth := families["mkp2pimg_pair_bandwidth_bytes_per_second"]
	require.NotNil(t, bandwidth)
	assert.Equal(t, 28e9, bandwidth.Metric[0].GetUntyped().GetValue()+bandwidth.Metric[0].GetGauge().GetValue())
	var names []string
	for _, m := range families["mkp2pimg_node_delivered"].Metric {
		names = append(names, m.Label[0].GetValue())
	}
	assert.Contains(t, names, "a\"b\\c\nd<&>\x01", "what is escaped comes back")
	assert.InDelta(t, 1.204e-6, families["mkp2pimg_pair_latency_seconds"].Metric[0].GetGauge().GetValue(), 1e-12)
	seen := map[string]bool{}
	for line := range strings.Lines(b.String()) {
		series, _, _ := strings.Cut(line, "} ")
		if !strings.HasPrefix(line, "#") {
			assert.False(t, seen[series], "twice: %s", series)
			seen[series] = true
		}
	}
}

// Nothing that a report says, or a node is called, breaks a format.
func FuzzNight(f *testing.F) {
	f.Add("node", "P2P-READY", "reason", "0000:41:00.0", 26.1)
	f.Add("a\"\\\n", "\x00", "]]>", "\xff", -1.0)
	f.Fuzz(func(t *testing.T, node, verdict, text, bdf string, v float64) {
		p := farm.Pair{Initiator: bdf, Peer: bdf, Direction: "write", Method: "ce", GBps: v, Ceiling: v, Verdict: "ok"}
		s := &farm.Summary{Verdict: checks.Verdict(verdict), Reason: text, Pairs: []farm.Pair{p}, Findings: []farm.Finding{{ID: checks.ID(text), Fix: text}}}
		n := New("2026-03-05", []Expected{{Node: node, Why: text}}, []farm.Run{run(node, 1, farm.Complete, s, farm.Change{Subject: text, Worse: true, Fix: text})})
		var b bytes.Buffer
		require.NoError(t, n.WriteJUnit(&b))
		require.NoError(t, xml.Unmarshal(b.Bytes(), new(junitSuites)))
		b.Reset()
		require.NoError(t, n.WriteOpenMetrics(&b))
		parser := expfmt.NewTextParser(model.UTF8Validation)
		_, err := parser.TextToMetricFamilies(&b)
		require.NoError(t, err)
		b.Reset()
		require.NoError(t, n.WriteText(&b))
		assert.Equal(t, 2, bytes.Count(b.Bytes(), []byte("\n")))
	})
}
