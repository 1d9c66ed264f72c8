package patch

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// edit applies the edits of a mode to a tree in dir, as the command does.
func edit(t *testing.T, dir string, mode Mode) *Result {
	t.Helper()
	r, err := Plan(os.DirFS(dir), P2P(mode))
	require.NoError(t, err)
	require.NoError(t, r.WriteUndo(dir))
	return r
}

func rewrite(t *testing.T, path, old, text string) {
	t.Helper()
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(before), old)
	require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(before), old, text, 1)), 0o644))
}

func TestRevert(t *testing.T) {
	for name, modes := range map[string][]Mode{
		"once":         {All},
		"twice":        {All, All},
		"in two steps": {Minimal, All},
		"auto first":   {Auto, Minimal, All},
	} {
		for _, tree := range []string{"a1", "c"} {
			t.Run(name+" "+tree, func(t *testing.T) {
				dir := writeTree(t, loadTree(t, tree))
				stock := snapshot(t, dir)
				ids := 0
				for _, mode := range modes {
					for _, o := range edit(t, dir, mode).Edits {
						if o.Status == Applied {
							ids++
						}
					}
				}
				require.NotEqual(t, stock, snapshot(t, dir))
				done, err := Revert(dir)
				require.NoError(t, err)
				assert.Equal(t, stock, snapshot(t, dir))
				assert.Len(t, done.Edits, ids)
				for _, f := range done.Files {
					assert.True(t, f.Stock)
				}

				done, err = Revert(dir)
				require.NoError(t, err, "a second time")
				assert.Empty(t, done.Edits)
				assert.Empty(t, done.Files)
			})
		}
	}
}

func TestRevertTellsOfEditsWithoutRecord(t *testing.T) {
	dir := writeTree(t, loadTree(t, "c"))
	r, err := Plan(os.DirFS(dir), P2P(Minimal))
	require.NoError(t, err)
	require.NoError(t, r.Write(dir), "as patches do")
	patched := snapshot(t, dir)
	edit(t, dir, All)
	done, err := Revert(dir)
	var reverted *RevertError
	require.ErrorAs(t, err, &reverted)
	require.ErrorContains(t, err, "if they came as patches")
	assert.NotEmpty(t, done.Edits)
	assert.Equal(t, patched, snapshot(t, dir), "those of the record are gone")
}

func TestRevertKeepsOtherChanges(t *testing.T) {
	dir := writeTree(t, loadTree(t, "c"))
	stock := snapshot(t, dir)
	edit(t, dir, Auto)
	rewrite(t, filepath.Join(dir, uvmVASpace), "static NV_STATUS", "// mine\nstatic NV_STATUS")
	require.NoError(t, os.WriteFile(filepath.Join(dir, p2pCaps), []byte(stock["/"+p2pCaps]), 0o644), "someone put one file back")
	done, err := Revert(dir)
	require.NoError(t, err)
	for _, f := range done.Files {
		assert.Equal(t, f.Path != uvmVASpace, f.Stock, f.Path)
		assert.NotEqual(t, p2pCaps, f.Path)
	}
	stock["/"+uvmVASpace] = "// mine\n" + stock["/"+uvmVASpace]
	assert.Equal(t, stock, snapshot(t, dir))
}

func TestRevertRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		disturb func(t *testing.T, dir string)
		want    string
	}{
		"edited lines changed": {func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, busGP100), "_PCIE_BAR1, attributes))", "_PCIE_BAR1, attributes) || mine)")
		}, "the lines of edit P2P-E4-CREATE were changed since (found 0 times, want once)"},
		"a mark removed": {func(t *testing.T, dir string) {
			rewrite(t, filepath.Join(dir, busGP100), " // mkp2pimg P2P-E4-CREATE", "")
		}, "the lines of edit P2P-E4-CREATE were changed since"},
		"edited lines copied": {func(t *testing.T, dir string) {
			text, err := os.ReadFile(filepath.Join(dir, busHAL))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, busHAL), append(text, text...), 0o644))
		}, "found 2 times, want once"},
		"a file gone": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, busGP100)))
		}, busGP100 + " is gone"},
		"no record": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, UndoFile)))
		}, "has edits, but the tree has no .mkp2pimg-undo.json: if they came as patches"},
		"a record cut off": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, UndoFile), []byte(`{"version": 1, "edi`), 0o644))
		}, ".mkp2pimg-undo.json is damaged"},
		"a record of another version": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, UndoFile), []byte(`{"version": 7}`), 0o644))
		}, "has version 7, this program knows 1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, loadTree(t, "c"))
			edit(t, dir, Auto)
			test.disturb(t, dir)
			before := snapshot(t, dir)
			_, err := Revert(dir)
			var revert *RevertError
			require.ErrorAs(t, err, &revert)
			assert.ErrorContains(t, err, test.want)
			assert.Equal(t, before, snapshot(t, dir))
		})
	}
}

// A record is a file in a tree that someone may have got from elsewhere.
func TestRevertStaysInTheTree(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "outside.c")
	require.NoError(t, os.WriteFile(outside, []byte("new\n"), 0o644))
	for name, file := range map[string]string{"by its name": "../outside.c", "absolute": outside, "by a link": "link.c"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, "link.c")))
			record, err := json.Marshal(undo{Version: 1, Edits: []undoEdit{{"A-B", file, []byte("old\n"), []byte("new\n")}}})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, UndoFile), record, 0o644))
			_, err = Revert(dir)
			var revert *RevertError
			require.ErrorAs(t, err, &revert)
			assert.ErrorContains(t, err, file+", which lies outside of the tree")
			text, err := os.ReadFile(outside)
			require.NoError(t, err)
			assert.Equal(t, "new\n", string(text))
		})
	}
}

func TestWriteUndoWritesNothingForNothing(t *testing.T) {
	dir := writeTree(t, loadTree(t, "c"))
	edit(t, dir, None)
	_, err := os.Stat(filepath.Join(dir, UndoFile))
	assert.ErrorIs(t, err, fs.ErrNotExist)
	edit(t, dir, Auto)
	before := snapshot(t, dir)
	edit(t, dir, Auto)
	assert.Equal(t, before, snapshot(t, dir), "a second run changes something")
}

func FuzzTakeBack(f *testing.F) {
	record, err := json.Marshal(undo{
		Version: 1, Files: map[string]string{"a.c": "x"},
		Edits: []undoEdit{{"A-B", "a.c", []byte("old\n"), []byte("new // mkp2pimg A-B\n")}},
	})
	require.NoError(f, err)
	f.Add(record, []byte("new // mkp2pimg A-B\n"))
	f.Add([]byte(`{"version":1,"edits":[{"file":"a.c"}]}`), []byte(""))
	f.Fuzz(func(t *testing.T, record, text []byte) {
		tree := smallTree("")
		tree[UndoFile] = mapFile(record)
		tree["a.c"] = mapFile(text)
		_, u, err := readUndo(tree)
		if err != nil {
			return
		}
		changes, done, err := u.takeBack(tree)
		if err != nil {
			return
		}
		assert.Len(t, done.Files, len(changes))
	})
}

// A tree of someone else stays theirs when root edits it.
func TestOwnersStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	const uid, gid = 1234, 1235
	dir := writeTree(t, loadTree(t, "c"))
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, uid, gid))
	}))
	owned := func() {
		require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
			info, err := d.Info()
			require.NoError(t, err)
			stat := info.Sys().(*syscall.Stat_t)
			assert.Equal(t, [2]uint32{uid, gid}, [2]uint32{stat.Uid, stat.Gid}, path)
			return nil
		}))
	}
	edit(t, dir, All)
	owned()
	_, err := Revert(dir)
	require.NoError(t, err)
	owned()
}
