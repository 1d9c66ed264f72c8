package checks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/golden"
)

// gathered holds the facts of each kind: the trees are many small files.
var gathered = map[string]*facts.Facts{}

// gather builds the tree of a kind of machine and gathers its facts.
func gather(t testing.TB, k fixture.Kind) *facts.Facts {
	t.Helper()
	if f := gathered[k.Name]; f != nil {
		return f
	}
	root := t.TempDir()
	require.NoError(t, k.Write(root))
	opt := facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)}
	if k.Asked {
		opt.NVML = strings.NewReader(k.NVMLDocument())
	}
	f, err := facts.Gather(root, opt)
	require.NoError(t, err)
	gathered[k.Name] = f
	return f
}

// text writes findings in full, for the golden files.
func text(findings []checks.Finding) string {
	var b strings.Builder
	v, reason := checks.Judge(findings)
	fmt.Fprintf(&b, "%s\n  %s\n", v, reason)
	for _, f := range findings {
		fmt.Fprintf(&b, "\n%s %s: %s\n", f.ID, f.Status, f.Title)
		for _, e := range f.Evidence {
			fmt.Fprintf(&b, "  evidence %s = %s [%s]\n", e.What, e.Raw, e.Where)
		}
		fmt.Fprintf(&b, "  meaning  %s\n", f.Meaning)
		for line := range strings.Lines(f.Fix) {
			fmt.Fprintf(&b, "  fix      %s\n", strings.TrimSuffix(line, "\n"))
		}
		if f.Devices != nil {
			fmt.Fprintf(&b, "  devices  %s\n", strings.Join(f.Devices, " "))
		}
		for _, p := range f.Pairs {
			fmt.Fprintf(&b, "  pair     %s %s\n", p[0], p[1])
		}
	}
	return b.String()
}

func TestKinds(t *testing.T) {
	for _, k := range fixture.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			got := "# " + k.About + "\n" + text(checks.Run(gather(t, k)))
			golden.Equal(t, "testdata/"+k.Name+".txt", got)
		})
	}
}

// Every kind of finding must be seen passing and failing, with no status that
// its description lacks. Where the description has neither a failure nor a
// warning, as for a virtual machine, unknown is what there is to see; one without
// a pass, as for emulated GPUs, is there or not.
func TestEveryFindingSeenBothWays(t *testing.T) {
	seen := map[checks.ID]map[checks.Status]string{}
	for _, k := range fixture.Kinds() {
		for _, f := range checks.Run(gather(t, k)) {
			if seen[f.ID] == nil {
				seen[f.ID] = map[checks.Status]string{}
			}
			seen[f.ID][f.Status] = k.Name
		}
	}
	for _, id := range checks.IDs() {
		doc, ok := checks.Explain(id)
		require.True(t, ok)
		can := map[checks.Status]bool{}
		for _, o := range doc.Outcomes {
			assert.False(t, can[o.Status], "%s describes %s twice", id, o.Status)
			can[o.Status] = true
		}
		for status, kind := range seen[id] {
			assert.True(t, can[status], "%s: %s is %s, which its description lacks", kind, id, status)
		}
		if !can[checks.Pass] {
			assert.NotEmpty(t, seen[id][checks.Skip], "%s is in no fixture", id)
			continue
		}
		assert.NotEmpty(t, seen[id][checks.Pass], "%s passes in no fixture", id)
		if !can[checks.Fail] && !can[checks.Warn] {
			assert.NotEmpty(t, seen[id][checks.Unknown], "%s is unknown in no fixture", id)
			continue
		}
		assert.NotEmpty(t, seen[id][checks.Fail]+seen[id][checks.Warn], "%s fails or warns in no fixture", id)
	}
	assert.Len(t, seen, len(checks.IDs()), "a finding has an ID that IDs lacks")
}

