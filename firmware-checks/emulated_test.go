package checks_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/fixture"
)

// TestEmulated gives GPUs of a machine with nothing wrong the subsystem of QEMU's
// devices: they are judged as before, and the machine is never called ready.
func TestEmulated(t *testing.T) {
	kinds := fixture.Kinds()
	k := kinds[slices.IndexFunc(kinds, func(k fixture.Kind) bool { return k.Name == "good-2x4090" })]
	k.Name = "good, but emulated" // facts of its own
	f := gather(t, k)
	board := checks.Run(f)
	verdict, _ := checks.Judge(board)
	require.Equal(t, checks.VerdictReady, verdict)
	assert.False(t, checks.HasEmulated(f))

	for _, d := range f.GPUs() {
		d.Config.SubsystemVendor, d.Config.SubsystemDevice = 0x1af4, 0x1100
	}
	assert.True(t, checks.HasEmulated(f))
	emulated := checks.Run(f)
	verdict, reason := checks.Judge(emulated)
	assert.Equal(t, checks.VerdictNoGPU, verdict)
	assert.Contains(t, reason, checks.AsIf+"P2P-READY")
	i := slices.IndexFunc(emulated, func(f checks.Finding) bool { return f.ID == checks.Emulated })
	require.GreaterOrEqual(t, i, 0)
	assert.Equal(t, "stand-in device: 2 GPUs emulated", emulated[i].Title)
	assert.Len(t, emulated[i].Devices, 2)

	emulated = slices.Delete(emulated, i, i+1)
	require.Len(t, emulated, len(board))
	for i := range board {
		assert.Equal(t, board[i].ID, emulated[i].ID)
		assert.Equal(t, board[i].Status, emulated[i].Status, board[i].ID)
		assert.True(t, emulated[i].StandIn)
	}
}

func TestNotStarted(t *testing.T) {
	const line = "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x25:1679)"
	found := checks.NotStarted([]string{"NVRM: loading", line})
	assert.Equal(t, checks.Skip, found.Status, "no fault")
	assert.Contains(t, found.Title, "could not start them")
	assert.Equal(t, line, found.Evidence[0].Raw)
	assert.NotContains(t, checks.NotStarted(nil).Title, "could not")
}
