package patch

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"

	"mkp2pimg/internal/golden"
	"mkp2pimg/kmod/loadopt"
)

// loadTree returns a tree of testdata.
func loadTree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", name+".txtar"))
	require.NoError(t, err)
	tree := fstest.MapFS{}
	for _, f := range archive.Files {
		tree[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o644}
	}
	return tree
}

func mapFile[T string | []byte](text T) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }

// smallTree is a tree with one C file.
func smallTree(src string) fstest.MapFS {
	return fstest.MapFS{
		"version.mk":        {Data: []byte("NVIDIA_VERSION = 1.2\n")},
		"kernel-open/empty": {},
		"src/nvidia/a.c":    {Data: []byte(src)},
	}
}

const two = "int f(int a);\n\nint f(int a)\n{\n    old(a); // old(a);\n    return a;\n}\n\nint g(int a)\n{\n    old(a);\n}\n"

func smallEdit() Edit {
	return Edit{
		ID: "TEST-A", Title: "t", Why: "w", Replaces: "r", Role: Core,
		File: "src/nvidia/a.c", Func: "f",
		Anchor: regexp.MustCompile(`old\((\w)\);`), New: "new(${1});",
		Proofs: []Proof{once("new is called", `new\(a\);`), gone("old is not", `old\(`)},
	}
}

func TestPlan(t *testing.T) {
	for name, test := range map[string]struct {
		src, want  string
		edit       func(*Edit)
		status     Status
		reason     string
		candidates []string
		before     int
	}{
		"applied": {
			src:    two,
			want:   strings.Replace(two, "old(a); // old(a);", "new(a); // old(a); // mkp2pimg TEST-A", 1),
			status: Applied, before: 5,
		},
		"already applied": {
			src:    "int f(int a)\n{\n    new(a); // mkp2pimg TEST-A\n}\n",
			edit:   func(e *Edit) { e.Needs = []Test{{File: e.File, Pattern: regexp.MustCompile(`old`), Else: "no old"}} },
			status: AlreadyApplied,
		},
		"applied by someone else": {
			src:    "int f(int a)\n{\n    new(a);\n}\n",
			status: AlreadyApplied,
		},
		"applied, then changed": {
			src:    "int f(int a)\n{\n    newer(a); // mkp2pimg TEST-A\n}\n",
			status: Refused, reason: "src/nvidia/a.c: function f: the edit was made, but this does not hold any more: new is called",
		},
		"mark of an edit with a longer name": {
			src:    "int f(int a)\n{\n    new(a); // mkp2pimg TEST-A-B\n}\n",
			edit:   func(e *Edit) { e.Needs = []Test{{File: e.File, Pattern: regexp.MustCompile(`old`), Else: "no old"}} },
			status: NotNeeded, reason: "no old",
		},
		"not needed": {
			src: two,
			edit: func(e *Edit) {
				e.Needs = []Test{{File: e.File, Pattern: regexp.MustCompile(`return a`), Absent: true, Else: "it returns a"}}
			},
			status: NotNeeded, reason: "it returns a",
		},
		"skipped": {
			src: two, edit: func(e *Edit) { e.Skip = "left out" },
			status: NotNeeded, reason: "left out",
		},
		"a missing file passes no test": {
			src: two,
			edit: func(e *Edit) {
				e.Needs = []Test{{File: "src/none.c", Pattern: regexp.MustCompile(`x`), Else: "there is no x"}}
			},
			status: NotNeeded, reason: "there is no x",
		},
		"anchor removed": {
			src:        strings.Replace(two, "    old(a); // old(a);\n", "    older(a);\n    cold(a);\n", 1),
			edit:       func(e *Edit) { e.Anchor = regexp.MustCompile(`older\(b\);`) },
			status:     Refused,
			reason:     `src/nvidia/a.c: function f: anchor "older\\(b\\);" matches 0 times, want once`,
			candidates: []string{"5: older(a);"},
		},
		"anchor moved to another function": {
			src:    "int f(int a)\n{\n    return a;\n}\nint g(int a)\n{\n    old(a);\n}\n",
			status: Refused, reason: `src/nvidia/a.c: function f: anchor "old\\((\\w)\\);" matches 0 times, want once`,
			candidates: []string{"7: old(a);"},
		},
		"anchor only in a comment": {
			src:    "int f(int a)\n{\n    // old(a);\n    return a;\n}\n",
			status: Refused, reason: `src/nvidia/a.c: function f: anchor "old\\((\\w)\\);" matches 0 times, want once`,
		},
		"anchor duplicated": {
			src:    "int f(int a)\n{\n    old(a);\n    old(b);\n}\n",
			status: Refused, reason: `src/nvidia/a.c: function f: anchor "old\\((\\w)\\);" matches 2 times, want once`,
			candidates: []string{"3: old(a);", "4: old(b);"},
		},
		"function gone": {
			src:    "int frog(int a)\n{\n    old(a);\n}\nint h(void)\n{\n}\n",
			status: Refused, reason: "src/nvidia/a.c: function f is not defined here",
			candidates: []string{"1: frog"},
		},
		"function twice": {
			src:    "int f(int a)\n{\n    old(a);\n}\nint f(long a)\n{\n    old(a);\n}\n",
			status: Refused, reason: "src/nvidia/a.c: function f is defined 2 times here",
			candidates: []string{"1: f", "5: f"},
		},
		"file gone": {
			src: two, edit: func(e *Edit) { e.File = "src/nvidia/b.c" },
			status: Refused, reason: "src/nvidia/b.c is not in the tree",
		},
		"proof does not hold": {
			src: two, edit: func(e *Edit) { e.New = "newer(a);" },
			status: Refused, reason: "src/nvidia/a.c: function f: after the edit this does not hold: new is called",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := smallTree(test.src)
			edit := smallEdit()
			if test.edit != nil {
				test.edit(&edit)
			}
			result, err := Plan(tree, []Edit{edit})
			require.NotNil(t, result)
			require.Len(t, result.Edits, 1)
			o := result.Edits[0]
			assert.Equal(t, test.status, o.Status)
			assert.Equal(t, test.reason, o.Reason)
			assert.Equal(t, test.candidates, o.Candidates)
			assert.Equal(t, test.before, o.LineBefore)
			if test.want == "" {
				assert.Empty(t, result.Changed())
			} else {
				assert.Equal(t, test.want, string(result.src.files[edit.File].new.src))
			}
			if test.status == Refused {
				var refused *RefusedError
				require.ErrorAs(t, err, &refused)
				assert.ErrorContains(t, err, "1 edits do not fit the source of driver 1.2; nothing was changed\nTEST-A: "+test.reason)
				assert.ErrorContains(t, result.Write(t.TempDir()), test.reason)
			} else {
				assert.NoError(t, err)
			}
		})
	}
}