func TestFindingsAreWhole(t *testing.T) {
	for _, k := range fixture.Kinds() {
		for _, f := range checks.Run(gather(t, k)) {
			assert.NotEmpty(t, f.Title, "%s %s", k.Name, f.ID)
			assert.NotContains(t, f.Title, "\n")
			if f.Status != checks.Skip {
				assert.NotEmpty(t, f.Meaning, "%s %s", k.Name, f.ID)
				assert.NotEmpty(t, f.Evidence, "%s %s: no evidence", k.Name, f.ID)
			}
			if f.Status == checks.Fail || f.Status == checks.Warn {
				assert.NotEmpty(t, f.Fix, "%s %s: no fix", k.Name, f.ID)
			}
		}
	}
}

func TestStandInIsNeverReady(t *testing.T) {
	for _, k := range fixture.Kinds() {
		if k.StandIn == "" {
			continue
		}
		findings := checks.Run(gather(t, k))
		v, reason := checks.Judge(findings)
		assert.Equal(t, checks.VerdictNoGPU, v, k.Name)
		assert.Contains(t, reason, "stand-in device", k.Name)
		for _, f := range findings {
			assert.True(t, f.StandIn, "%s %s", k.Name, f.ID)
			assert.Contains(t, f.Title, "stand-in device", "%s %s", k.Name, f.ID)
		}
	}
}

func TestJudge(t *testing.T) {
	of := func(statuses ...checks.Status) []checks.Finding {
		var fs []checks.Finding
		for _, s := range statuses {
			fs = append(fs, checks.Finding{ID: checks.IOMMU, Status: s, Title: string(s)})
		}
		return fs
	}
	for name, tc := range map[string]struct {
		findings []checks.Finding
		want     checks.Verdict
	}{
		"nothing":             {nil, checks.VerdictUnknown},
		"only skips":          {of(checks.Skip), checks.VerdictUnknown},
		"passes":              {of(checks.Pass, checks.Pass, checks.Skip), checks.VerdictReady},
		"warning":             {of(checks.Pass, checks.Warn), checks.VerdictDegraded},
		"unknown over warn":   {of(checks.Warn, checks.Unknown, checks.Pass), checks.VerdictUnknown},
		"fail over all":       {of(checks.Warn, checks.Unknown, checks.Fail), checks.VerdictBlocked},
		"placebo weighs none": {[]checks.Finding{{ID: checks.CommandLine, Status: checks.Warn}, {ID: checks.IOMMU, Status: checks.Pass}}, checks.VerdictReady},
		"one GPU":             {[]checks.Finding{{ID: checks.GPUPair, Status: checks.Skip}, {ID: checks.ReBAR, Status: checks.Fail}}, checks.VerdictNoGPU},
		"proof over unknown":  {append(of(checks.Pass, checks.Unknown), checks.Finding{ID: checks.Measured, Status: checks.Pass}), checks.VerdictReady},
		"proof but a warning": {append(of(checks.Warn, checks.Unknown), checks.Finding{ID: checks.Measured, Status: checks.Pass}), checks.VerdictDegraded},
		"proof but a failure": {append(of(checks.Fail), checks.Finding{ID: checks.Measured, Status: checks.Pass}), checks.VerdictDegraded},
		"one pair has failed": {append(of(checks.Pass), checks.Finding{ID: checks.Measured, Status: checks.Pass}, checks.Finding{ID: checks.Measured, Status: checks.Fail}), checks.VerdictBlocked},
		"one pair is unknown": {append(of(checks.Pass), checks.Finding{ID: checks.Measured, Status: checks.Pass}, checks.Finding{ID: checks.Measured, Status: checks.Unknown}), checks.VerdictUnknown},
		"measured stand-ins":  {[]checks.Finding{{ID: checks.IOMMU, Status: checks.Pass, StandIn: true}, {ID: checks.Measured, Status: checks.Pass}}, checks.VerdictNoGPU},
		"stand-in passes":     {[]checks.Finding{{ID: checks.IOMMU, Status: checks.Pass, StandIn: true}}, checks.VerdictNoGPU},
		"stand-in fails":      {[]checks.Finding{{ID: checks.IOMMU, Status: checks.Fail, StandIn: true}}, checks.VerdictNoGPU},
	} {
		t.Run(name, func(t *testing.T) {
			v, reason := checks.Judge(tc.findings)
			assert.Equal(t, tc.want, v)
			if v != checks.VerdictNoGPU {
				assert.NotEmpty(t, reason)
			}
		})
	}
}

