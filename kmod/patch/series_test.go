package patch

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

func TestToolsTakeTheSeries(t *testing.T) {
	for _, test := range []struct {
		tree  string
		mode  Mode
		tools []string
	}{
		{"a1", All, []string{"patch", "git apply", "git am"}},
		{"c", Minimal, []string{"patch", "git apply", "git am", "quilt"}},
	} {
		t.Run(test.tree, func(t *testing.T) {
			tree := loadTree(t, test.tree)
			result, err := Plan(tree, P2P(test.mode))
			require.NoError(t, err)
			assertToolsTake(t, tree, result, test.tools...)
		})
	}
}

// assertToolsTake applies the diff and both forms of the series with the tools they are for, and
// compares the files with those of the result. Tools that are not installed are left out.
func assertToolsTake(t *testing.T, tree fs.FS, r *Result, tools ...string) {
	patches := filepath.Join(t.TempDir(), "patches")
	require.NoError(t, r.WriteQuilt(patches))
	mailbox := filepath.Join(t.TempDir(), "mbox")
	require.NoError(t, os.WriteFile(mailbox, []byte(r.Mailbox()), 0o644))
	diff := filepath.Join(t.TempDir(), "diff")
	require.NoError(t, os.WriteFile(diff, []byte(r.Diff()), 0o644))
	git := []string{"git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false"}
	for name, commands := range map[string][][]string{
		"patch":     {{"patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-s", "-i", diff}},
		"git apply": {{"git", "apply", diff}},
		"git am": {
			append(git, "init", "-q"), append(git, "add", "."), append(git, "commit", "-q", "-m", "stock"),
			append(git, "am", "-q", mailbox), {"rm", "-r", ".git"},
		},
		"quilt": {{"quilt", "--quiltrc", "-", "push", "-a", "-q", "--fuzz=0"}, {"rm", "-r", ".pc"}},
	} {
		if _, err := exec.LookPath(commands[0][0]); err != nil || !slices.Contains(tools, name) {
			continue
		}
		dir, _ := changedFiles(t, tree, r)
		for _, args := range commands {
			cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "QUILT_PATCHES="+patches)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s: %s", name, out)
		}
		want := map[string]string{}
		for _, c := range r.changes() {
			want["/"+c.name] = string(c.new)
		}
		assert.True(t, maps.Equal(want, snapshot(t, dir)), "%s makes other files", name)
	}
}

func TestDEP3(t *testing.T) {
	result, err := Plan(loadTree(t, "c"), P2P(Minimal))
	require.NoError(t, err)
	series := result.Series()
	require.Len(t, series, 7)
	golden.Equal(t, "testdata/c.patch", series[5].DEP3())
	mailbox := result.Mailbox()
	assert.Equal(t, 7, strings.Count(mailbox, "\nFrom: mkp2pimg <"))
	golden.Equal(t, "testdata/c.mbox", mailbox[:strings.Index(mailbox, "\n-- \n")])
}

func TestWriteQuiltFollowsASeries(t *testing.T) {
	result, err := Plan(loadTree(t, "c"), P2P(Minimal))
	require.NoError(t, err)
	alone := filepath.Join(t.TempDir(), "patches")
	require.NoError(t, result.WriteQuilt(alone))
	want := snapshot(t, alone)
	ours := want["/series"]
	for series, before := range map[string]string{"": "", "a.patch -p0\n# later": "a.patch -p0\n# later\n", "a.patch\n": "a.patch\n"} {
		dir := t.TempDir()
		for name, text := range map[string]string{"series": series, "a.patch": "a"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		require.NoError(t, result.WriteQuilt(dir))
		want["/series"], want["/a.patch"] = before+ours, "a"
		assert.Equal(t, want, snapshot(t, dir))
	}
}

func TestWriteQuiltKeepsOthersFiles(t *testing.T) {
	result, err := Plan(loadTree(t, "c"), P2P(Minimal))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, result.WriteQuilt(dir), "an empty directory is taken")
	before := snapshot(t, dir)
	assert.Len(t, before, 8)
	var taken *OutputError
	require.ErrorAs(t, result.WriteQuilt(dir), &taken)
	assert.ErrorContains(t, taken, "has p2p-e2-create.patch already: take out the edits that are there")
	assert.Equal(t, before, snapshot(t, dir))
	require.NoError(t, os.Remove(filepath.Join(dir, quiltSeries)))
	require.ErrorAs(t, result.WriteQuilt(dir), &taken, "patches without a series")
	entries, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	for _, e := range entries {
		assert.NotContains(t, e.Name(), ".mkp2pimg", "scratch is left")
	}
}
