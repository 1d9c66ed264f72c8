package predict_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/predict"
)

func TestReadsFrom(t *testing.T) {
	for name, tc := range map[string]struct {
		cpu  facts.CPU
		want int
	}{
		"Zen 2":           {facts.CPU{Vendor: "AuthenticAMD", Family: 23, Model: 49}, 535},
		"Zen 4":           {facts.CPU{Vendor: "AuthenticAMD", Family: 25, Model: 17}, 545},
		"Zen 5":           {facts.CPU{Vendor: "AuthenticAMD", Family: 26, Model: 2}, 570},
		"Bulldozer":       {facts.CPU{Vendor: "AuthenticAMD", Family: 21, Model: 2}, 0},
		"Hygon":           {facts.CPU{Vendor: "HygonGenuine", Family: 24, Model: 0}, 0},
		"Sapphire Rapids": {facts.CPU{Vendor: "GenuineIntel", Family: 6, Model: 143}, 545},
		"Emerald Rapids":  {facts.CPU{Vendor: "GenuineIntel", Family: 6, Model: 207}, 0},
		"Ice Lake":        {facts.CPU{Vendor: "GenuineIntel", Family: 6, Model: 106}, 0},
		"none":            {facts.CPU{}, 0},
	} {
		assert.Equal(t, tc.want, predict.ReadsFrom(tc.cpu), name)
	}
}