func TestPlanNumbersLines(t *testing.T) {
	insert := func(id, function string) Edit {
		e := smallEdit()
		e.ID, e.Func, e.New = id, function, "first(a);\n    second(a);\n    new(a);"
		return e
	}
	// The edit of the later function is planned first and moves when the earlier one grows.
	result, err := Plan(smallTree(two), []Edit{insert("TEST-G", "g"), insert("TEST-F", "f")})
	require.NoError(t, err)
	lines := [][2]int{}
	for _, o := range result.Edits {
		lines = append(lines, [2]int{o.LineBefore, o.LineAfter})
	}
	assert.Equal(t, [][2]int{{11, 13}, {5, 5}}, lines)

	result, err = Plan(smallTree(two), []Edit{insert("TEST-F", "f"), insert("TEST-G", "g")})
	require.NoError(t, err)
	assert.Equal(t, 11, result.Edits[1].LineBefore)
	assert.Equal(t, 13, result.Edits[1].LineAfter)
}

func TestPlanRefusesOtherTrees(t *testing.T) {
	const clone = "git clone --depth 1 -b 1.2 https://github.com/NVIDIA/open-gpu-kernel-modules"
	for name, test := range map[string]struct {
		tree fstest.MapFS
		want []string
	}{
		"nothing": {fstest.MapFS{}, []string{"it has neither version.mk nor src/nvidia"}},
		"no version": {
			fstest.MapFS{"src/nvidia/a": {}, "kernel-open/a": {}}, []string{"it has no version.mk"}},
		"odd version": {
			fstest.MapFS{"version.mk": mapFile("NVIDIA_VERSION = x\n"), "src/nvidia/a": {}}, []string{"its version.mk sets no NVIDIA_VERSION"}},
		"no kernel part": {
			fstest.MapFS{"version.mk": mapFile("NVIDIA_VERSION = 1.2\n"), "src/nvidia/a": {}}, []string{"kernel-open is missing"}},
		"kernel part only": {
			fstest.MapFS{"version.mk": mapFile("NVIDIA_VERSION = 1.2\n"), "kernel-open/a": {}},
			[]string{"src/nvidia, the source of the resource manager, is missing. ", clone}},
		"a distribution's package for DKMS": {
			fstest.MapFS{"Kbuild": mapFile("ccflags-y += -DNV_VERSION_STRING=\\\"1.2\\\"\n"), "nvidia/nv-kernel.o_binary": {}},
			[]string{"precompiled, as nvidia/nv-kernel.o_binary", clone, "apt-get source nvidia-open-gpu-kernel-modules"}},
		"NVIDIA's package": {
			fstest.MapFS{"kernel-open/Kbuild": mapFile("EXTRA_CFLAGS += -DNV_VERSION_STRING=\\\"1.2\\\"\n"), "kernel-open/nvidia/nv-kernel.o_binary": {}},
			[]string{"precompiled, as kernel-open/nvidia/nv-kernel.o_binary", clone}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Plan(test.tree, P2P(Auto))
			var tree *TreeError
			require.ErrorAs(t, err, &tree)
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestPlanTellsReadErrors(t *testing.T) {
	tree := smallTree(two)
	tree["src/nvidia/a.c"] = &fstest.MapFile{Mode: fs.ModeDir}
	_, err := Plan(tree, []Edit{smallEdit()})
	assert.ErrorContains(t, err, "edit TEST-A: read src/nvidia/a.c")
}

func TestGolden(t *testing.T) {
	for name, mode := range map[string]Mode{"a1": All, "c": Auto} {
		t.Run(name, func(t *testing.T) {
			tree := loadTree(t, name)
			result, err := Plan(tree, P2P(mode))
			require.NoError(t, err)
			golden.Equal(t, "testdata/"+name+".diff", result.Diff())

			again, err := Plan(overlay{tree, result}, P2P(mode))
			require.NoError(t, err)
			assert.Empty(t, again.Diff())
			for i, o := range again.Edits {
				if result.Edits[i].Status == Applied {
					assert.Equal(t, AlreadyApplied, o.Status, o.Edit.ID)
				}
			}
		})
	}
}

func TestModes(t *testing.T) {
	for _, test := range []struct {
		mode Mode
		want []string
	}{
		{None, []string{}},
		{Minimal, []string{
			"P2P-E2-CREATE", "P2P-E2-REMOVE", "P2P-E2-HAS", "P2P-E2-SUPPORTED", "P2P-E2-DMA",
			"P2P-E4-CREATE", "P2P-E4-REMOVE",
		}},
		{Auto, []string{
			"P2P-E2-CREATE", "P2P-E2-REMOVE", "P2P-E2-HAS", "P2P-E2-SUPPORTED", "P2P-E2-DMA",
			"P2P-E4-CREATE", "P2P-E4-REMOVE", "P2P-E5-FALLBACK-PCIE", "P2P-E6-MANAGED-PARENT",
		}},
	} {
		t.Run(string(test.mode), func(t *testing.T) {
			result, err := Plan(loadTree(t, "c"), P2P(test.mode))
			require.NoError(t, err)
			applied := []string{}
			for _, o := range result.Edits {
				if o.Status == Applied {
					applied = append(applied, o.Edit.ID)
				}
			}
			assert.Equal(t, test.want, applied)
		})
	}
}

func TestEditsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range append(P2P(All), Compat(fstest.MapFS{})...) {
		t.Run(e.ID, func(t *testing.T) {
			assert.False(t, seen[e.ID], "the ID is taken")
			seen[e.ID] = true
			for _, text := range []string{e.Title, e.Why, e.Replaces, e.File, e.New, string(e.Role)} {
				assert.NotEmpty(t, text)
			}
			assert.NotNil(t, e.Anchor)
			assert.NotEmpty(t, e.Proofs)
			for _, n := range e.Needs {
				assert.NotEmpty(t, n.Else)
			}
			for _, p := range e.Proofs {
				assert.NotEmpty(t, p.What)
			}
		})
	}
}

// Headers of kernels before and after pci_resize_resource got a fourth argument.
var (
	threeArguments = fstest.MapFS{pciHeader: mapFile("int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size);\n")}
	fourArguments  = fstest.MapFS{pciHeader: mapFile("int __must_check pci_resize_resource(struct pci_dev *dev, int i, int size,\n\t\t\t\t     int exclude_bars);\n")}
)

func TestCompat(t *testing.T) {
	three, four := threeArguments, fourArguments
	for name, test := range map[string]struct {
		tree    string
		headers fs.FS
		status  Status
		reason  string
	}{
		"four arguments":   {"a1", four, Applied, ""},
		"three arguments":  {"a1", three, NotNeeded, "pci_resize_resource of this kernel takes three arguments"},
		"no headers":       {"a1", fstest.MapFS{}, NotNeeded, "pci_resize_resource of this kernel takes three arguments"},
		"driver asks":      {"c", four, NotNeeded, "this release asks the kernel itself how many arguments the function takes"},
		"driver, old call": {"c", three, NotNeeded, "pci_resize_resource of this kernel takes three arguments"},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := Plan(loadTree(t, test.tree), Compat(test.headers))
			require.NoError(t, err)
			assert.Equal(t, test.status, result.Edits[0].Status)
			assert.Equal(t, test.reason, result.Edits[0].Reason)
			if test.status == Applied {
				golden.Equal(t, "testdata/compat.diff", result.Diff())
			}
		})
	}
}

