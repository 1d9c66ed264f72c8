package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/internal/pipeline"
	"mkp2pimg/internal/runfile/runtest"
	"mkp2pimg/kmod/patch"
	"mkp2pimg/qemu"
)

// environ is the environment before TestMain takes the network away.
var environ = os.Environ()

// TestDriverMatrix builds an image of every source tree in $MKP2PIMG_TREES for
// each of the kernels in $MKP2PIMG_KERNELS, and boots it under QEMU with either
// set of modules. User space is Debian's for the default driver, else files
// that only look like it: without a GPU nothing of it is run.
//
// Images, lock files and logs stay in $MKP2PIMG_OUT. $MKP2PIMG_PROGRAM is the
// program to run. What it compiled once is in its cache.
func TestDriverMatrix(t *testing.T) {
	program, trees, out := os.Getenv("MKP2PIMG_PROGRAM"), os.Getenv("MKP2PIMG_TREES"), os.Getenv("MKP2PIMG_OUT")
	kernels := strings.Fields(os.Getenv("MKP2PIMG_KERNELS"))
	if program == "" || trees == "" || out == "" || len(kernels) == 0 {
		t.Skip("compiles drivers for hours: MKP2PIMG_PROGRAM, _TREES, _OUT and _KERNELS are not all set")
	}
	versions, err := filepath.Glob(filepath.Join(trees, "*", "version.mk"))
	require.NoError(t, err)
	require.NotEmpty(t, versions, "no source tree in $MKP2PIMG_TREES")
	var table strings.Builder
	fmt.Fprintf(&table, "%-12s %-22s %-5s %8s %8s %8s %9s %9s  %s", "release", "kernel", "set", "core s", "object s", "kbuild s", "nvidia", "uvm", "QEMU")
	for _, kernel := range kernels {
		for _, version := range versions {
			tree := filepath.Dir(version)
			release, err := patch.TreeVersion(os.DirFS(tree))
			require.NoError(t, err)
			t.Run(release+"/"+kernel, func(t *testing.T) {
				m := matrixImage{program: program, release: release, kernel: kernel, tree: tree, dir: filepath.Join(out, release+"-"+kernel)}
				for _, row := range m.test(t) {
					table.WriteString("\n" + row)
				}
			})
		}
	}
	t.Logf("seconds on the clock, sizes in MB:\n%s", table.String())
}

// matrixImage is one image of the matrix.
type matrixImage struct {
	program, release, kernel, tree string
	dir                            string // for all that it leaves
}

// run runs the program and returns what it prints; its log is kept.
func (m *matrixImage) run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	log, err := os.Create(filepath.Join(m.dir, name+".log"))
	require.NoError(t, err)
	defer log.Close()
	var stdout bytes.Buffer
	c := exec.CommandContext(t.Context(), m.program, args...)
	c.Env, c.Stdout, c.Stderr = environ, &stdout, log
	if !assert.NoError(t, c.Run(), "%s, see %s", c, log.Name()) {
		text, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		t.Logf("%s%s", text, stdout.String())
		t.FailNow()
	}
	return stdout.Bytes()
}

// test builds the image, boots it with each set of modules and returns a row of
// the table for each.
func (m *matrixImage) test(t *testing.T) (rows []string) {
	require.NoError(t, os.MkdirAll(m.dir, 0o755))
	image := filepath.Join(m.dir, "image")
	args := []string{
		"build", "--json", "--source-root", "../..", "--source", m.tree, "--kernel", m.kernel,
		"--lock", filepath.Join(m.dir, pipeline.LockName), "--out", image,
	}
	if m.release != pipeline.DefaultDriver {
		userspace := filepath.Join(m.dir, "made-up.run")
		runtest.Write(t, userspace, runtest.Options{Version: m.release, Files: runtest.Driver(t, m.release)})
		args = append(args, "--userspace", userspace)
	}
	var built pipeline.Result
	require.NoError(t, json.Unmarshal(m.run(t, "build", args...), &built))
	assert.Equal(t, m.release, built.Driver)
	took := map[string]time.Duration{}
	for _, s := range built.Compiled {
		t.Logf("%-24s %6.1f s, %6.1f s of CPU, %4d MB", s.Name, s.Wall.Seconds(), s.CPU.Seconds(), s.PeakRSS/1e6)
		took[s.Name] = s.Wall
	}
	dir, err := images.Open(image)
	require.NoError(t, err)
	sizes := map[string]int64{}
	for _, f := range dir.Manifest.Files {
		sizes[f.Path] = f.Size
	}
	for _, set := range []string{"stock", "p2p"} {
		var boot qemu.Result
		smoke := m.run(t, "smoke-"+set, "smoke", image, "--machine", "plain", "--append", "p2p.driver="+set, "--json",
			"--keep", filepath.Join(m.dir, "smoke-"+set))
		require.NoError(t, json.Unmarshal(smoke, &boot))
		nvidia := layout.DriverModule(built.Kernel, set, "nvidia")
		uvm := layout.DriverModule(built.Kernel, set, "nvidia-uvm")
		assert.Positive(t, sizes[nvidia])
		assert.Positive(t, sizes[uvm])
		core := took["core: nv-kernel.o"]
		if set != "stock" {
			core = 0
		}
		rows = append(rows, fmt.Sprintf("%-12s %-22s %-5s %8s %8s %8s %9.1f %9.1f  %s", m.release, built.Kernel, set,
			seconds(core), seconds(took[set+": nv-kernel.o"]), seconds(took[set+": modules"]),
			float64(sizes[nvidia])/1e6, float64(sizes[uvm])/1e6, insertion(t, &boot)))
	}
	return rows
}

// seconds writes a time; nothing if the cache spared it.
func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// insertion is what came of nvidia.ko.
func insertion(t *testing.T, r *qemu.Result) string {
	t.Helper()
	for _, c := range r.Checks {
		if c.ID == "nvidia-insert" {
			assert.Equal(t, qemu.Pass, c.Status, c.Detail)
			return string(c.Status) + ": " + c.Detail
		}
	}
	assert.Fail(t, "no check of nvidia.ko")
	return ""
}
