package rm

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var record = flag.String("record", "", "write what the live test and the driver say to each other into this folder")

// TestLive asks the driver of this machine.
func TestLive(t *testing.T) {
	if os.Getenv("MKP2PIMG_GPU") != "1" {
		t.Skip("set MKP2PIMG_GPU=1 on a machine with an NVIDIA driver to ask it")
	}
	k, err := openDevices("/dev")
	require.NoError(t, err)
	r := &recorder{kernel: k}
	if *record != "" {
		defer func() { r.save(t, filepath.Join(*record, "calls.jsonl")) }()
	}
	c, err := newClient(r)
	require.NoError(t, err)
	s, err := c.Survey(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())

	text, err := json.MarshalIndent(s, "", "  ")
	require.NoError(t, err)
	t.Logf("%s", text)
	if *record != "" {
		require.NoError(t, os.WriteFile(filepath.Join(*record, "survey.json"), append(text, '\n'), 0o644))
	}
	for _, p := range s.Pairs {
		t.Logf("%s -> %s: %s, caps %v, status %v %s", p.A, p.B, p.Path, p.Caps, p.Status, p.Error)
	}
	assert.Regexp(t, `^\d+\.\d+`, s.Driver)
	running := 0
	for _, g := range s.GPUs {
		if !g.Running {
			continue
		}
		running++
		assert.Empty(t, g.Errors, g.BDF)
		assert.NotZero(t, g.Memory, g.BDF)
		assert.NotZero(t, g.BAR1, g.BDF)
		if sb := g.StaticBAR1; sb != nil && sb.Enabled {
			assert.LessOrEqual(t, sb.Start+sb.Size, g.BAR1, g.BDF)
		}
	}
	assert.NotZero(t, running, "the driver runs no GPU")
	for _, p := range s.Pairs {
		if p.Error == "" {
			assert.LessOrEqual(t, p.Status[IndexRead], NVLinkSetupFailed)
		}
	}
}

// The live test of a machine with one GPU asks nothing about pairs: this one asks
// about the GPU and itself.
func TestLiveLoopback(t *testing.T) {
	if os.Getenv("MKP2PIMG_GPU") != "1" {
		t.Skip("set MKP2PIMG_GPU=1 on a machine with an NVIDIA driver to ask it")
	}
	c, err := Open("/dev")
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	asked := false
	for _, g := range c.GPUs() {
		if err := c.Attach(g); err != nil {
			t.Logf("%v", err)
			continue
		}
		p, err := c.P2P(g, g)
		require.NoError(t, err)
		t.Logf("%s -> itself: %s, caps %v, status %v", g.BDF, p.Path, p.Caps, p.Status)
		asked = true
	}
	assert.True(t, asked, "no GPU can be opened")
}
