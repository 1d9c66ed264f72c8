package patch

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMatrix plans the edits over every source tree in $MKP2PIMG_TREES: folders of trees, or bare
// git repositories that have the releases as tags or as commits with the release as their title,
// separated by colons. It prints a table of release × edit.
func TestMatrix(t *testing.T) {
	dirs := os.Getenv("MKP2PIMG_TREES")
	if dirs == "" {
		t.Skip("MKP2PIMG_TREES is not set to folders of driver trees or bare git repositories")
	}
	trees := findTrees(t, filepath.SplitList(dirs))
	require.NotEmpty(t, trees, "no tree found in %s", dirs)
	edits := P2P(Auto)
	rows := make([]string, len(trees))
	t.Run("release", func(t *testing.T) {
		for i, tree := range trees {
			t.Run(tree.name, func(t *testing.T) {
				t.Parallel()
				rows[i] = checkTree(t, tree.open(t), edits, i == 0 || trees[i-1].branch() != tree.branch())
			})
		}
	})
	var table strings.Builder
	for i, e := range edits {
		fmt.Fprintf(&table, "%3d %s: %s\n", i+1, e.ID, e.Title)
	}
	fmt.Fprintf(&table, "%-12s", "release")
	for i := range edits {
		fmt.Fprintf(&table, "%3d", i+1)
	}
	t.Logf("%d trees: + applied, = already applied, . not needed, ! refused\n%s\n%s",
		len(trees), table.String(), strings.Join(rows, "\n"))
}

// checkTree tries everything on one tree and returns its row of the table. The first release of a
// branch is also broken by hand, and tried with the tools that take patches.
func checkTree(t *testing.T, tree fs.FS, edits []Edit, first bool) string {
	result, err := Plan(tree, edits)
	assert.NoError(t, err)
	require.NotNil(t, result)
	marks := map[Status]string{Applied: "+", AlreadyApplied: "=", NotNeeded: ".", Refused: "!"}
	row := fmt.Sprintf("%-12s", result.Driver)
	for _, o := range result.Edits {
		row += fmt.Sprintf("%3s", marks[o.Status])
	}
	if err != nil {
		return row
	}
	assertWhole(t, result)

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

	for _, mode := range []Mode{Minimal, All, None} {
		r, err := Plan(tree, P2P(mode))
		require.NoError(t, err, mode)
		assert.Equal(t, mode == None, len(r.Changed()) == 0, mode)
	}
	for _, kernel := range []fs.FS{threeArguments, fourArguments} {
		r, err := Plan(tree, append(Compat(kernel), edits...))
		require.NoError(t, err)
		assertWhole(t, r)
	}
	assertReverts(t, tree, result)
	if first {
		assertRefusesBroken(t, tree)
		assertRevertsSteps(t, tree)
		assertToolsTake(t, tree, result, "patch", "git apply", "git am")
	}
	return row
}

// assertWhole checks that edits which belong together are all there, and the others not needed
// for a stated reason.
func assertWhole(t *testing.T, r *Result) {
	in := map[string]bool{}
	for _, o := range r.Edits {
		in[o.Edit.ID] = o.In()
		if o.Status == NotNeeded {
			assert.NotEmpty(t, o.Reason, o.Edit.ID)
			assert.True(t, o.LeftOut || len(o.Evidence) > 0, "%s: no line shows that it is not needed", o.Edit.ID)
		}
	}
	for _, id := range []string{
		"P2P-E2-CREATE", "P2P-E2-REMOVE", "P2P-E2-HAS", "P2P-E2-SUPPORTED", "P2P-E2-DMA", "P2P-E4-CREATE", "P2P-E4-REMOVE",
	} {
		assert.True(t, in[id], "every release needs %s", id)
	}
	for _, pair := range [][2]string{
		{"P2P-E2-STATIC-ENABLE", "P2P-E2-STATIC-DISABLE"},
		{"P2P-E2-STATIC-MAP", "P2P-E2-STATIC-UNMAP"},
		{"P2P-E2-STATIC-NEED", "P2P-E2-STATIC-CAPABILITY"},
		{"P2P-E2-CPU-MAP", "P2P-E2-CPU-UNMAP"},
		{"P2P-E2-CPU-MAP-0", "P2P-E2-CPU-UNMAP-0"},
		{"P2P-E2-START", "P2P-E2-CPU-MAP"},
	} {
		assert.Equal(t, in[pair[0]], in[pair[1]], "%s without its other half", pair)
	}
	one := func(ids ...string) bool {
		n := 0
		for _, id := range ids {
			if in[id] {
				n++
			}
		}
		assert.LessOrEqual(t, n, 1, "edits that exclude each other: %s", ids)
		return n == 1
	}
	assert.True(t, one("P2P-E5-FALLBACK", "P2P-E5-FALLBACK-PCIE"), "nothing keeps a pair off the mailbox")
	one("P2P-E6-MANAGED", "P2P-E6-MANAGED-PARENT")
	static := one("P2P-E2-STATIC-NEED", "P2P-E2-STATIC-CAPABLE")
	assert.Equal(t, in["P2P-E2-STATIC-ENABLE"], static, "static BAR1 is never asked for")
	assert.Equal(t, static, one("P2P-E2-CPU-MAP", "P2P-E2-CPU-MAP-0"), "the CPU can't map beside static BAR1")
	assert.Equal(t, in["P2P-E3-ADDRESS"], one("P2P-E3-APERTURE", "P2P-E3-APERTURE-GB"), "page table entries are half edited")
	assert.Equal(t, in["P2P-E3-ADDRESS-PHYS"], one("P2P-E3-APERTURE-PHYS", "P2P-E3-APERTURE-GB-PHYS"), "physical addresses are half edited")
}

