package facts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The text files of sysfs, procfs and the kernel's log, whatever is in them.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"00000000-00000fff : Reserved\n  0-f : PCI Bus 0000:00\n",
		"RxErr 1\nBadTLP 0\nTOTAL_ERR_COR 1\n",
		"Model: \t x\nGPU UUID: \t y\nGPU Excluded:\t Yes\n",
		"processor\t: 0\nphysical id\t: 1\nstepping\t: 2\nflags\t: a hypervisor b\n",
		"0x0 0x1 0x200\n0x0 0x0 0x0\n",
		"# CONFIG_NUMA is not set\nCONFIG_PCI_IOV=y\n",
		"4,120,99,-;NVRM: loading\n SUBSYSTEM=pci\n[    1.5] AMD-Vi: x\n",
		"none [integrity] confidentiality",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if ranges, err := parseMemoryMap(s); err == nil {
			kept := relevantRanges(ranges, map[string]bool{"0000:01:00.0": true})
			assert.LessOrEqual(t, len(kept), len(ranges))
			for _, r := range ranges {
				assert.GreaterOrEqual(t, r.Depth, 0)
			}
		}
		if c, err := parseAER(s); err == nil {
			assert.NotContains(t, c.Kinds, "TOTAL_ERR_COR")
			for _, n := range c.Kinds {
				assert.NotZero(t, n)
			}
		}
		if rs, err := parseResources(s); err == nil {
			assert.LessOrEqual(t, len(rs), barCount)
		}
		for name := range parseConfig(s) {
			assert.True(t, kernelOptions[name])
		}
		assert.Positive(t, parseCPUInfo(s).Sockets)
		parseInformation(s)
		selected(s)
		lines, _, err := filterLog(strings.NewReader(s), redact)
		require.NoError(t, err, "no line is longer than a scanner takes")
		assert.LessOrEqual(t, len(lines), maxLogLines)
	})
}
