package qemu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
)

// turnable is a machine with two knobs.
func turnable(t *testing.T) *Machine {
	t.Helper()
	m, err := Parse("m.yaml", []byte(minimal+`
firmware: ovmf
cmdline: [quiet]
pcie:
  - kind: root-port
    below: [{kind: gpu, model: rtx-4090, bar: 32G}]
  - kind: root-port
    id: second
    below: [{kind: gpu, id: last, model: rtx-4090, bar: 32G}]
expect: {verdicts: [P2P-NO-GPU], as-if: P2P-READY}
knobs:
  - name: rebar
    summary: sizes of BARs
    values:
      - value: "on"
      - value: "off"
        change: {above4g: 64G, devices: {last: {largest: 256M, fixed: true}, gpu: {bar: 256M, largest: 1G}, second: {window: 1G}}}
        expect: {as-if: P2P-BLOCKED}
  - name: iommu
    summary: the IOMMU
    values:
      - value: pt
        change: {iommu: intel, cmdline: [iommu=pt]}
      - value: none
`))
	require.NoError(t, err)
	return m
}

func TestSet(t *testing.T) {
	m := turnable(t)
	require.NoError(t, m.Set("rebar=on"))
	assert.Equal(t, turnable(t), m, "as it is described")
	assert.Equal(t, "mine", m.Title())

	require.NoError(t, m.Set("rebar=off"))
	gpus := m.GPUs()
	assert.Equal(t, Board{Model: "rtx-4090", BAR: 256 * MiB, Largest: GiB}, gpus[0].Board)
	assert.Equal(t, Board{Model: "rtx-4090", BAR: 256 * MiB, Largest: 256 * MiB, Fixed: true}, gpus[1].Board, "what is said of the device itself has the last word")
	assert.Equal(t, 64*GiB, *m.Above4G)
	assert.Zero(t, m.PCIe[0].Window)
	assert.Equal(t, GiB, m.PCIe[1].Window)
	assert.Equal(t, checks.VerdictBlocked, m.Expect.AsIf)
	assert.Equal(t, "mine,rebar=off", m.Title())

	require.NoError(t, m.Set("iommu=pt"))
	assert.Equal(t, IntelIOMMU, m.IOMMU)
	assert.Equal(t, []string{"quiet", "iommu=pt"}, m.Cmdline)
	assert.Empty(t, m.Expect.AsIf, "what two knobs do together is not described")
	assert.Equal(t, "mine,rebar=off,iommu=pt", m.Title())
}

func TestSetMistakes(t *testing.T) {
	for setting, want := range map[string]string{
		"rebar":      `"rebar" is not a setting: want knob=value`,
		"acs=on":     `machine mine has no knob "acs": it has rebar=on|off, iommu=pt|none`,
		"rebar=half": `knob rebar of machine mine can't be "half": it can be on, off`,
	} {
		assert.EqualError(t, turnable(t).Set(setting), want)
	}
	m := turnable(t)
	require.NoError(t, m.Set("rebar=off"))
	assert.ErrorContains(t, m.Set("rebar=off"), "knob rebar is set twice")
	m, err := Parse("m.yaml", []byte(minimal))
	require.NoError(t, err)
	assert.ErrorContains(t, m.Set("a=b"), "it has none")
}

func TestVariants(t *testing.T) {
	m := turnable(t)
	var titles []string
	for _, v := range m.Variants() {
		titles = append(titles, v.Title())
		v.PCIe[0].Below[0].BAR = 0
	}
	assert.Equal(t, []string{"mine", "mine,rebar=off", "mine,iommu=pt"}, titles)
	assert.Equal(t, turnable(t), m, "the machine itself stays as it is")
}
