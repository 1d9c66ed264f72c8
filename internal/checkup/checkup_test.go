package checkup_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/checkup"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// gather returns the facts of a machine of the library.
func gather(t testing.TB, kind string) *facts.Facts {
	t.Helper()
	for _, k := range fixture.Kinds() {
		if k.Name == kind {
			root := t.TempDir()
			require.NoError(t, k.Write(root))
			f, err := facts.Gather(root, facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
			require.NoError(t, err)
			return f
		}
	}
	t.Fatalf("no machine is named %s", kind)
	return nil
}

var stock = []checkup.Driver{{Name: "580.142 as published", Driver: predict.Driver{Release: "580.142"}}}

// told is an answer about a machine of the library with findings and a
// prediction that show every part of them, whatever the checks find there.
func told(t *testing.T, kind string) *checkup.Checkup {
	t.Helper()
	c := checkup.New(gather(t, kind), nil)
	c.Findings = []checks.Finding{
		{ID: checks.GPUPresent, Status: checks.Pass, Title: "all is well"},
		{ID: checks.ACSRedirect, Status: checks.Warn, Title: "one port redirects", Meaning: "What follows.", Fix: "First do this\nthen do that & <this>",
			Evidence: []checks.Evidence{{What: "ACS control", Where: "/sys/config 0x106", Raw: "0x001d"}, {What: "a bare fact"}},
			Pairs:    [][2]string{{"0000:03:00.0", "0000:04:00.0"}}},
		{ID: checks.IOMMU, Status: checks.Unknown, Title: "nobody knows", Fix: "Run as root."},
	}
	c.Verdict, c.Reason = checks.Judge(c.Findings)
	c.Unknown = []facts.Unknown{{What: "kernel log", Where: "/dev/kmsg", Why: "permission denied"}}
	if len(c.Pairs) > 0 {
		p := c.Pairs[0]
		c.Predictions = []checkup.Forecast{{Driver: "1.2 as published", Pairs: []predict.Prediction{
			{A: p.A, B: p.B, Path: rm.BAR1, If: []string{"MIG is off"}, Possible: []rm.Path{rm.BAR1, rm.NoPath}, Works: predict.Yes},
		}}}
	}
	return c
}

func TestGolden(t *testing.T) {
	for _, kind := range []string{"two-switches", "no-gpu"} {
		t.Run(kind, func(t *testing.T) {
			c := told(t, kind)
			var text, page bytes.Buffer
			require.NoError(t, c.WriteText(&text, checkup.TextOptions{Style: topology.UTF8}))
			golden.Equal(t, "testdata/"+kind+".txt", text.Bytes())
			require.NoError(t, c.WriteHTML(&page))
			golden.Equal(t, "testdata/"+kind+".html", page.Bytes())
			assert.NotContains(t, page.String(), "<script")
			assert.NotRegexp(t, `(?:src|href)=|url\(`, page.String(), "needs nothing else")
		})
	}
}

func TestVerboseHasAll(t *testing.T) {
	c := checkup.New(gather(t, "acs-switch"), nil)
	var short, long bytes.Buffer
	require.NoError(t, c.WriteText(&short, checkup.TextOptions{Style: topology.ASCII}))
	require.NoError(t, c.WriteText(&long, checkup.TextOptions{Style: topology.ASCII, Screen: report.ScreenOptions{Passes: true}}))
	for _, f := range c.Findings {
		assert.Contains(t, long.String(), "["+string(f.ID)+"]")
	}
	assert.NotContains(t, short.String(), "[P2P-GPU-PRESENT]")
	assert.Contains(t, short.String(), "\npass     P2P-GPU-PRESENT")
	assert.NotContains(t, long.String(), "\npass     P2P-GPU-PRESENT")
}

func TestJSON(t *testing.T) {
	c := checkup.New(gather(t, "acs-switch"), stock)
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var back struct {
		Version  int
		Verdict  checks.Verdict
		Findings []checks.Finding
		Pairs    []struct {
			A, B, Class string
			Redirecting []string
		}
		Predictions []struct {
			Driver string
			Pairs  []struct{ A, B, Path string }
		}
		Unknown []facts.Unknown
	}
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, checkup.Version, back.Version)
	assert.Equal(t, c.Verdict, back.Verdict)
	assert.Equal(t, c.Findings, back.Findings)
	require.Len(t, back.Pairs, 12)
	assert.Equal(t, "0000:03:00.0", back.Pairs[0].A)
	assert.Equal(t, "0000:04:00.0", back.Pairs[0].B)
	assert.Equal(t, "PIX", back.Pairs[0].Class)
	assert.Equal(t, []string{"0000:02:00.0", "0000:02:04.0"}, back.Pairs[0].Redirecting)
	require.Len(t, back.Predictions, 1)
	require.Len(t, back.Predictions[0].Pairs, 12)
	assert.NotEmpty(t, back.Predictions[0].Pairs[0].Path)
}

