package patch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMatrix plans the edits over every source tree in $MKP2PIMG_TREES: a folder of trees, or a
// bare git repository with a tag per release. It prints a table of release × edit.
func TestMatrix(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_TREES")
	if dir == "" {
		t.Skip("MKP2PIMG_TREES is not set to a folder of driver trees or a bare git repository")
	}
	edits := P2P(Auto)
	var legend, table strings.Builder
	fmt.Fprintf(&table, "%-12s", "release")
	for i, e := range edits {
		fmt.Fprintf(&table, "%3d", i+1)
		fmt.Fprintf(&legend, "%3d %s: %s\n", i+1, e.ID, e.Title)
	}
	marks := map[Status]string{Applied: "+", AlreadyApplied: "=", NotNeeded: ".", Refused: "!"}
	count := 0
	for name, tree := range trees(t, dir) {
		count++
		t.Run(name, func(t *testing.T) {
			result, err := Plan(tree, edits)
			assert.NoError(t, err)
			require.NotNil(t, result)
			fmt.Fprintf(&table, "\n%-12s", result.Driver)
			for _, o := range result.Edits {
				fmt.Fprintf(&table, "%3s", marks[o.Status])
			}
			if err != nil {
				return
			}
			again, err := Plan(overlay{tree, result}, edits)
			require.NoError(t, err)
			assert.Empty(t, again.Changed(), "a second run changes something")
			for i, o := range again.Edits {
				if result.Edits[i].Status == Applied {
					assert.Equal(t, AlreadyApplied, o.Status, o.Edit.ID)
				}
			}
			before, err := Offered(tree)
			require.NoError(t, err)
			after, err := Offered(overlay{tree, result})
			require.NoError(t, err)
			assert.Equal(t, before, after, "the edits change what is offered")
		})
	}
	require.NotZero(t, count, "no tree found in %s", dir)
	t.Logf("%d trees: + applied, = already applied, . not needed, ! refused\n%s%s", count, legend.String(), table.String())
}

// overlay is a tree with a result's edits applied.
type overlay struct {
	fs.FS
	result *Result
}

func (o overlay) Open(name string) (fs.File, error) {
	if f := o.result.src.files[name]; f != nil && !f.missing {
		return fstest.MapFS{name: {Data: f.new}}.Open(name)
	}
	return o.FS.Open(name)
}

// trees yields the source trees in dir by name.
func trees(t *testing.T, dir string) func(yield func(string, fs.FS) bool) {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		return gitTrees(t, dir)
	}
	return func(yield func(string, fs.FS) bool) {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, e := range entries {
			tree := os.DirFS(filepath.Join(dir, e.Name()))
			if _, err := fs.Stat(tree, "version.mk"); err == nil && !yield(e.Name(), tree) {
				return
			}
		}
	}
}

// firstRelease is the first branch that the edits are meant for.
const firstRelease = 535

func gitTrees(t *testing.T, dir string) func(yield func(string, fs.FS) bool) {
	out, err := exec.CommandContext(t.Context(), "git", "-C", dir, "tag", "--sort=version:refname").Output()
	require.NoError(t, err)
	tags := slices.DeleteFunc(strings.Fields(string(out)), func(tag string) bool {
		branch, err := strconv.Atoi(strings.Split(tag, ".")[0])
		return err != nil || branch < firstRelease
	})
	return func(yield func(string, fs.FS) bool) {
		cat := startCatFile(t, dir)
		for _, tag := range tags {
			if !yield(tag, gitTree{cat, tag}) {
				return
			}
		}
	}
}

// catFile is a running "git cat-file --batch".
type catFile struct {
	in  io.WriteCloser
	out *bufio.Reader
}

func startCatFile(t *testing.T, dir string) *catFile {
	// The command ends when its input is closed, after the test's own context is done.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", "-C", dir, "cat-file", "--batch")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		assert.NoError(t, in.Close())
		assert.NoError(t, cmd.Wait())
	})
	return &catFile{in, bufio.NewReader(out)}
}

func (c *catFile) read(object string) (kind string, text []byte, err error) {
	if _, err := fmt.Fprintln(c.in, object); err != nil {
		return "", nil, err
	}
	header, err := c.out.ReadString('\n')
	if err != nil {
		return "", nil, err
	}
	fields := strings.Fields(header)
	if len(fields) != 3 {
		return "", nil, fs.ErrNotExist
	}
	size, err := strconv.Atoi(fields[2])
	if err != nil {
		return "", nil, err
	}
	text = make([]byte, size+1)
	_, err = io.ReadFull(c.out, text)
	return fields[1], text[:size], err
}

// gitTree is the tree of a tag.
type gitTree struct {
	cat *catFile
	tag string
}

func (g gitTree) Open(name string) (fs.File, error) {
	kind, text, err := g.cat.read(g.tag + ":" + name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if kind == "tree" {
		return fstest.MapFS{name + "/entry": {}}.Open(name)
	}
	return fstest.MapFS{name: {Data: text}}.Open(name)
}
