package build

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/patch"
)

// rmDir is the part of the driver that knows no kernel, in its source tree.
const rmDir = "src/nvidia/"

// TestCompileMatrix compiles the files of src/nvidia that the edits touch, as
// they are and edited, of every source tree in $MKP2PIMG_TREES. The edited must
// not be warned about for anything new. It prints a table of the releases.
func TestCompileMatrix(t *testing.T) {
	trees, toolchain := matrixInput(t)
	var table strings.Builder
	fmt.Fprintf(&table, "%-12s %7s %7s %7s %7s %9s", "release", "objects", "headers", "stock s", "p2p s", "warnings")
	for _, source := range trees {
		t.Run(filepath.Base(source), func(t *testing.T) {
			tree := copyTree(t, toolchain, source)
			plan, err := patch.Plan(os.DirFS(tree), patch.P2P(patch.All))
			require.NoError(t, err)
			objects, headers := touched(plan.Changed())
			require.NotEmpty(t, objects)

			stock, stockTime := compile(t, toolchain, tree, objects)
			require.NoError(t, plan.Write(tree))
			p2p, p2pTime := compile(t, toolchain, tree, objects)
			for warning, n := range p2p {
				assert.LessOrEqual(t, n, stock[warning], "%s: new warning: %s", plan.Driver, warning)
			}
			fmt.Fprintf(&table, "\n%-12s %7d %7d %7.1f %7.1f %4d %4d", plan.Driver, len(objects), len(headers),
				stockTime.Seconds(), p2pTime.Seconds(), total(stock), total(p2p))
			t.Logf("%s\n%s", strings.Join(objects, "\n"), strings.Join(headers, "\n"))
		})
	}
	t.Logf("warnings of stock and of edited objects:\n%s", table.String())
}

// matrixInput returns the source trees in $MKP2PIMG_TREES, and the root in
// $MKP2PIMG_TOOLCHAIN.
func matrixInput(t *testing.T) (trees []string, toolchain sandbox.Root) {
	t.Helper()
	for _, name := range []string{"MKP2PIMG_TREES", "MKP2PIMG_TOOLCHAIN"} {
		if os.Getenv(name) == "" {
			t.Skipf("compiles real drivers: %s is not set", name)
		}
	}
	versions, err := filepath.Glob(filepath.Join(os.Getenv("MKP2PIMG_TREES"), "*", "version.mk"))
	require.NoError(t, err)
	require.NotEmpty(t, versions, "no source tree in $MKP2PIMG_TREES")
	for _, v := range versions {
		trees = append(trees, filepath.Dir(v))
	}
	return trees, sandbox.Root{Dir: os.Getenv("MKP2PIMG_TOOLCHAIN")}
}

func copyTree(t *testing.T, toolchain sandbox.Root, source string) string {
	t.Helper()
	tree := t.TempDir()
	cmd := sandbox.Cmd{
		Root:  toolchain,
		Binds: []sandbox.Bind{{Host: source, Guest: guestFrom, ReadOnly: true}, {Host: tree, Guest: guestTree}},
		Argv:  copyCommand(guestFrom, guestTree),
	}
	require.NoError(t, cmd.Run(t.Context()))
	return tree
}

// touched returns the object that each C file of the list makes, and the headers
// in the list, as src/nvidia's Makefile names them.
func touched(files []string) (objects, headers []string) {
	for _, file := range files {
		name, ok := strings.CutPrefix(file, rmDir)
		base, isC := strings.CutSuffix(filepath.Base(name), ".c")
		switch {
		case ok && isC:
			objects = append(objects, "_out/Linux_x86_64/"+base+".o")
		case ok:
			headers = append(headers, name)
		}
	}
	return objects, headers
}

