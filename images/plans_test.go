package images

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPlanCommandLine(t *testing.T) {
	base := []string{"console=ttyS0", "console=tty0", "p2p.plan=full", "quiet"}
	p := Plan{Parameters: []string{"p2p.plan=check", "p2p.acs=show"}}
	assert.Equal(t, []string{"console=ttyS0", "console=tty0", "quiet", "p2p.plan=check", "p2p.acs=show"}, p.CommandLine(base))
	assert.Equal(t, base, Plan{}.CommandLine(base))
	assert.Equal(t, []string{"console=ttyS0", "console=tty0", "p2p.plan=full", "quiet"}, base, "unchanged")
}
