package build

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/sandbox"
	"mkp2pimg/kmod/ko"
	"mkp2pimg/kmod/patch"
)

// fullConfig is a build of a real driver. Its environment: MKP2PIMG_TOOLCHAIN (a
// root with ToolchainPackages and headers), MKP2PIMG_KERNEL (their release) and
// MKP2PIMG_SOURCE (a driver's full source tree).
func fullConfig(t *testing.T) Config {
	t.Helper()
	cfg := Config{
		Toolchain:    sandbox.Root{Dir: os.Getenv("MKP2PIMG_TOOLCHAIN")},
		ToolchainKey: "toolchain",
		CompilerKey:  "compiler",
		Source:       os.Getenv("MKP2PIMG_SOURCE"),
		SourceKey:    "source",
		Kernel:       os.Getenv("MKP2PIMG_KERNEL"),
		Epoch:        time.Unix(1750000000, 0),
		Compat:       func(tree, headers string) error { return apply(tree, patch.Compat(os.DirFS(headers))) },
		CompatKey:    "compat",
		Edit:         func(tree string) error { return apply(tree, patch.P2P(patch.Auto)) },
		EditKey:      "edits",
		Cache:        filepath.Join(t.TempDir(), "a"),
	}
	require.False(t, cfg.Toolchain.Host(), "MKP2PIMG_TOOLCHAIN is not set")
	return cfg
}

// TestFull compiles a real driver twice, which takes many minutes: stock and
// then edited, from the objects of the stock build; and the edited source from
// nothing, in another directory. The edited modules must be the same bytes.
func TestFull(t *testing.T) {
	if os.Getenv("MKP2PIMG_FULL") != "1" {
		t.Skip("compiles for many minutes: asked for with MKP2PIMG_FULL=1")
	}
	cfg := fullConfig(t)
	r, log := fullBuild(t, cfg)
	compiled := 0
	_, p2p, _ := bytes.Cut(log, []byte("EDITED"))
	for line := range bytes.Lines(p2p) {
		if bytes.Contains(line, []byte(" CC ")) {
			compiled++
			t.Logf("compiled after the edits: %s", bytes.TrimSpace(line))
		}
		assert.NotContains(t, string(line), "CONFTEST")
	}
	assert.NotZero(t, compiled)

	_, output, err := Headers(cfg.Toolchain, cfg.Kernel)
	require.NoError(t, err)
	for _, set := range [][]Module{r.Stock, r.P2P} {
		nvidia, err := ko.Open(set[0].Path)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(nvidia.Vermagic, cfg.Kernel+" "), nvidia.Vermagic)
		reports, err := Check(set, filepath.Join(output, "Module.symvers"), nvidia.Vermagic)
		require.NoError(t, err)
		for i, report := range reports {
			assert.NoError(t, report.Err())
			t.Logf("%s: %d bytes, SHA-256 %s, %d imports from %v", set[i].Name, set[i].Size, set[i].SHA256, report.Imports, report.From)
		}
	}
	assert.NotEqual(t, r.Stock[0].SHA256, r.P2P[0].SHA256)

	start := time.Now()
	again, err := Build(t.Context(), cfg)
	require.NoError(t, err)
	assert.Empty(t, again.Steps)
	t.Logf("nothing changed: %.2f s", time.Since(start).Seconds())

	// Of a source that has the edits already, the stock modules are the edited.
	scratch := cfg
	scratch.Cache = filepath.Join(t.TempDir(), "elsewhere", "b")
	scratch.Source = copyTree(t, cfg.Toolchain, cfg.Source)
	require.NoError(t, cfg.Edit(scratch.Source))
	scratch.Edit, scratch.EditKey = nil, ""
	scratch.Jobs = 3
	s, _ := fullBuild(t, scratch)
	for i := range s.Stock {
		assert.Equal(t, r.P2P[i].SHA256, s.Stock[i].SHA256, s.Stock[i].Name)
	}
}

