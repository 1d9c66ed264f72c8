package pxe_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/sandbox"
)

func TestMedia(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"usr/lib/ipxe/undionly.kpxe": "bios", "usr/lib/ipxe/snponly.efi": "MZ efi",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	got := map[string]string{}
	for _, m := range pxe.Media(sandbox.Root{Dir: root}) {
		path := filepath.Join(out, m.Name())
		require.NoError(t, m.Make(t.Context(), path, nil))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		got[m.Name()] = string(data)
	}
	assert.Equal(t, map[string]string{pxe.BIOS: "bios", pxe.EFI: "MZ efi"}, got)
}

func TestRefused(t *testing.T) {
	root, out := t.TempDir(), filepath.Join(t.TempDir(), pxe.EFI)
	m := pxe.Medium{Loaders: sandbox.Root{Dir: root}, Program: pxe.EFI}
	require.ErrorContains(t, m.Make(t.Context(), out, nil), "--update writes it anew")

	require.NoError(t, os.MkdirAll(filepath.Join(root, "usr/lib/ipxe"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/lib/ipxe/snponly.efi"), []byte("#!ipxe"), 0o600))
	require.ErrorContains(t, m.Make(t.Context(), out, nil), "is no program")
	assert.NoFileExists(t, out)
}
