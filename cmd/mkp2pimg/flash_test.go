package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/flash"
	"mkp2pimg/initramfs"
)

// netbootOf writes a netboot directory of a driver.
func netbootOf(t *testing.T, driver string) string {
	t.Helper()
	kernel := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(kernel, []byte("kernel"), 0o600))
	n := &images.Netboot{
		Kernel:   kernel,
		Manifest: images.Manifest{Driver: driver, Kernel: "6.12.117+deb12-amd64", CommandLine: images.DefaultCommandLine},
		Initrd: func(w io.Writer) (initramfs.Sizes, error) {
			k, err := io.WriteString(w, "initramfs")
			return initramfs.Sizes{Raw: 20, Packed: int64(k)}, err
		},
	}
	dir := filepath.Join(t.TempDir(), "out")
	_, err := n.Write(t.Context(), dir)
	require.NoError(t, err)
	return dir
}

func TestInspectAndDiff(t *testing.T) {
	a, b := netbootOf(t, "535.261.03"), netbootOf(t, "550.163.01")
	call := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		assert.Equal(t, want, run(t.Context(), args, &stdout, &stderr), "%s", stderr.String())
		return stdout.String()
	}
	text := call(exitOK, "inspect", a)
	for _, want := range []string{"netboot", "535.261.03", "vmlinuz", "sbom.spdx.json"} {
		assert.Contains(t, text, want)
	}
	var v struct {
		Format   string
		Manifest images.Manifest
		SBOM     struct{ SPDXVersion string }
	}
	require.NoError(t, json.Unmarshal([]byte(call(exitOK, "inspect", "--json", a)), &v))
	assert.Equal(t, "netboot", v.Format)
	assert.Equal(t, "535.261.03", v.Manifest.Driver)
	assert.Equal(t, "SPDX-2.3", v.SBOM.SPDXVersion)

	assert.Empty(t, call(exitOK, "diff", a, a))
	assert.Equal(t, "[]\n", call(exitOK, "diff", "--json", a, a))
	assert.Equal(t, "driver\n  - 535.261.03\n  + 550.163.01\n", call(exitFailed, "diff", a, b))
	call(exitIO, "inspect", a+"x")
	call(exitData, "inspect", filepath.Join(a, images.KernelName))
	call(exitData, "flash", filepath.Join(a, images.KernelName), "/dev/null")
	call(exitIO, "flash", a+"x", "/dev/null")
	call(exitIO, "flash", a, "/dev/null") // has no disk image
	require.NoError(t, os.WriteFile(filepath.Join(a, images.KernelName), nil, 0o600))
	call(exitData, "flash", a, "/dev/null")
}

func TestAgreed(t *testing.T) {
	d := &flash.Device{Name: "sdb", Size: 30 << 30, Model: "SanDisk", Partitions: []string{"sdb1"}, Uses: []string{"sdb1 is mounted on /mnt"}}
	var asked bytes.Buffer
	for answer, want := range map[string]bool{"sdb\n": true, " sdb ": true, "y\n": false, "sda\n": false, "": false} {
		asked.Reset()
		assert.Equal(t, want, agreed(t.Context(), strings.NewReader(answer), &asked, d), "%q", answer)
	}
	assert.Equal(t, "/dev/sdb  32 GB  SanDisk\n  sdb1 is mounted on /mnt\n  partitions: sdb1\nAll that is on it will be lost. Type sdb to go on: ", asked.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	silent, w := io.Pipe()
	defer w.Close()
	assert.False(t, agreed(ctx, silent, io.Discard, d), "interrupted while it waits for the answer")
}