// changedFiles puts the files that a result changes into a new directory, as they were.
func changedFiles(t *testing.T, tree fs.FS, r *Result) (dir string, before map[string]string) {
	files := fstest.MapFS{}
	for _, name := range r.Changed() {
		text, err := fs.ReadFile(tree, name)
		require.NoError(t, err)
		files[name] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	dir = writeTree(t, files)
	return dir, snapshot(t, dir)
}

func assertReverts(t *testing.T, tree fs.FS, r *Result) {
	dir, before := changedFiles(t, tree, r)
	require.NoError(t, r.WriteUndo(dir))
	for name, text := range snapshot(t, dir) {
		if name != "/"+UndoFile {
			assert.NotEqual(t, before[name], text)
		}
	}
	done, err := Revert(dir)
	require.NoError(t, err)
	for _, f := range done.Files {
		assert.True(t, f.Stock, f.Path)
	}
	assert.True(t, maps.Equal(before, snapshot(t, dir)), "the tree is not what it was")
}

// assertRevertsSteps edits in two steps and takes both back at once.
func assertRevertsSteps(t *testing.T, tree fs.FS) {
	whole, err := Plan(tree, P2P(All))
	require.NoError(t, err)
	dir, before := changedFiles(t, tree, whole)
	for _, mode := range []Mode{Minimal, All} {
		r, err := Plan(layers{os.DirFS(dir), tree}, P2P(mode))
		require.NoError(t, err)
		require.NoError(t, r.WriteUndo(dir))
	}
	done, err := Revert(dir)
	require.NoError(t, err)
	assert.Len(t, done.Edits, len(whole.Series()))
	assert.True(t, maps.Equal(before, snapshot(t, dir)), "the tree is not what it was")
}

// layers is a tree some of whose files lie in another.
type layers struct{ top, below fs.FS }

func (l layers) Open(name string) (fs.File, error) {
	if f, err := l.top.Open(name); err == nil {
		return f, nil
	}
	return l.below.Open(name)
}

// fileOver is a tree with one file replaced.
type fileOver struct {
	fs.FS
	name, text string
}

func (o fileOver) Open(name string) (fs.File, error) {
	if name == o.name {
		return fstest.MapFS{name: {Data: []byte(o.text)}}.Open(name)
	}
	return o.FS.Open(name)
}

// overlay is a tree with a result's edits applied.
type overlay struct {
	fs.FS
	result *Result
}

func (o overlay) Open(name string) (fs.File, error) {
	if f := o.result.src.files[name]; f != nil && !f.missing {
		return fstest.MapFS{name: {Data: f.new.src}}.Open(name)
	}
	return o.FS.Open(name)
}

// release is a source tree by the name of its release.
type release struct {
	name string
	open func(t *testing.T) fs.FS
}

func (r release) branch() string { return strings.Split(r.name, ".")[0] }

// firstRelease is the first branch that the edits are meant for.
const firstRelease = 535

// findTrees lists the source trees in dirs, sorted by release, each release once.
func findTrees(t *testing.T, dirs []string) []release {
	byName := map[string]release{}
	for _, dir := range dirs {
		list := folderTrees
		if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
			list = gitTrees
		}
		for _, r := range list(t, dir) {
			if _, ok := byName[r.name]; !ok {
				byName[r.name] = r
			}
		}
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b release) int {
		return cmp.Or(slices.Compare(numbers(a.name), numbers(b.name)), cmp.Compare(a.name, b.name))
	})
}

func numbers(version string) []int {
	var all []int
	for part := range strings.SplitSeq(version, ".") {
		n, _ := strconv.Atoi(part)
		all = append(all, n)
	}
	return all
}

func folderTrees(t *testing.T, dir string) []release {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var all []release
	for _, e := range entries {
		tree := os.DirFS(filepath.Join(dir, e.Name()))
		if _, err := fs.Stat(tree, "version.mk"); err == nil {
			all = append(all, release{e.Name(), func(*testing.T) fs.FS { return tree }})
		}
	}
	return all
}

// gitTrees lists the tags of a bare repository that are releases, and the commits whose title is
// one: mirrors need not have the tags.
func gitTrees(t *testing.T, dir string) []release {
	var all []release
	for _, args := range [][]string{
		{"for-each-ref", "--format=%(objectname) %(refname:short)", "refs/tags"},
		{"log", "--all", "--format=%H %s"},
	} {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...).Output()
		require.NoError(t, err)
		for line := range strings.Lines(string(out)) {
			object, name, _ := strings.Cut(strings.TrimSpace(line), " ")
			if regexp.MustCompile(`^\d+(\.\d+)+$`).MatchString(name) && numbers(name)[0] >= firstRelease {
				all = append(all, release{name, func(t *testing.T) fs.FS { return gitTree{startCatFile(t, dir), object} }})
			}
		}
	}
	return all
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

// gitTree is the tree of a tag or commit.
type gitTree struct {
	cat    *catFile
	object string
}

func (g gitTree) Open(name string) (fs.File, error) {
	kind, text, err := g.cat.read(g.object + ":" + name)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	if kind == "tree" {
		return fstest.MapFS{name + "/entry": {}}.Open(name)
	}
	return fstest.MapFS{name: {Data: text}}.Open(name)
}
