package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRoots runs itself in an environment without certificate files, as in the
// image: what authorities there are is settled when a process starts.
func TestRoots(t *testing.T) {
	const inside = "P2PINIT_TEST_ROOTS"
	if os.Getenv(inside) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestRoots$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1", "SSL_CERT_FILE=/dev/null", "SSL_CERT_DIR=/dev/null")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "--- PASS: TestRoots")
		return
	}
	roots, err := x509.SystemCertPool()
	require.NoError(t, err)
	assert.False(t, roots.Equal(x509.NewCertPool()), "no authority is known")
}
