package objdiff

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/kmod/patch"
)

// TestObjects compares nv-kernel.o as it is and edited, RELEASE/stock and RELEASE/p2p in
// $MKP2PIMG_OBJECTS, of every release there. Its source tree is RELEASE in $MKP2PIMG_TREES.
func TestObjects(t *testing.T) {
	objects, trees := os.Getenv("MKP2PIMG_OBJECTS"), os.Getenv("MKP2PIMG_TREES")
	if objects == "" || trees == "" {
		t.Skip("MKP2PIMG_OBJECTS names no folder of objects, or MKP2PIMG_TREES none of source trees")
	}
	releases, err := filepath.Glob(filepath.Join(objects, "*", "p2p", "nv-kernel.o"))
	require.NoError(t, err)
	require.NotEmpty(t, releases, "%s has no RELEASE/p2p/nv-kernel.o", objects)
	for _, path := range releases {
		dir := filepath.Dir(filepath.Dir(path))
		release := filepath.Base(dir)
		t.Run(release, func(t *testing.T) {
			tree := os.DirFS(filepath.Join(trees, release))
			sources, functions := edited(t, tree)
			d := Compare(open(t, filepath.Join(dir, "stock", "nv-kernel.o")), open(t, path))
			report, err := Check(d, sources)
			t.Logf("\n%v", report)
			require.NoError(t, err)
			assert.Equal(t, functions, report.Edited, "the functions that the edits name, and those whose text differs")
			fmt.Printf("%-12s %6d functions: %3d edited, %d that inline such, %d by line numbers, %d by references\n",
				release, d.Functions.Same+d.Functions.Changed, report.Count(Edited), report.Count(Inlines),
				report.Count(LineNumbers), report.Count(Reference))
		})
	}
}

func open(t *testing.T, path string) *Object {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	o, err := Read(f)
	require.NoError(t, err, path)
	return o
}

// edited applies the edits to a copy of the files of tree that they change. It returns these, and
// the functions that the edits name.
func edited(t *testing.T, tree fs.FS) (sources []Source, functions []string) {
	t.Helper()
	r, err := patch.Plan(tree, patch.P2P(patch.Auto))
	require.NoError(t, err)
	patched := t.TempDir()
	for _, name := range r.Changed() {
		text, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		path := filepath.Join(patched, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, text, 0o600))
	}
	require.NoError(t, r.Write(patched))
	sources, err = ReadSources(tree, os.DirFS(patched), r.Changed())
	require.NoError(t, err)
	for _, o := range r.Edits {
		compiled := slices.ContainsFunc(sources, func(s Source) bool { return s.Path == o.Edit.File })
		if o.Status == patch.Applied && compiled {
			functions = append(functions, o.Edit.Func)
		}
	}
	slices.Sort(functions)
	return sources, slices.Compact(functions)
}
