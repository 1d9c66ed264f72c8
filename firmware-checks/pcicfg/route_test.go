package pcicfg_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

func TestToward(t *testing.T) {
	const (
		direct, redirected, blocked = pcicfg.Direct, pcicfg.Redirected, pcicfg.Blocked

		sv, tb, rr, cr = pcicfg.SourceValidation, pcicfg.TranslationBlocking, pcicfg.RequestRedirect, pcicfg.CompletionRedirect
		uf, ec, dt     = pcicfg.UpstreamForwarding, pcicfg.EgressControl, pcicfg.DirectTranslated
	)
	for name, tc := range map[string]struct {
		control pcicfg.ACSBits
		listed  bool
		want    pcicfg.PeerTraffic
	}{
		"nothing":                          {0, true, pcicfg.PeerTraffic{}},
		"harmless":                         {sv | uf | dt, true, pcicfg.PeerTraffic{}},
		"the kernel's":                     {fixture.KernelACS, false, pcicfg.PeerTraffic{Requests: redirected, Translated: redirected, Completions: redirected}},
		"the kernel's, for ATS":            {fixture.KernelACS | dt, false, pcicfg.PeerTraffic{Requests: redirected, Translated: direct, Completions: redirected}},
		"requests only":                    {rr, false, pcicfg.PeerTraffic{Requests: redirected, Translated: redirected}},
		"completions only":                 {cr, false, pcicfg.PeerTraffic{Completions: redirected}},
		"egress, port not in the vector":   {ec, false, pcicfg.PeerTraffic{}},
		"egress, port in the vector":       {ec, true, pcicfg.PeerTraffic{Requests: blocked, Translated: blocked}},
		"egress lets through in spite RR":  {ec | rr, false, pcicfg.PeerTraffic{}},
		"egress redirects with RR":         {ec | rr, true, pcicfg.PeerTraffic{Requests: redirected, Translated: redirected}},
		"egress exempts translated":        {ec | dt, true, pcicfg.PeerTraffic{Requests: blocked}},
		"translated blocked before exempt": {tb | dt, false, pcicfg.PeerTraffic{Translated: blocked}},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, tc.want, tc.control.Toward(tc.listed))
		})
	}
}

func TestTowardPort(t *testing.T) {
	traffic, known := (*pcicfg.ACS)(nil).Toward(3)
	assert.Equal(t, pcicfg.PeerTraffic{}, traffic)
	assert.True(t, known)

	a := &pcicfg.ACS{Control: pcicfg.EgressControl, EgressBits: 8, Egress: []int{3}}
	traffic, known = a.Toward(3)
	assert.Equal(t, pcicfg.Blocked, traffic.Requests)
	assert.True(t, known)
	traffic, _ = a.Toward(4)
	assert.Equal(t, pcicfg.Direct, traffic.Requests)

	a.EgressBits = 0
	_, known = a.Toward(4)
	assert.False(t, known, "the vector was not read")
}

func TestEffects(t *testing.T) {
	all := pcicfg.ACSBits(0x7f)
	inSwitch, inRoot := all.Effects(pcicfg.DownstreamPort), all.Effects(pcicfg.RootPort)
	require.Len(t, inSwitch, 7)
	require.Len(t, inRoot, 7)
	for i, e := range inSwitch {
		assert.Equal(t, pcicfg.ACSBits(1)<<i, e.Bit)
		// The worst that a control does alone must be what the routing says.
		traffic := e.Bit.Toward(true)
		assert.Equal(t, e.Route, max(traffic.Requests, traffic.Translated, traffic.Completions), e.Bit)
		differs := e.Bit&(pcicfg.RequestRedirect|pcicfg.CompletionRedirect|pcicfg.UpstreamForwarding) != 0
		assert.Equal(t, differs, e.Meaning != inRoot[i].Meaning, e.Bit)
	}
	assert.Empty(t, pcicfg.ACSBits(0).Effects(pcicfg.DownstreamPort))
	text, err := json.Marshal(pcicfg.PeerTraffic{Requests: pcicfg.Blocked, Translated: pcicfg.Redirected})
	require.NoError(t, err)
	assert.JSONEq(t, `{"requests": "blocked", "translated": "redirected", "completions": "direct"}`, string(text))
}