// compile makes objects of src/nvidia and counts what the compiler warns about.
func compile(t *testing.T, toolchain sandbox.Root, tree string, objects []string) (warnings map[string]int, wall time.Duration) {
	t.Helper()
	var log bytes.Buffer
	cmd := sandbox.Cmd{
		Root:   toolchain,
		Binds:  []sandbox.Bind{{Host: tree, Guest: guestTree}},
		Dir:    guestTree,
		Env:    environment(time.Time{}),
		Argv:   append([]string{"make", "-C", rmDir, "-j", strconv.Itoa(runtime.NumCPU())}, objects...),
		Stdout: &log,
		Stderr: &log,
	}
	start := time.Now()
	require.NoError(t, cmd.Run(t.Context()), "%s", &log)
	for _, object := range objects {
		name := strings.TrimSuffix(filepath.Base(object), ".o") + ".c"
		assert.Contains(t, log.String(), name+"\n", "was not compiled")
	}
	return countWarnings(log.String()), time.Since(start)
}

var warning = regexp.MustCompile(`(?m)^([^:\n]+):\d+(?::\d+)?: (warning: .*)$`)

// countWarnings counts the warnings in a compiler's output by file and text: an
// edit moves the lines of all that follow it.
func countWarnings(log string) map[string]int {
	count := map[string]int{}
	for _, m := range warning.FindAllStringSubmatch(log, -1) {
		count[m[1]+": "+m[2]]++
	}
	return count
}

func total(count map[string]int) (n int) {
	for v := range maps.Values(count) {
		n += v
	}
	return n
}

func TestCountWarnings(t *testing.T) {
	assert.Equal(t, map[string]int{
		"src/a.c: warning: unused variable 'x' [-Wunused-variable]": 2,
		"b.h: warning: \"X\" redefined":                             1,
	}, countWarnings("CC a.c\nsrc/a.c: In function 'f':\nsrc/a.c:3:7: warning: unused variable 'x' [-Wunused-variable]\n"+
		"src/a.c:9:7: warning: unused variable 'x' [-Wunused-variable]\n    3 | int x;\nb.h:1: warning: \"X\" redefined\nc.c:1:1: note: here\n"))
}

func TestTouched(t *testing.T) {
	objects, headers := touched([]string{"kernel-open/nvidia/nv-pci.c", "src/nvidia/generated/g_a_nvoc.c", "src/nvidia/inc/kernel/b.h", "src/common/c.c"})
	assert.Equal(t, []string{"_out/Linux_x86_64/g_a_nvoc.o"}, objects)
	assert.Equal(t, []string{"inc/kernel/b.h"}, headers)
}

// TestObjects writes the nv-kernel.o of every source tree in $MKP2PIMG_TREES, as
// it is and edited, to RELEASE/stock and RELEASE/p2p in $MKP2PIMG_OBJECTS. A tree
// that was compiled already, like those in the cache, is not compiled again.
func TestObjects(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_OBJECTS")
	if dir == "" {
		t.Skip("compiles for many minutes: MKP2PIMG_OBJECTS is not set to a directory for the objects")
	}
	trees, toolchain := matrixInput(t)
	for _, source := range trees {
		release, err := patch.TreeVersion(os.DirFS(source))
		require.NoError(t, err)
		t.Run(release, func(t *testing.T) {
			b := &builder{Config: Config{Toolchain: toolchain, Cache: t.TempDir(), Jobs: runtime.NumCPU(), Log: t.Output()}}
			from := source
			for _, set := range []struct {
				name   string
				change func(string) error
			}{
				{"stock", nil},
				{"p2p", func(tree string) error { return apply(tree, patch.P2P(patch.Auto)) }},
			} {
				partial := t.TempDir()
				require.NoError(t, b.build(t.Context(), job{label: set.name, entry: filepath.Join(b.Cache, set.name), from: from, partial: partial, change: set.change}))
				from = filepath.Join(partial, treeDir)
				object, err := os.ReadFile(filepath.Join(from, "kernel-open/nvidia/nv-kernel.o_binary"))
				require.NoError(t, err)
				out := filepath.Join(dir, release, set.name)
				require.NoError(t, os.MkdirAll(out, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(out, "nv-kernel.o"), object, 0o644))
			}
			for _, s := range b.steps {
				t.Logf("%-20s %6.1f s", s.Name, s.Wall.Seconds())
			}
		})
	}
}
