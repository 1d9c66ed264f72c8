package judge

import (
	"testing"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/report"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestStartTellsTheMachine(t *testing.T) {
	s := settingsMap{}
	s.start(&report.RunStart{DUT: report.DUT{Metadata: map[string]any{
		report.MetaUUID: "4c4c4544-0042-3510-8054-b4c04f4a4d32", report.MetaSerial: "SN-2", report.MetaBoardSerial: 7.0, "else": "x",
	}}})
	assert.Equal(t, settingsMap{SystemUUID: "4c4c4544-0042-3510-8054-b4c04f4a4d32", SystemSerial: "SN-2"}, s)

	changes := identify(farm.Node{Name: "n7", UUID: "4C4C4544-0042-3510-8054-B4C04F4A4D32", Serial: "SN-1"}, &farm.Summary{Settings: s}, nil)
	require.Len(t, changes, 1)
	assert.Equal(t, "SN-1 (the node's)", changes[0].Before)
	assert.Equal(t, "SN-2", changes[0].After)
}
