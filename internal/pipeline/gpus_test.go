package pipeline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFindGPUs(t *testing.T) {
	old, young := []string{"tu10x"}, []string{"ga10x"}
	both := []string{"ga10x", "tu10x"}
	for _, tt := range []struct {
		asked, names, firmware []string
	}{
		{[]string{"all"}, []string{"all"}, nil},
		{[]string{"ada", "all"}, []string{"all"}, nil},
		{[]string{"turing"}, []string{"turing"}, old},
		{[]string{"ampere"}, []string{"ampere"}, both}, // GA100 runs that of Turing
		{[]string{"Ada"}, []string{"ada"}, young},
		{[]string{"hopper"}, []string{"hopper"}, young},
		{[]string{"blackwell", "ada", "ada"}, []string{"ada", "blackwell"}, young},
		{[]string{"3090"}, []string{"GeForce RTX 3090"}, young},
		{[]string{"10de:20b5"}, []string{"A100 80GB PCIe"}, old},
		{[]string{"2080 ti", "ada"}, []string{"GeForce RTX 2080 Ti", "ada"}, both},
	} {
		g, err := findGPUs(tt.asked)
		require.NoError(t, err)
		assert.Equal(t, tt.names, g.names)
		assert.Equal(t, tt.firmware, g.firmware, tt.asked)
	}
	for asked, want := range map[string]string{
		"volta": `GPUs: want all, a family \(turing, ampere, ada, hopper, blackwell\) or a model: GPU "volta" is not known; near it are`,
		"":      `GPU "" is not known`,
	} {
		_, err := findGPUs([]string{asked})
		var refused *RequestError
		require.ErrorAs(t, err, &refused)
		assert.Regexp(t, want, err.Error())
	}
	_, err := findGPUs(nil)
	require.ErrorContains(t, err, "no GPU is named")
}

func TestGPUsUnknownToTheDriver(t *testing.T) {
	for _, tt := range []struct{ gpu, driver, want string }{
		{"all", "535.261.03", ""},
		{"ada", "535.261.03", ""},
		{"5090", "570.211.01", ""},
		{"5090", "565.77", "driver 565.77 does not know the GPU family blackwell: choose 570 or later"},
		{"blackwell", "535.261.03", "driver 535.261.03 does not know the GPU family blackwell"},
	} {
		g, err := findGPUs([]string{tt.gpu})
		require.NoError(t, err)
		if err = g.check(tt.driver); tt.want == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, tt.want)
		}
	}
}
