package node

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"mkp2pimg/internal/measure"
)

// TestLAVA reads the console of a run with the monitors of the example, the way
// LAVA's dispatcher does: what a monitor has read is gone for the next one.
func TestLAVA(t *testing.T) {
	text, err := os.ReadFile("../../../examples/lava/job.yaml")
	require.NoError(t, err)
	var job struct {
		Actions []struct {
			Test struct {
				Monitors []struct {
					Name, Start, End, Pattern string
					FixUp                     map[string]string `yaml:"fixupdict"`
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &job))

	m := withGPUs(t, "p2p.after=poweroff p2p.signals=lava")
	result := good()
	result.Pairs[0].Ways = []measure.Way{{Direction: measure.Write, Method: measure.CE, Verdict: measure.OK}}
	m.p2pbw(result, 0)
	m.run()
	raw, err := os.ReadFile(filepath.Join(m.root, "dev/console0"))
	require.NoError(t, err)
	console := string(raw) // with its colours
	results, figures := map[string]string{}, map[string]string{}
	for _, monitor := range job.Actions[len(job.Actions)-1].Test.Monitors {
		start, end, pattern := regexp.MustCompile(monitor.Start), regexp.MustCompile(monitor.End), regexp.MustCompile(monitor.Pattern)
		at := start.FindStringIndex(console)
		require.NotNil(t, at, "%s: no line fits %q in\n%s", monitor.Name, monitor.Start, console)
		console = console[at[1]:]
		for {
			over, found := end.FindStringIndex(console), pattern.FindStringSubmatchIndex(console)
			require.NotNil(t, over, "%s: no line fits %q in\n%s", monitor.Name, monitor.End, console)
			if found == nil || over[0] <= found[0] {
				console = console[over[1]:]
				break
			}
			group := func(name string) string {
				return string(pattern.ExpandString(nil, "${"+name+"}", console, found))
			}
			result := group("result")
			if fixed, ok := monitor.FixUp[result]; ok {
				result = fixed
			}
			id := monitor.Name + "/" + group("test_case_id")
			results[id] = result
			if pattern.SubexpIndex("measurement") >= 0 && group("measurement") != "" {
				figures[id] = group("measurement") + " " + group("units")
			}
			console = console[found[1]:]
		}
	}
	for id, want := range map[string]string{
		"stages/mount": "pass", "stages/driver": "pass", "stages/bandwidth": "pass", "stages/paths": "pass",
		"p2p/verdict": "pass", "p2p/p2p_acs_redirect": "pass", "p2p/p2p_measured": "pass",
	} {
		assert.Equal(t, want, results[id], id)
	}
	for _, result := range results {
		assert.Contains(t, []string{"pass", "fail", "skip", "unknown"}, result)
	}
	assert.Equal(t, map[string]string{"p2p/write_ce_0000_01_00_0_to_0000_02_00_0": "26.25 GB/s"}, figures)
}

// Nobody sees signals who did not ask for them.
func TestNoSignals(t *testing.T) {
	m := withGPUs(t, "p2p.after=poweroff")
	m.p2pbw(good(), 0)
	_, console := m.run()
	assert.NotContains(t, console, "LAVA")
}
