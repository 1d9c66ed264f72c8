package pipeline

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares text with a file below testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text)
}

var measured = regexp.MustCompile(`[ \d]{5}\d\.\d s [ \d]{5}\d MB`)

// blank hides what differs from run to run, but keeps its width.
func blank(text string) string { return measured.ReplaceAllString(text, "   #.# s      # MB") }
