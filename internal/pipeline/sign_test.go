package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/internal/signing"
	"mkp2pimg/internal/signing/signingtest"
	"mkp2pimg/kmod/build"
)

func TestSignModules(t *testing.T) {
	key, err := signing.Load(signingtest.Files(t, "mkp2pimg test"))
	require.NoError(t, err)
	file := func(set string) string {
		path := filepath.Join(t.TempDir(), "nvidia.ko")
		require.NoError(t, os.WriteFile(path, []byte("module "+set), 0o600))
		return path
	}
	m := &modules{
		p2p: []build.Module{{Path: file("p2p")}}, stock: []build.Module{{Path: file("stock")}},
		manifest: []images.ModuleSet{{Name: p2pSet, Modules: []images.Module{{}}}, {Name: stockSet, Modules: []images.Module{{}}}},
	}
	sets := m.sets()
	require.NoError(t, m.sign(sets, key, t.TempDir()))
	for i, set := range sets {
		data, err := os.ReadFile(set.Files[0])
		require.NoError(t, err)
		assert.True(t, signing.IsSigned(data))
		assert.Contains(t, string(data), "module "+set.Name)
		assert.Equal(t, "nvidia.ko", filepath.Base(set.Files[0]))
		assert.Equal(t, "signature", m.manifest[i].Modules[0].Checks[0].Name)
	}
	for _, kept := range append(m.p2p, m.stock...) {
		data, err := os.ReadFile(kept.Path)
		require.NoError(t, err)
		assert.False(t, signing.IsSigned(data), "the cache's module was changed")
	}
}

func TestCheckKey(t *testing.T) {
	key, cert := signingtest.Files(t, "mkp2pimg test")
	other, _ := signingtest.Files(t, "another")
	for want, o := range map[string]Options{
		"both a key and its certificate":    {SignKey: key},
		"takes a key and its certificate":   {SignModules: true},
		"nothing is signed: add format uki": {SignKey: key, SignCert: cert, Formats: []string{FormatDisk}},
		"not the key of the certificate":    {SignKey: other, SignCert: cert, SignModules: true},
	} {
		var refused *RequestError
		require.ErrorAs(t, o.checkKey(), &refused)
		assert.ErrorContains(t, refused, want)
	}
	for _, o := range []Options{{}, {SignKey: key, SignCert: cert, SignModules: true}, {SignKey: key, SignCert: cert, Formats: []string{FormatUKI}}} {
		require.NoError(t, o.checkKey())
		assert.Equal(t, o.SignKey != "", o.key != nil)
	}
}
