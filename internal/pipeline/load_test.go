package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"mkp2pimg/kmod/loadopt"
	"mkp2pimg/kmod/patch"
)

func TestLoad(t *testing.T) {
	offer := loadopt.Offer{BAR1: loadopt.Joint}
	for name, test := range map[string]struct {
		status patch.Status
		edited []string
	}{
		"edited": {patch.Applied, []string{p2pSet}},
		"stock":  {patch.NotNeeded, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			p2p := &patch.Result{Driver: "570.211.01", Edits: []patch.Outcome{{Status: test.status}}}
			d := (&edits{p2p: p2p, offer: offer}).load()
			assert.Equal(t, offer, d.Offer)
			assert.Equal(t, test.edited, d.Edited)
			assert.True(t, d.Models["2684"].Patch, "an Ada GPU with 570")
		})
	}
}
