package nvml

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReadings(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to build a stand-in for libnvidia-ml with")
	}
	so := filepath.Join(t.TempDir(), Soname)
	out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-o", so, "testdata/stub.c").CombinedOutput()
	require.NoError(t, err, "%s", out)

	l, err := Open(so)
	require.NoError(t, err)
	d, err := l.Device("0000:41:00.0")
	require.NoError(t, err)
	for _, tc := range []struct {
		name string
		read func() (int, error)
		want int
	}{{"SM clock", d.SMClock, 1980}, {"memory clock", d.MemoryClock, 2619}, {"temperature", d.Temperature, 41}, {"replays", d.Replays, 7}} {
		got, err := tc.read()
		require.NoError(t, err, tc.name)
		assert.Equal(t, tc.want, got, tc.name)
	}
	_, err = l.Device("0000:42:00.0")
	require.EqualError(t, err, "GPU 0000:42:00.0: nvmlDeviceGetHandleByPciBusId_v2: Not Found (6)")
	_, err = l.Device("a\x00b")
	require.Error(t, err)
	assert.NoError(t, l.Close())
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open("/nonexistent/" + Soname)
	require.ErrorContains(t, err, "No such file")
	_, err = Open("libc.so.6")
	assert.ErrorContains(t, err, "libc.so.6 is no NVML")
}