func TestOffered(t *testing.T) {
	for name, want := range map[string]loadopt.Offer{
		"a1": {ResizableBAR: true, HoldsBack: true, ForceP2P: true, BAR1: loadopt.Joint},
		"c":  {ResizableBAR: true, ForceP2P: true, BAR1: loadopt.Separate, Static: loadopt.StaticAuto},
	} {
		t.Run(name, func(t *testing.T) {
			offer, err := Offered(loadTree(t, name))
			require.NoError(t, err)
			assert.Equal(t, want, offer)
		})
	}
	const macro = "#define NV_REG_STR_RM_FORCE_STATIC_BAR1_DEFAULT NV_REG_STR_RM_FORCE_STATIC_BAR1_"
	for name, test := range map[string]struct {
		file, text string
		want       loadopt.Offer
	}{
		"static BAR1 off":     {registry, macro + "DISABLE\n", loadopt.Offer{Static: loadopt.StaticOff}},
		"static BAR1 if used": {registry, macro + "ONLY_GPU\n", loadopt.Offer{Static: loadopt.StaticAsked}},
		"static BAR1 auto": {kernBus, "    pKernelBus->staticBar1ForceType = NV_REG_STR_RM_FORCE_STATIC_BAR1_AUTO;\n",
			loadopt.Offer{Static: loadopt.StaticAuto}},
		"messages": {nvReg, "NV_DEFINE_REG_STRING_ENTRY(__NV_RM_MSG, NULL);\n", loadopt.Offer{Messages: true}},
		"nothing":  {nvReg, "// NV_DEFINE_REG_STRING_ENTRY(__NV_RM_MSG, NULL);\n", loadopt.Offer{}},
	} {
		t.Run(name, func(t *testing.T) {
			offer, err := Offered(fstest.MapFS{test.file: {Data: []byte(test.text)}})
			require.NoError(t, err)
			assert.Equal(t, test.want, offer)
		})
	}
}