// A facts file is judged like the machine it came from.
func TestReplay(t *testing.T) {
	for _, k := range fixture.Kinds() {
		f := gather(t, k)
		var saved strings.Builder
		require.NoError(t, f.Save(&saved))
		loaded, err := facts.Load(strings.NewReader(saved.String()))
		require.NoError(t, err, k.Name)
		assert.Equal(t, text(checks.Run(f)), text(checks.Run(loaded)), k.Name)
	}
}

// Whatever two functions, the ports above them and the machine, on its command
// line as in its log, say, every
// finding is whole and nothing unknown is called ready.
func FuzzRun(f *testing.F) {
	for _, k := range fixture.Kinds() {
		if spaces := k.Spaces(); len(spaces) > 1 {
			gpu, port := spaces[len(spaces)-1].Bytes, spaces[len(spaces)-2].Bytes
			f.Add(gpu, port, uint64(0x38000000000), uint64(0x387ffffffff), uint64(0x14220c), k.IOMMU, k.CommandLine, k.Kernel, true)
			f.Add(gpu[:64], port[:64], uint64(0), uint64(0), uint64(0), "", k.Log, "4.1", false)
		}
	}
	f.Fuzz(func(t *testing.T, gpu, port []byte, start, end, flags uint64, domain, cmdline, release string, together bool) {
		machine := &facts.Facts{
			Version: facts.Version, Kernel: facts.Kernel{Release: release, CommandLine: cmdline}, KernelLog: strings.Split(cmdline, "\n"),
		}
		machine.IOMMU = facts.IOMMU{Known: true, Groups: []facts.IOMMUGroup{{ID: "1", Type: domain}}}
		add := func(address string, raw []byte, path ...string) {
			d := facts.Device{Address: address, Vendor: 0x10de, Device: 0x2684, GPU: path != nil, Root: "pci0000:00", Path: path, IOMMUGroup: "1"}
			d.Resources = []facts.Resource{{Index: 1, Start: pcicfg.Hex(start), End: pcicfg.Hex(end), Flags: pcicfg.Hex(flags)}}
			d.Config, _ = pcicfg.Decode(raw) // nil is a case of its own
			machine.Devices = append(machine.Devices, d)
		}
		add("0000:00:01.0", port)
		add("0000:00:02.0", port)
		add("0000:01:00.0", gpu, "0000:00:01.0")
		if together {
			add("0000:01:00.1", gpu, "0000:00:01.0")
		} else {
			add("0000:02:00.0", gpu, "0000:00:02.0", "0000:00:03.0")
		}
		findings := checks.Run(machine)
		v, _ := checks.Judge(findings)
		for _, found := range findings {
			assert.Contains(t, checks.IDs(), found.ID)
			assert.NotEmpty(t, found.Title)
			if doc, _ := checks.Explain(found.ID); found.Status == checks.Unknown && !doc.Weightless {
				assert.NotEqual(t, checks.VerdictReady, v)
			}
		}
		_, err := json.Marshal(findings)
		require.NoError(t, err)
	})
}

// Gathering and judging 64 functions, the file system's part included.
func BenchmarkCheck64(b *testing.B) {
	root := b.TempDir()
	require.NoError(b, fixture.Crowd().Write(root))
	for b.Loop() {
		f, err := facts.Gather(root, facts.Options{})
		if err != nil {
			b.Fatal(err)
		}
		checks.Run(f)
	}
}
