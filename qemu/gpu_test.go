package qemu

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServeGPUs(t *testing.T) {
	m := turnable(t)
	dir, err := socketDir()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, os.RemoveAll(dir)) })
	s, err := m.serveGPUs(t.Context(), dir)
	require.NoError(t, err)
	for gpu, d := range m.GPUs() {
		for function := range d.functions() {
			assert.FileExists(t, filepath.Join(dir, gpuSocket(gpu, function)))
		}
	}
	assert.Equal(t, 2, m.GPUs()[0].functions(), "display and audio")

	// A client that hangs up does no harm, one that speaks another protocol is told of.
	dialer := &net.Dialer{}
	c, err := dialer.DialContext(t.Context(), "unix", filepath.Join(dir, gpuSocket(0, 0)))
	require.NoError(t, err)
	require.NoError(t, c.Close())
	c, err = dialer.DialContext(t.Context(), "unix", filepath.Join(dir, gpuSocket(1, 0)))
	require.NoError(t, err)
	_, err = c.Write([]byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
	require.NoError(t, err)
	_, _ = c.Read(make([]byte, 1)) // until the server hangs up
	require.NoError(t, c.Close())

	assert.ErrorContains(t, s.stop(), "emulated GPU last, function 0")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left, "no socket is left")
}

func TestServeGPUsWithoutRoom(t *testing.T) {
	s, err := turnable(t).serveGPUs(t.Context(), filepath.Join(t.TempDir(), "missing"))
	assert.ErrorContains(t, err, "gpu.0")
	require.NoError(t, s.stop())
}