// writeTree puts a tree in a new directory.
func writeTree(t *testing.T, tree fs.FS) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, tree))
	return dir
}

// snapshot returns the text of all files below dir by path.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = string(text)
		return err
	}))
	return files
}

func TestWrite(t *testing.T) {
	dir := writeTree(t, loadTree(t, "a1"))
	untouched := filepath.Join(dir, "src/nvidia/interface/nvrm_registry.h")
	before, err := os.Stat(untouched)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(filepath.Join(dir, gpuOps), 0o600))

	result, err := Plan(os.DirFS(dir), P2P(Auto))
	require.NoError(t, err)
	require.NoError(t, result.Write(dir))
	files := snapshot(t, dir)
	assert.Len(t, files, len(loadTree(t, "a1")), "temporary files are left")
	for _, name := range result.Changed() {
		assert.Equal(t, string(result.src.files[name].new.src), files["/"+name])
	}
	after, err := os.Stat(untouched)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after), "an unchanged file was written")
	edited, err := os.Stat(filepath.Join(dir, gpuOps))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), edited.Mode().Perm())

	again, err := Plan(os.DirFS(dir), P2P(Auto))
	require.NoError(t, err)
	assert.Empty(t, again.Changed())
}

func TestWriteIsAllOrNothing(t *testing.T) {
	for name, disturb := range map[string]func(t *testing.T, dir string){
		"a file changed meanwhile": func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, p2pCaps), []byte("other\n"), 0o644))
		},
		"a file is gone": func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, gpuOps)))
		},
		"a file leads out of the tree": func(t *testing.T, dir string) {
			outside := filepath.Join(t.TempDir(), "outside.c")
			require.NoError(t, os.Rename(filepath.Join(dir, gpuOps), outside))
			require.NoError(t, os.Symlink(outside, filepath.Join(dir, gpuOps)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeTree(t, loadTree(t, "a1"))
			result, err := Plan(os.DirFS(dir), P2P(Auto))
			require.NoError(t, err)
			disturb(t, dir)
			before := snapshot(t, dir)
			assert.Error(t, result.Write(dir))
			assert.Equal(t, before, snapshot(t, dir))
		})
	}
}

func TestDiffIsTaken(t *testing.T) {
	for tool, args := range map[string][]string{
		"git":   {"apply", "--check", "-"},
		"patch": {"-p1", "--dry-run", "--fuzz=0"},
	} {
		t.Run(tool, func(t *testing.T) {
			if _, err := exec.LookPath(tool); err != nil {
				t.Skipf("%s is not installed", tool)
			}
			tree := loadTree(t, "a1")
			result, err := Plan(tree, P2P(Auto))
			require.NoError(t, err)
			cmd := exec.CommandContext(t.Context(), tool, args...)
			cmd.Dir = writeTree(t, tree)
			cmd.Stdin = strings.NewReader(result.Diff())
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s", out)
		})
	}
}
