package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/remedy"
)

const (
	shown = `0000:02:00.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)
0000:02:04.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)
0000:02:08.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)
0000:02:0c.0 switch downstream port: 0x001d (SV RR CR UF) -> 0x0011 (SV UF)
`
	undone = `0000:02:00.0: 0x0011 (SV UF) -> 0x001d (SV RR CR UF)
0000:02:04.0: 0x0011 (SV UF) -> 0x001d (SV RR CR UF)
0000:02:08.0: 0x0011 (SV UF) -> 0x001d (SV RR CR UF)
0000:02:0c.0: 0x0011 (SV UF) -> 0x001d (SV RR CR UF)
`
)

// TestACS clears and restores, looking before and after each.
func TestACS(t *testing.T) {
	root, _ := machineOf(t, "acs-switch")
	state := filepath.Join(t.TempDir(), "acs.json")
	acs := func(args ...string) (code int, stdout, stderr string) {
		return command(t, append([]string{"acs", "--root", root, "--file", state}, args...)...)
	}
	code, stdout, _ := acs("--show")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, shown, stdout)

	code, stdout, _ = acs("--clear", "--dry-run")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, shown, stdout)
	code, _, stderr := acs("--clear")
	assert.Equal(t, exitUsage, code, "nobody to ask")
	assert.Contains(t, stderr, "give --yes")
	code, stdout, _ = acs("--show")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, shown, stdout, "nothing was written")

	code, stdout, stderr = acs("--clear", "--yes")
	assert.Equal(t, exitOK, code, stderr)
	assert.Equal(t, shown+"4 ports written and read back; to undo: mkp2pimg acs --restore --file "+state+"\n", stdout)
	code, stdout, _ = acs("--clear", "--yes")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "0000:02:00.0 switch downstream port: 0x0011 (SV UF) left, it does not redirect\n")
	assert.Contains(t, stdout, "nothing to clear\n")

	code, stdout, _ = acs("--restore", "--dry-run")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, undone, stdout)
	code, stdout, _ = acs("--restore", "--yes")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, undone+"4 ports restored\n", stdout)
	_, stdout, _ = acs("--show")
	assert.Equal(t, shown, stdout)
	code, _, stderr = acs("--restore", "--yes")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "no saved state")
}

// TestACSDocument has the same told as JSON, after the schema.
func TestACSDocument(t *testing.T) {
	root, _ := machineOf(t, "acs-switch")
	state := filepath.Join(t.TempDir(), "acs.json")
	schema, err := jsonschema.NewCompiler().Compile("../../firmware-checks/remedy/schema.json")
	require.NoError(t, err)
	acs := func(args ...string) (a remedy.Answer) {
		code, stdout, stderr := command(t, append([]string{"acs", "--json", "--root", root, "--file", state}, args...)...)
		require.Equal(t, exitOK, code, stderr)
		assert.Empty(t, stderr)
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(stdout))
		require.NoError(t, err, stdout)
		require.NoError(t, schema.Validate(doc))
		require.NoError(t, json.Unmarshal([]byte(stdout), &a))
		return a
	}
	first := remedy.Change{Port: "0000:02:00.0", From: 0x1d, To: 0x11}
	back := remedy.Change{Port: "0000:02:00.0", From: 0x11, To: 0x1d}

	shown := acs("--show")
	assert.Equal(t, "show", shown.Action)
	require.Len(t, shown.Ports, 4)
	assert.Equal(t, first, shown.Ports[0].Clearing())
	assert.Empty(t, shown.Changes)
	for _, dry := range []bool{true, false} {
		cleared := acs("--clear", "--yes", fmt.Sprintf("--dry-run=%v", dry))
		assert.Equal(t, dry, cleared.DryRun)
		require.Len(t, cleared.Changes, 4)
		assert.Equal(t, first, cleared.Changes[0])
	}
	assert.Empty(t, acs("--clear", "--yes").Changes, "all are clear")
	for _, dry := range []bool{true, false} {
		restored := acs("--restore", "--yes", fmt.Sprintf("--dry-run=%v", dry))
		assert.Equal(t, dry, restored.DryRun)
		require.Len(t, restored.Changes, 4)
		assert.Equal(t, back, restored.Changes[0])
	}
}

func TestACSOfSomePairs(t *testing.T) {
	root, _ := machineOf(t, "acs-switch")
	code, stdout, _ := command(t, "acs", "--show", "--root", root, "--pairs", "0000:03:00.0,0000:05:00.0")
	assert.Equal(t, exitOK, code)
	assert.Equal(t, 2, strings.Count(stdout, "\n"))
	assert.NotContains(t, stdout, "0000:02:04.0")
}

func TestACSRefusesToRestoreWhatChanged(t *testing.T) {
	root, _ := machineOf(t, "acs-switch")
	state := filepath.Join(t.TempDir(), "acs.json")
	code, _, stderr := command(t, "acs", "--clear", "--yes", "--root", root, "--file", state)
	require.Equal(t, exitOK, code, stderr)
	require.NoError(t, os.Remove(filepath.Join(root, "sys/bus/pci/devices/0000:02:04.0/config")))
	code, _, stderr = command(t, "acs", "--restore", "--yes", "--root", root, "--file", state)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, stderr, "port 0000:02:04.0 has changed: it is gone from the bus; nothing was written (--force restores the rest)")
	code, stdout, _ := command(t, "acs", "--restore", "--yes", "--force", "--root", root, "--file", state)
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, "3 ports restored")
}

func TestACSWithoutPorts(t *testing.T) {
	root, _ := machineOf(t, "no-gpu")
	code, stdout, _ := command(t, "acs", "--show", "--root", root)
	assert.Equal(t, exitOK, code)
	assert.Equal(t, "0 GPUs, no port between two of them\n", stdout)
}

func TestACSMistakes(t *testing.T) {
	root, _ := machineOf(t, "acs-switch")
	state := filepath.Join(t.TempDir(), "acs.json")
	require.NoError(t, os.WriteFile(state, []byte("{}"), 0o644))
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "give one of --show, --clear and --restore"},
		{[]string{"--show", "--clear"}, exitUsage, "give one of"},
		{[]string{"--show", "--pairs", "0000:03:00.0"}, exitUsage, "want two addresses or more"},
		{[]string{"--show", "--pairs", "0000:03:00.0,0000:02:00.0"}, exitUsage, "0000:02:00.0 is no GPU of this machine: it has 0000:03:00.0"},
		{[]string{"--restore", "--yes", "--file", state}, exitData, "version 0, this program reads 1"},
		{[]string{"--clear", "--yes", "--file", state}, exitData, "version 0, this program reads 1"},
	} {
		code, _, stderr := command(t, append([]string{"acs", "--root", root}, tt.args...)...)
		assert.Equal(t, tt.code, code, tt.args)
		assert.Contains(t, stderr, tt.want)
	}
}
