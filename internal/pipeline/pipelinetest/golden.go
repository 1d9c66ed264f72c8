package pipelinetest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"mkp2pimg/internal/golden"
)

var measured = regexp.MustCompile(`[ \d]{5}\d\.\d s [ \d]{5}\d MB`)

// Golden compares what a command on the archive said with a file below
// testdata. What differs from run to run is left out: times, memory, the
// archive's date and address, and the directory dir.
func (m *Mirror) Golden(t testing.TB, name, dir, text string) {
	t.Helper()
	text = measured.ReplaceAllString(text, "     #.# s      # MB")
	text = strings.ReplaceAll(text, dir, "DIR")
	text = strings.ReplaceAll(text, m.URL, "MIRROR")
	text = strings.ReplaceAll(text, m.Now.AddDate(0, 0, -9).UTC().Format(time.DateOnly), "DATE")
	golden.Equal(t, "testdata/"+name, text)
}
