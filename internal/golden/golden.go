// Package golden compares what a test got with a file that holds what it should
// get. The flag -update of "go test" rewrites the files: read the difference.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Equal compares got with the file of a name, relative to the test's package.
func Equal[T string | []byte](t testing.TB, file string, got T) {
	t.Helper()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "run the test with -update to make it")
	assert.Equal(t, string(want), string(got), "run the test with -update if the change is meant, and read the difference")
}