// TestSchema has the answer about every machine of the library, and about every
// real one, follow the schema.
func TestSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	require.NoError(t, err)
	validate := func(text []byte) error {
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		return schema.Validate(doc)
	}
	machines := map[string]*facts.Facts{}
	for _, k := range fixture.Kinds() {
		machines[k.Name] = gather(t, k.Name)
	}
	files, err := filepath.Glob("../../firmware-checks/testdata/machines/*.json")
	require.NoError(t, err)
	for _, file := range files {
		machines[file], err = facts.LoadFile(file)
		require.NoError(t, err)
	}
	edited, err := checks.WithEdits("580.142")
	require.NoError(t, err)
	drivers := []checkup.Driver{{Name: "edited", Driver: edited}, {Name: "old", Driver: predict.Driver{Release: "470.1"}}}
	for name, f := range machines {
		text, err := json.Marshal(checkup.New(f, append(drivers, stock...)))
		require.NoError(t, err)
		require.NoError(t, validate(text), name)
	}

	text, err := json.Marshal(checkup.New(machines["acs-switch"], stock))
	require.NoError(t, err)
	for _, fault := range [][2]string{{`"version":1`, `"version":2`}, {`"status":"warn"`, `"status":"bad"`}, {`"class":"PIX"`, `"class":"PIG"`}, {`"reason"`, `"reasons"`}} {
		broken := bytes.Replace(text, []byte(fault[0]), []byte(fault[1]), 1)
		require.NotEqual(t, text, broken, fault[0])
		assert.Error(t, validate(broken), fault[1])
	}
}

// Whatever a document says that can be loaded, there is an answer to it.
func FuzzAnswer(f *testing.F) {
	for _, kind := range []string{"acs-switch", "two-sockets", "driver-good", "unprivileged"} {
		var doc bytes.Buffer
		require.NoError(f, gather(f, kind).Save(&doc))
		f.Add(doc.Bytes())
	}
	f.Add([]byte(`{"version":1,"devices":[{"address":"0000:01:00.0","gpu":true,"path":["0000:01:00.0"]},{"address":"0000:02:00.0","gpu":true,"path":["0000:01:00.0"]}]}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		machine, err := facts.Load(bytes.NewReader(doc))
		if err != nil || len(machine.GPUs()) > 16 {
			return
		}
		c := checkup.New(machine, stock)
		require.NoError(t, c.WriteText(io.Discard, checkup.TextOptions{Style: topology.ASCII}))
		require.NoError(t, c.WriteHTML(io.Discard))
		_, err = json.Marshal(c)
		require.NoError(t, err)
	})
}

// TestHostileFacts has text in the facts that would be markup in a page.
func TestHostileFacts(t *testing.T) {
	f := gather(t, "acs-switch")
	const evil = `</pre></svg><script>alert("x")</script>`
	f.Firmware.BoardName, f.CPU.Name, f.Kernel.CommandLine = evil, evil, "pci=noacs "+evil
	f.Unknown = []facts.Unknown{{What: evil, Where: evil, Why: evil}}
	for i := range f.Devices {
		f.Devices[i].Root = evil
	}
	var page bytes.Buffer
	require.NoError(t, checkup.New(f, []checkup.Driver{{Name: evil}}).WriteHTML(&page))
	assert.NotContains(t, page.String(), "<script")
	_, svg, found := strings.Cut(page.String(), "<svg")
	require.True(t, found)
	svg, _, _ = strings.Cut("<svg"+svg, "</svg>")
	d := xml.NewDecoder(strings.NewReader(svg + "</svg>"))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err, "the drawing is well formed")
	}
}

// TestSurvey judges what a loaded driver said.
func TestSurvey(t *testing.T) {
	f := gather(t, "good-2x4090")
	gpus := f.GPUs()
	f.NVIDIA = &facts.NVIDIA{Release: "580.142", Survey: &rm.Survey{Driver: "580.142"}}
	for i, g := range gpus {
		f.NVIDIA.Survey.GPUs = append(f.NVIDIA.Survey.GPUs, rm.Surveyed{GPU: rm.GPU{BDF: g.Address, ID: uint32(i + 1)}, Running: true})
		f.NVIDIA.Survey.Pairs = append(f.NVIDIA.Survey.Pairs, rm.Pair{A: g.Address, B: gpus[1-i].Address, Path: rm.NoPath})
	}
	c := checkup.New(f, nil)
	assert.Equal(t, checks.RMPath, c.Findings[len(c.Findings)-1].ID)
	assert.Equal(t, "580.142", c.Machine.Driver)
}
