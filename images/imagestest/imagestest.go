// Package imagestest makes images with a small payload, for tests of media.
package imagestest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
)

// Netboot is an image with media. Its kernel has 1.8 MB, its initramfs 3.5 MB.
func Netboot(t testing.TB, media ...images.Medium) *images.Netboot {
	t.Helper()
	kernel := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(kernel, bytes.Repeat([]byte("kernel"), 300_000), 0o600))
	return &images.Netboot{
		Kernel: kernel,
		Manifest: images.Manifest{
			Product: images.Product{Version: "0.1.0"}, Driver: "535.261.03", Kernel: "6.12.117+deb12-amd64",
			CommandLine: images.DefaultCommandLine, SourceDateEpoch: 1_700_000_000,
		},
		Initrd: func(w io.Writer) (initramfs.Sizes, error) {
			n, err := w.Write(bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6}, 500_001))
			return initramfs.Sizes{Raw: int64(2 * n), Packed: int64(n)}, err
		},
		Extra: map[string][]byte{"mkp2pimg.lock": []byte("{}\n"), "patch-report.json": []byte("{}\n")},
		Media: media,
	}
}

// Write writes the image with a medium and returns the medium's path.
func Write(t testing.TB, m images.Medium) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	_, err := Netboot(t, m).Write(t.Context(), dir)
	require.NoError(t, err)
	return filepath.Join(dir, m.Name())
}

// Reproducible makes a medium twice: in two directories, time zones, at two times
// and as users with different masks for the files they make.
func Reproducible(t *testing.T, m images.Medium) {
	t.Helper()
	first := digest(t, Write(t, m))
	zone, mask := time.Local, syscall.Umask(0o077)
	defer func() { time.Local = zone; syscall.Umask(mask) }()
	time.Local = time.FixedZone("far", 14*3600)
	time.Sleep(1100 * time.Millisecond) // most formats count whole seconds
	assert.Equal(t, first, digest(t, Write(t, m)), "the same payload, other bytes")
}

func digest(t testing.TB, path string) string {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	require.NoError(t, err)
	return hex.EncodeToString(h.Sum(nil))
}

// Flip changes the byte of a file at an offset.
func Flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	require.NoError(t, err)
	b[0] ^= 0x55
	_, err = f.WriteAt(b[:], at)
	require.NoError(t, err)
}
