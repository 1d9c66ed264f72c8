package runfile

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/runfile/runtest"
)

// Archives that the program makeself makes, read as they are and with their
// payload in NVIDIA's layout.
func TestMakeself(t *testing.T) {
	if _, err := exec.LookPath("makeself"); err != nil {
		t.Skip("the program makeself is not installed (Debian: makeself, xz-utils, zstd)")
	}
	members := runtest.Driver(t, version)
	in := t.TempDir()
	for name, data := range members {
		file := filepath.Join(in, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, data, 0o755))
	}
	require.NoError(t, os.Symlink("libcuda.so."+version, filepath.Join(in, "libcuda.so")))
	for _, compression := range []string{"gzip", "xz", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			if _, err := exec.LookPath(compression); err != nil {
				t.Skipf("the program %s, which makeself runs, is not installed", compression)
			}
			made := filepath.Join(t.TempDir(), "made.run")
			cmd := exec.CommandContext(t.Context(), "makeself", "--"+compression, "--sha256", in, made, "A driver", "./nvidia-installer")
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			data, err := os.ReadFile(made)
			require.NoError(t, err)

			h, err := ReadHeaderFile(made)
			require.NoError(t, err)
			assert.Equal(t, "A driver", h.Label)
			assert.Equal(t, "./nvidia-installer", h.Script)
			assert.Equal(t, filepath.Base(in), h.TargetDir)
			assert.Equal(t, compression, h.Compression)
			assert.NotEmpty(t, h.Sums.CRC)
			assert.NotEmpty(t, h.Sums.MD5)
			assert.NotEmpty(t, h.Sums.SHA256)
			require.NoError(t, verify(t.Context(), bytes.NewReader(data), h))
			var e *VersionError
			require.ErrorAs(t, h.CheckDriver(version), &e)

			anyRelease := Driver(version)
			anyRelease.Version = ""
			_, dir := write(t, nil)
			_, err = Extract(t.Context(), made, dir, anyRelease)
			require.NoError(t, err)
			want := contents(t, dir)
			assert.Len(t, want, len(members)-4) // all but what an image has no use for
			assert.Equal(t, "-rwxr-xr-x "+string(members["nvidia-smi"]), want["nvidia-smi"])

			nvidia, dir := write(t, runtest.Bytes(t, runtest.Options{Payload: data[h.Offset:]}))
			_, err = Extract(t.Context(), nvidia, dir, Driver(version))
			require.NoError(t, err)
			assert.Equal(t, want, contents(t, dir))

			cut, dir := write(t, data[:len(data)-1])
			_, err = Extract(t.Context(), cut, dir, anyRelease)
			require.ErrorIs(t, err, ErrTruncated)
			data[len(data)-1] ^= 1
			bad, dir := write(t, data)
			_, err = Extract(t.Context(), bad, dir, anyRelease)
			var sum *ChecksumError
			require.ErrorAs(t, err, &sum)
			assert.Equal(t, h.Sums.SHA256, sum.Want)
			assert.Empty(t, contents(t, dir))
		})
	}
}
