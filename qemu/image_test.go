package qemu

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImage boots a built image on every built-in machine, or on those named
// in MKP2PIMG_MACHINES.
func TestImage(t *testing.T) {
	dir := os.Getenv("MKP2PIMG_IMAGE")
	if dir == "" {
		t.Skip("MKP2PIMG_IMAGE names no image directory")
	}
	img, err := OpenImage(dir)
	require.NoError(t, err)
	names := Names()
	if some := os.Getenv("MKP2PIMG_MACHINES"); some != "" {
		names = strings.Split(some, ",")
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m, err := Lookup(name)
			require.NoError(t, err)
			r, err := Smoke(t.Context(), Options{Image: img, Machine: m, Keep: t.ArtifactDir()})
			require.NoError(t, err)
			require.NoError(t, r.WriteText(t.Output()))
			assert.Empty(t, failedChecks(r.Checks))
		})
	}
}

func TestOpenImageErrors(t *testing.T) {
	_, err := OpenImage(t.TempDir())
	assert.ErrorContains(t, err, "not a netboot directory")
}
