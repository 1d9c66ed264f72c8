package qemu

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriteTimes(t *testing.T) {
	run := func(machine string, times Times) *Result {
		return &Result{Machine: machine, Accel: TCG, Times: times}
	}
	var b strings.Builder
	require.NoError(t, WriteTimes(&b, []*Result{
		run("pair", Times{Kernel: 1, Init: 3, FirstFinding: 5, ReportEnd: 6, End: 7}),
		run("pair", Times{Kernel: 2, Init: 6, FirstFinding: 8, ReportEnd: 9, End: 11}),
		run("pair", Times{Kernel: 1, Init: 4, FirstFinding: 9, ReportEnd: 9, End: 10}),
		run("iommu", Times{Kernel: 1, Init: 2, End: 3}),
		run("iommu", Times{Kernel: 1, Init: 3, End: 3}),
		run("plain", Times{End: 3}),
	}))
	assert.Equal(t, `| machine | boots | kernel start to init | to first finding | to report complete | to power off |
|---|---|---|---|---|---|
| pair (tcg) | 3 | 3.0 s | 6.0 s | 7.0 s | 9.0 s |
| iommu (tcg) | 2 | 1.5 s | not reached | not reached | 2.0 s |
| plain (tcg) | 1 | not reached | not reached | not reached | not reached |
`, b.String())
	b.Reset()
	require.NoError(t, WriteTimes(&b, nil))
	assert.Empty(t, b.String())
}
