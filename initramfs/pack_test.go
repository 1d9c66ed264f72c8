package initramfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func packSample(t *testing.T) *Tree {
	t.Helper()
	tree := &Tree{}
	require.NoError(t, tree.AddBytes("/etc/empty", 0o600, nil, fromA))
	require.NoError(t, tree.AddBytes("/bin/tool", 0o755, []byte("odd"), fromA))
	require.NoError(t, tree.AddLink("/init", "bin/tool", fromB))
	require.NoError(t, tree.AddDir("/run", 0o755, fromB))
	big := make([]byte, 3<<20)
	_, err := rand.NewChaCha8([32]byte{1}).Read(big[:1<<20])
	require.NoError(t, err)
	host := filepath.Join(t.TempDir(), "big")
	require.NoError(t, os.WriteFile(host, big, 0o600))
	require.NoError(t, tree.AddFile("/lib/big", 0o644, host, fromA))
	return tree
}

func pack(t *testing.T, tree *Tree, opt PackOptions) ([]byte, Sizes) {
	t.Helper()
	var b bytes.Buffer
	sizes, err := tree.Pack(&b, opt)
	require.NoError(t, err)
	return b.Bytes(), sizes
}

func unzstd(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	defer z.Close()
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	return raw
}

func TestPack(t *testing.T) {
	tree := packSample(t)
	epoch := time.Unix(1700000000, 0)
	var progress int64
	data, sizes := pack(t, tree, PackOptions{Epoch: epoch, Done: func(n int64) { progress = n }})
	raw := unzstd(t, data)
	assert.Equal(t, Sizes{Raw: int64(len(raw)), Packed: int64(len(data))}, sizes)
	assert.Equal(t, sizes.Raw, progress)

	r := cpio.NewReader(bytes.NewReader(raw))
	for i, e := range tree.Entries() {
		h, err := r.Next()
		require.NoError(t, err)
		assert.Equal(t, e.Path[1:], h.Name)
		assert.Equal(t, e.Mode.Perm(), h.FileInfo().Mode().Perm(), h.Name)
		assert.Equal(t, e.Mode.IsDir(), h.Mode.IsDir(), h.Name)
		assert.True(t, epoch.Equal(h.ModTime), h.Name)
		assert.Equal(t, int64(i+1), h.Inode, h.Name)
		assert.Equal(t, [2]int{}, [2]int{h.Uid, h.Guid}, h.Name)
		if e.Link != "" {
			assert.Equal(t, e.Link, h.Linkname)
			continue
		}
		body, err := io.ReadAll(r)
		require.NoError(t, err)
		if e.Mode.IsRegular() {
			assert.Len(t, body, int(e.Size), h.Name)
		}
	}
	_, err := r.Next()
	assert.Equal(t, io.EOF, err)
	assert.NotContains(t, string(raw), "070702", "a header of the crc variant")
}

// TestPackFirst reads the two archives one after the other, as the kernel does.
func TestPackFirst(t *testing.T) {
	tree := packSample(t)
	data, sizes := pack(t, tree, PackOptions{First: func(path string) bool { return path == "/lib/big" || path == "/run" }})
	assert.Equal(t, int64(len(data)), sizes.Packed)
	names := func(archive []byte) (list []string) {
		for r := cpio.NewReader(bytes.NewReader(unzstd(t, archive))); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				return list
			}
			require.NoError(t, err)
			list = append(list, h.Name)
		}
	}
	assert.Equal(t, []string{"lib", "lib/big"}, names(data[:sizes.First]))
	assert.Equal(t, []string{"bin", "bin/tool", "etc", "etc/empty", "init", "lib", "run"}, names(data[sizes.First:]))
	assert.Equal(t, int64(len(unzstd(t, data))), sizes.Raw)
}

// TestPackSameBytes packs with one and with several compressor threads.
func TestPackSameBytes(t *testing.T) {
	tree := packSample(t)
	many, _ := pack(t, tree, PackOptions{})
	again, _ := pack(t, tree, PackOptions{})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	one, _ := pack(t, tree, PackOptions{})
	assert.True(t, bytes.Equal(many, again))
	assert.True(t, bytes.Equal(many, one))

	later, _ := pack(t, tree, PackOptions{Epoch: time.Unix(1, 0)})
	assert.False(t, bytes.Equal(many, later), "the epoch has no effect")
}

// TestPackReadByOthers lists the archive with the tools that users have.
func TestPackReadByOthers(t *testing.T) {
	tree := packSample(t)
	data, _ := pack(t, tree, PackOptions{})
	var want []string
	for _, e := range tree.Entries() {
		want = append(want, e.Path[1:])
	}
	tools := map[string]struct {
		args  []string
		input []byte
		want  []string
	}{
		"zstd":   {[]string{"-t"}, data, nil},
		"cpio":   {[]string{"-t", "--quiet"}, unzstd(t, data), want},
		"bsdtar": {[]string{"-tf", "-"}, unzstd(t, data), want},
	}
	for name, tt := range tools {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Skipf("%s is not installed", name)
			}
			cmd := exec.CommandContext(t.Context(), path, tt.args...)
			cmd.Stdin = bytes.NewReader(tt.input)
			out, err := cmd.Output()
			require.NoError(t, err)
			assert.Equal(t, tt.want, nonEmptyLines(string(out)))
		})
	}
}

func nonEmptyLines(s string) []string {
	var list []string
	for line := range strings.Lines(s) {
		list = append(list, strings.TrimSuffix(strings.TrimSpace(line), "/"))
	}
	return list
}

func TestPackErrors(t *testing.T) {
	t.Run("too large", func(t *testing.T) {
		tree := &Tree{}
		tree.put(&Entry{Path: "/huge", Size: 1 << 32})
		_, err := tree.Pack(io.Discard, PackOptions{})
		assert.ErrorContains(t, err, "/huge: 4294967296 bytes are too many")
	})
	for name, tt := range map[string]struct {
		change func(string) error
		want   string
	}{
		"shrank":  {func(f string) error { return os.Truncate(f, 10) }, "changed since it was added"},
		"grew":    {func(f string) error { return os.Truncate(f, 4<<20) }, "changed since it was added"},
		"changed": {func(f string) error { return os.WriteFile(f, make([]byte, 3<<20), 0o600) }, "changed since it was added"},
		"gone":    {os.Remove, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := packSample(t)
			require.NoError(t, tt.change(tree.Lookup("/lib/big").host))
			_, err := tree.Pack(io.Discard, PackOptions{})
			assert.ErrorContains(t, err, "pack the image: /lib/big: ")
			assert.ErrorContains(t, err, tt.want)
		})
	}
	t.Run("full disk", func(t *testing.T) {
		full := errors.New("no space")
		_, err := packSample(t).Pack(failAfter{full}, PackOptions{})
		assert.ErrorIs(t, err, full)
	})
}

type failAfter struct{ err error }

func (f failAfter) Write([]byte) (int, error) { return 0, f.err }
