package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lay makes a tree: a value is a file's text, or "-> target" for a link.
func lay(t *testing.T, tree map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range tree {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if len(text) > 3 && text[:3] == "-> " {
			require.NoError(t, os.Symlink(text[3:], path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

// tree is the inverse of lay.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	got := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			got[rel] = "-> " + target
			return err
		}
		b, err := os.ReadFile(path)
		got[rel] = string(b)
		return err
	}))
	return got
}

func TestPrepare(t *testing.T) {
	root := lay(t, map[string]string{
		"bin/cat":                   "cat",
		"bin/mawk":                  "mawk",
		"lib/x/libz.so.1":           "libz",
		"lib/x/same":                "-> /usr/lib/x/same",
		"usr/lib/x/same":            "same",
		"usr/lib/x/libz.so.1":       "-> /lib/x/libz.so.1",
		"usr/lib/x/libc.so":         "libc",
		"lib64/ld.so":               "-> /lib/x/ld.so",
		"usr/bin/gcc-12":            "gcc 12",
		"usr/bin/gcc-13":            "gcc 13",
		"usr/bin/which":             "own",
		"usr/bin/which.debianutils": "theirs",
		"etc/passwd":                "root",
	})
	want := map[string]string{
		"bin":                       "-> usr/bin",
		"lib":                       "-> usr/lib",
		"lib64":                     "-> usr/lib64",
		"usr/bin/cat":               "cat",
		"usr/bin/mawk":              "mawk",
		"usr/bin/awk":               "-> mawk",
		"usr/bin/gcc-12":            "gcc 12",
		"usr/bin/gcc-13":            "gcc 13",
		"usr/bin/gcc":               "-> gcc-12",
		"usr/bin/cc":                "-> gcc",
		"usr/bin/which":             "own",
		"usr/bin/which.debianutils": "theirs",
		"usr/lib/x/libz.so.1":       "libz",
		"usr/lib/x/same":            "same",
		"usr/lib/x/libc.so":         "libc",
		"usr/lib64/ld.so":           "-> /lib/x/ld.so",
		"etc/passwd":                "root",
	}
	for range 2 { // the second time nothing is left to do
		require.NoError(t, Prepare(root))
		assert.Equal(t, want, tree(t, root))
	}
}

func TestPrepareConflict(t *testing.T) {
	root := lay(t, map[string]string{"bin/sh": "dash", "usr/bin/sh": "bash"})
	err := Prepare(root)
	assert.ErrorContains(t, err, "both "+root+"/bin/sh and "+root+"/usr/bin/sh exist")
}

func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "roots", "0123")
	root, err := Make(t.Context(), dir, func(dir string) error {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
		return os.WriteFile(filepath.Join(dir, "bin/mawk"), nil, 0o755)
	})
	require.NoError(t, err)
	assert.Equal(t, Root{dir}, root)
	assert.FileExists(t, filepath.Join(dir, "usr/bin/awk"))

	broken := errors.New("truncated archive")
	root, err = Make(t.Context(), dir+"4", func(string) error { return broken })
	assert.ErrorIs(t, err, broken)
	assert.True(t, root.Host())
	assert.NoDirExists(t, dir+"4")
}
