package uki

import (
	"bytes"
	"context"
	"debug/pe"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/foxboron/go-uefi/authenticode"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/imagestest"
	"mkp2pimg/internal/sandbox"
	"mkp2pimg/internal/signing"
	"mkp2pimg/internal/signing/signingtest"
)

// medium makes images with a stub that nothing runs.
func medium(t testing.TB) Medium {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, stubPath)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, append(signingtest.Program(), "symbols"...), 0o600))
	return Medium{Loaders: sandbox.Root{Dir: root}}
}

func TestMake(t *testing.T) {
	path := imagestest.Write(t, medium(t))
	program, err := pe.Open(path)
	require.NoError(t, err)
	defer program.Close()
	optional := program.OptionalHeader.(*pe.OptionalHeader64)
	file, memory := optional.SizeOfHeaders, optional.SizeOfHeaders
	for _, s := range program.Sections {
		assert.Equal(t, file, s.Offset, "%s: nothing lies between sections", s.Name)
		assert.GreaterOrEqual(t, s.VirtualAddress, memory, s.Name)
		assert.LessOrEqual(t, s.VirtualSize, s.Size, s.Name)
		file, memory = s.Offset+s.Size, s.VirtualAddress+s.VirtualSize
	}
	assert.GreaterOrEqual(t, optional.SizeOfImage, memory)
	assert.Zero(t, optional.SizeOfImage%optional.SectionAlignment)
	st, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, int64(file), st.Size())
	text, err := program.Section(".cmdline").Data()
	require.NoError(t, err)
	assert.Contains(t, string(text), "p2p.plan=full p2p.driver=p2p p2p.after=hold")

	c, err := OpenContents(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "uki", c.Format)
	assert.Equal(t, "535.261.03", c.Manifest.Driver)
	var sum int64
	for _, p := range c.Parts {
		sum += p.Size
	}
	assert.Equal(t, c.Size, sum, "the parts are the whole")
	assert.Equal(t, "{}\n", string(c.Documents["mkp2pimg.lock"]))
}

func TestReproducible(t *testing.T) {
	m := medium(t)
	imagestest.Reproducible(t, m)
	var err error
	m.Key, err = signing.Load(signingtest.Files(t, "mkp2pimg test"))
	require.NoError(t, err)
	imagestest.Reproducible(t, m)
}

func TestSigned(t *testing.T) {
	m := medium(t)
	keyFile, certFile := signingtest.Files(t, "mkp2pimg test")
	var err error
	m.Key, err = signing.Load(keyFile, certFile)
	require.NoError(t, err)
	path := imagestest.Write(t, m)
	c, err := OpenContents(t.Context(), path)
	require.NoError(t, err)
	assert.Equal(t, "signature", c.Parts[0].Name)
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	program, err := authenticode.Parse(f)
	require.NoError(t, err)
	list, err := program.Signatures()
	require.NoError(t, err)
	assert.Len(t, list, 1)
	if sbverify, err := exec.LookPath("sbverify"); err == nil {
		out, err := exec.CommandContext(t.Context(), sbverify, "--cert", certFile, path).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	}
}

func TestMakeFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	m := medium(t)
	stub := filepath.Join(m.Loaders.Dir, stubPath)
	for want, data := range map[string][]byte{
		"mkp2pimg.efi: stub: ": []byte("no program"),
		"its sections end at":  signingtest.Program()[:0x500],
		"no room for 6":        small(signingtest.Program()),
	} {
		require.NoError(t, os.WriteFile(stub, data, 0o600))
		_, err := imagestest.Netboot(t, m).Write(t.Context(), dir)
		require.ErrorContains(t, err, want)
		assert.NoDirExists(t, dir)
	}
	require.NoError(t, os.Remove(stub))
	_, err := imagestest.Netboot(t, m).Write(t.Context(), dir)
	require.ErrorIs(t, err, os.ErrNotExist)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = imagestest.Netboot(t, medium(t)).Write(ctx, dir)
	require.ErrorIs(t, err, context.Canceled)
}

// small says that the headers of a program end where its table of sections does.
func small(program []byte) []byte {
	const sizeOfHeaders = 0x40 + optionalHeader + 60
	program[sizeOfHeaders], program[sizeOfHeaders+1] = 0x70, 0x01
	return program
}

func TestDamaged(t *testing.T) {
	path := imagestest.Write(t, medium(t))
	program, err := pe.Open(path)
	require.NoError(t, err)
	defer program.Close()
	for section, want := range map[string]string{
		kernelSection: "vmlinuz: sha256 is", initrdSection: "initrd.zst: sha256 is", documentsSection: documentsSection,
	} {
		at := int64(program.Section(section).Offset) + 300
		imagestest.Flip(t, path, at)
		_, err := OpenContents(t.Context(), path)
		var damaged *images.DamagedError
		require.ErrorAs(t, err, &damaged)
		require.ErrorContains(t, err, want)
		imagestest.Flip(t, path, at)
	}
	require.NoError(t, os.Truncate(path, 1<<20))
	_, err = OpenContents(t.Context(), path)
	require.ErrorContains(t, err, "cut short")
	stub := filepath.Join(t.TempDir(), "other.efi")
	require.NoError(t, os.WriteFile(stub, signingtest.Program(), 0o600))
	_, err = OpenContents(t.Context(), stub)
	require.ErrorContains(t, err, "no image of mkp2pimg")
	_, err = OpenContents(t.Context(), filepath.Join(filepath.Dir(path), images.ScriptName))
	require.ErrorIs(t, err, images.ErrOtherFormat)
}

// TestSparseDocument reads an archive of one header, whose file is said to be of one
// hole of 1 TiB.
func TestSparseDocument(t *testing.T) {
	const size = 1 << 40
	h := make([]byte, 512) // the format of old GNU tar: gnu.org/software/tar, "Sparse Formats"
	copy(h, "hole")
	copy(h[124:], "00000000000")
	h[156] = 'S'
	copy(h[257:], "ustar  ")
	for _, at := range []int{386, 483} { // where the first piece of data is; the size
		h[at] = 0x80
		binary.BigEndian.PutUint64(h[at+4:], size)
	}
	sum := 8 * int(' ')
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	_, err := unpack(bytes.NewReader(h))
	require.ErrorContains(t, err, "hole: has 1099511627776 bytes")
}

func FuzzOpenContents(f *testing.F) {
	f.Add(signingtest.Program())
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.efi")
		require.NoError(t, os.WriteFile(path, data, 0o600))
		_, _ = OpenContents(t.Context(), path) // must not panic
	})
}