// TestBuildRatio compares the time for the needed modules with that of the
// source's own "make modules", on one tree in one run. The latter makes the
// modules for displays and network cards as well, and debug information, as the
// kernel's configuration asks for; it is also timed without that.
//
// Its root must have g++-12 and xz-utils too, for the modules of displays.
func TestBuildRatio(t *testing.T) {
	if os.Getenv("MKP2PIMG_BENCH") != "1" {
		t.Skip("compiles for many minutes: asked for with MKP2PIMG_BENCH=1")
	}
	cfg := fullConfig(t)
	cfg.Jobs = runtime.NumCPU()
	both, _ := fullBuild(t, cfg)
	var stock, p2p effort
	for _, s := range both.Steps {
		set := &stock
		if strings.HasPrefix(s.Name, "p2p: ") {
			set = &p2p
		}
		*set = set.plus(effort{s.Wall, s.CPU})
	}
	headers, _, err := Headers(cfg.Toolchain, cfg.Kernel)
	require.NoError(t, err)
	upstream := func(variables ...string) effort {
		tree := copyTree(t, cfg.Toolchain, cfg.Source)
		require.NoError(t, cfg.Compat(tree, headers))
		var log bytes.Buffer
		cmd := sandbox.Cmd{
			Root:  cfg.Toolchain,
			Binds: []sandbox.Bind{{Host: tree, Guest: guestTree}},
			Dir:   guestTree,
			Env:   environment(cfg.Epoch),
			// There is no pahole in the root, which BTF would need.
			Argv: append([]string{
				"make", "modules", "-j", strconv.Itoa(cfg.Jobs), "KERNEL_UNAME=" + cfg.Kernel, "CONFIG_DEBUG_INFO_BTF_MODULES=",
			}, append(variables, debianArch...)...),
			Stdout: &log,
			Stderr: &log,
		}
		start := time.Now()
		require.NoError(t, cmd.Run(t.Context()), "%s", &log)
		return effort{time.Since(start), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	}
	asShipped, lean := upstream(), upstream("CONFIG_DEBUG_INFO=")
	t.Logf("%d compilers at a time, load %s", cfg.Jobs, load(t))
	for _, ours := range []struct {
		name string
		effort
	}{{"stock modules", stock}, {"stock and p2p modules", stock.plus(p2p)}} {
		for _, theirs := range []struct {
			name string
			effort
		}{{"make modules", asShipped}, {"make modules without debug information", lean}} {
			t.Logf("%-21s / %s: %.2f by the clock (%.1f s / %.1f s), %.2f in time of CPU (%.0f s / %.0f s)", ours.name, theirs.name,
				ours.wall.Seconds()/theirs.wall.Seconds(), ours.wall.Seconds(), theirs.wall.Seconds(),
				ours.cpu.Seconds()/theirs.cpu.Seconds(), ours.cpu.Seconds(), theirs.cpu.Seconds())
		}
	}
}

// effort is what a build took, by the clock and of all CPUs.
type effort struct{ wall, cpu time.Duration }

func (e effort) plus(o effort) effort { return effort{e.wall + o.wall, e.cpu + o.cpu} }

// load is the machine's load average.
func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

func apply(tree string, edits []patch.Edit) error {
	result, err := patch.Plan(os.DirFS(tree), edits)
	if err != nil {
		return err
	}
	return result.Write(tree)
}

// fullBuild builds and reports each step. In the log it marks where the edits
// were made.
func fullBuild(t *testing.T, cfg Config) (*Result, []byte) {
	t.Helper()
	var log bytes.Buffer
	cfg.Log = &log
	if edit := cfg.Edit; edit != nil {
		cfg.Edit = func(tree string) error {
			log.WriteString("EDITED\n")
			return edit(tree)
		}
	}
	r, err := Build(t.Context(), cfg)
	require.NoError(t, err)
	for _, s := range r.Steps {
		t.Logf("%-24s %6.1f s, %6.1f s of CPU, %4d MB", s.Name, s.Wall.Seconds(), s.CPU.Seconds(), s.PeakRSS/1e6)
	}
	return r, log.Bytes()
}
