package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func sampleReport(t *testing.T) string {
	t.Helper()
	w := sample()
	require.NoError(t, w.End(StatusComplete, ResultPass))
	return string(w.Bytes())
}

func TestParse(t *testing.T) {
	run, err := Parse(strings.NewReader(sampleReport(t)))
	require.NoError(t, err)
	assert.True(t, run.Complete)
	assert.Empty(t, run.Skipped)
	assert.Equal(t, "node7", run.Start.DUT.ID)
	assert.Equal(t, &RunEnd{StatusComplete, ResultPass}, run.End)
	assert.Equal(t, &Verdict{"P2P-READY", "2 of 2 pairs"}, run.Verdict)
	require.Len(t, run.Measurements, 1)
	assert.Equal(t, "bandwidth", run.Measurements[0].Step)
	assert.InEpsilon(t, 26.3, run.Measurements[0].Value, 1e-9)
	assert.Equal(t, GreaterThanOrEqual, run.Measurements[0].Validators[0].Type)
	require.Len(t, run.Errors, 1)
	assert.Equal(t, StepError{"bandwidth", Error{"p2pbw-exit", "p2pbw ended with 3"}}, run.Errors[0])

	s := run.Step("bandwidth")
	require.NotNil(t, s)
	assert.Equal(t, StatusComplete, s.Status)
	assert.True(t, s.Ended.After(s.Started))
	require.Len(t, s.Series, 1)
	assert.Equal(t, "link-speed", s.Series[0].Name)
	assert.Len(t, s.Series[0].Elements, 2)
	assert.True(t, s.Series[0].Ended)
	assert.JSONEq(t, `{"value":[1,2]}`, string(s.Extensions[1].Content))
	assert.Nil(t, run.Step("none"))
}

func TestParseDamaged(t *testing.T) {
	good := sampleReport(t)
	lines := strings.SplitAfter(good, "\n")
	last := lines[len(lines)-2]
	tests := map[string]struct {
		in      string
		skipped []string // why, one per skipped line
		missing int
	}{
		"no final newline":    {strings.TrimSuffix(good, "\n"), nil, 0},
		"serial line ends":    {strings.ReplaceAll(good, "\n", "\r\n"), nil, 0},
		"kernel line between": {lines[0] + "[    4.2] NVRM: No NVIDIA GPU found.\n\n" + strings.Join(lines[1:], ""), []string{"not an artifact"}, 0},
		"kernel text before":  {"[    0.1] x {\"a\" y" + good, nil, 0},
		"text behind":         {strings.Replace(good, "}\n", "}[    4.2] usb 1-1: new device\n", 1), nil, 0},
		"line twice":          {lines[0] + good, []string{"sequence number 0 was seen before"}, 0},
		"other JSON":          {good + `{"testRunArtifact":{"log":{"severity":"LOUD"}},"sequenceNumber":99,"timestamp":"2026-03-05T12:00:00Z"}` + "\n", []string{"unknown severity"}, 0},
		"cut last line":       {strings.TrimSuffix(good, last) + last[:len(last)/2], []string{"cut short"}, 0},
		"lost line":           {lines[0] + strings.Join(lines[2:], ""), nil, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			run, err := Parse(strings.NewReader(tt.in))
			require.NoError(t, err)
			require.Len(t, run.Skipped, len(tt.skipped), "%v", run.Skipped)
			for i, why := range tt.skipped {
				assert.Contains(t, run.Skipped[i].Why, why)
			}
			assert.Equal(t, tt.missing, run.Missing)
			assert.Equal(t, tt.missing == 0 && name != "cut last line", run.Complete)
			assert.NotNil(t, run.Step("bandwidth"))
		})
	}
}

func TestParseOpenStepIsNotComplete(t *testing.T) {
	w := New()
	w.Start(RunStart{Name: "n", Version: "1", DUT: DUT{ID: "d"}})
	w.Step("driver", "load the driver")
	require.NoError(t, w.End(StatusError, ResultNotApplicable))
	run, err := Parse(bytes.NewReader(w.Bytes()))
	require.NoError(t, err)
	assert.False(t, run.Complete)
	assert.Empty(t, run.Step("driver").Status)
	assert.Len(t, Check(w.Bytes()), 1)
}

func TestParseErrors(t *testing.T) {
	_, err := Parse(strings.NewReader("Welcome to GRUB!\n"))
	require.ErrorIs(t, err, ErrNoReport)
	boom := errors.New("input/output error")
	_, err = Parse(iotest.ErrReader(boom))
	require.ErrorIs(t, err, boom)
}

func FuzzParse(f *testing.F) {
	w := sample()
	f.Add(w.Bytes())
	f.Add([]byte("[ 1.0] x {\"testRunArtifact\":{\"testRunEnd\":{}}}\r\n{\"schemaVersion\":null"))
	f.Fuzz(func(t *testing.T, in []byte) {
		run, err := Parse(bytes.NewReader(in))
		problems := Check(in)
		if err != nil {
			assert.NotEmpty(t, problems)
			return
		}
		if len(problems) == 0 {
			assert.True(t, run.Complete, "what Check accepts, Parse finds complete")
			assert.Empty(t, run.Skipped)
		}
	})
}
