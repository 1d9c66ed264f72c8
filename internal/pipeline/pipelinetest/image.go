package pipelinetest

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/initramfs"
)

// WriteImage writes an image to dir that is whole, but can't be booted. Extra
// are further files of it.
func WriteImage(t testing.TB, dir, driver string, extra map[string][]byte) {
	t.Helper()
	kernel := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(kernel, []byte("kernel"), 0o644))
	n := &images.Netboot{
		Manifest: images.Manifest{Driver: driver, Kernel: Newest612, CommandLine: images.DefaultCommandLine},
		Kernel:   kernel,
		Initrd: func(w io.Writer) (initramfs.Sizes, error) {
			_, err := io.WriteString(w, "initrd")
			return initramfs.Sizes{Packed: 6, Raw: 6}, err
		},
		Extra: extra,
	}
	_, err := n.Write(t.Context(), dir)
	require.NoError(t, err)
}
