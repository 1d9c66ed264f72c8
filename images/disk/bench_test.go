package disk

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/internal/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.MaybeChild()
	os.Exit(m.Run())
}

// BenchmarkMake makes a disk image of the payload in the directory MKP2PIMG_IMAGE,
// with the boot loaders unpacked in MKP2PIMG_LOADERS: by this package, and by a
// script of sgdisk, mkfs.fat, mtools and syslinux. peak-MB is the largest resident
// memory: of this process for the one, of the largest program for the other.
func BenchmarkMake(b *testing.B) {
	image, root := os.Getenv("MKP2PIMG_IMAGE"), os.Getenv("MKP2PIMG_LOADERS")
	if image == "" || root == "" {
		b.Skip("MKP2PIMG_IMAGE and MKP2PIMG_LOADERS name no image and no boot loaders")
	}
	dir, err := images.Open(image)
	require.NoError(b, err)
	p := &images.Payload{Kernel: dir.Kernel(), Initrd: dir.Initrd(), Manifest: dir.Manifest, Documents: map[string][]byte{}}
	for _, name := range []string{images.ManifestName, images.SBOMName, images.SumsName} {
		p.Documents[name], err = os.ReadFile(filepath.Join(image, name))
		require.NoError(b, err)
	}
	b.Run("mkp2pimg", func(b *testing.B) {
		for b.Loop() {
			clearPeak(b)
			require.NoError(b, Medium{Loaders: sandbox.Root{Dir: root}}.Make(b.Context(), filepath.Join(b.TempDir(), Name), p))
		}
		b.ReportMetric(peak(b), "peak-MB")
	})
	b.Run("script", func(b *testing.B) {
		for _, program := range []string{"sgdisk", "mkfs.fat", "mcopy"} {
			if _, err := exec.LookPath(program); err != nil {
				b.Skipf("%s is not installed", program)
			}
		}
		files, err := Medium{Loaders: sandbox.Root{Dir: root}}.files(p)
		require.NoError(b, err)
		tree := b.TempDir()
		for name, data := range files {
			require.NoError(b, os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755))
			require.NoError(b, os.WriteFile(filepath.Join(tree, name), data, 0o600))
		}
		size, err := payloadSize(p, files)
		require.NoError(b, err)
		var largest int64
		for b.Loop() {
			largest = max(largest, script(b.Context(), b, plan(size, false), root, tree, p))
		}
		b.ReportMetric(float64(largest)/1e6, "peak-MB")
	})
}

// script makes an image as a shell script would, and returns the resident memory
// of its largest program.
func script(ctx context.Context, b *testing.B, at partitions, root, tree string, p *images.Payload) int64 {
	b.Helper()
	c := exec.CommandContext(ctx, "sh", "-ec", fmt.Sprintf(`
		truncate -s %d $IMG
		sgdisk -o -n 1:2048:%d -t 1:ef00 -A 1:set:2 -n 2:%d:%d -t 2:0700 $IMG
		mkfs.fat --invariant -F 32 -n P2PBOOT --offset 2048 $IMG %d
		mkfs.fat --invariant -F 32 -n P2PREPORT --offset %d $IMG %d
		mcopy -s -p -m -Q -i $IMG@@1M $TREE/* ::/
		mcopy -p -m -Q -i $IMG@@1M $KERNEL $INITRD ::/mkp2pimg/
		$ROOT/usr/bin/syslinux --install --directory /syslinux --offset 1048576 $IMG
		dd if=$ROOT/%s of=$IMG conv=notrunc`,
		at.disk, at.boot.end()/sector-1, at.report.start/sector, at.report.end()/sector-1,
		at.boot.size/1024, at.report.start/sector, at.report.size/1024, gptMBR))
	c.Env = append(os.Environ(), "IMG="+filepath.Join(b.TempDir(), Name), "TREE="+tree, "ROOT="+root, "KERNEL="+p.Kernel, "INITRD="+p.Initrd,
		"MTOOLS_SKIP_CHECK=1", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	require.NoError(b, c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	var largest int64
	for {
		select {
		case err := <-ended:
			require.NoError(b, err, "%s", &out)
			return largest
		case <-time.After(2 * time.Millisecond):
			largest = max(largest, largestChild(c.Process.Pid))
		}
	}
}

// largestChild is the highest resident memory, in bytes, of the processes that a
// shell runs just now. What getrusage(2) says would be of no use: a process begins
// with the memory of the one that it was forked from, which is this one.
func largestChild(shell int) int64 {
	var largest int64
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", shell))
	for child := range strings.FieldsSeq(string(children)) {
		if text, err := os.ReadFile("/proc/" + child + "/status"); err == nil {
			largest = max(largest, highWater(text))
		}
	}
	return largest
}

// clearPeak resets what peak reads (proc(5), clear_refs).
func clearPeak(b *testing.B) {
	b.Helper()
	require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
}

// peak is the highest resident memory of this process, in MB.
func peak(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	require.Positive(b, highWater(text))
	return float64(highWater(text)) / 1e6
}

var hwm = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// highWater reads the highest resident memory from /proc/PID/status, in bytes; 0
// for a process that has just ended.
func highWater(status []byte) int64 {
	m := hwm.FindSubmatch(status)
	if m == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
	return kib * 1024
}
