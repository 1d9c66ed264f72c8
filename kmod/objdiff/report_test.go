package objdiff

import (
	"testing"

	"mkp2pimg/internal/golden"
)

func TestReportString(t *testing.T) {
	r := &Report{
		Functions: Tally{Same: 39000, Changed: 5, Added: 1, Removed: 1},
		Data:      Tally{Same: 12000, Changed: 1},
		Findings: []Finding{
			{Change{Status: Changed, Function: true, Name: "create", StockSize: 102, PatchedSize: 134, First: &Difference{
				Offset: 8, Stock: []byte{0x8b, 0x45}, Patched: []byte{0x44, 0x8b},
			}}, Edited, "src/bus.c"},
			{Change{Status: Changed, Function: true, Name: "construct", StockSize: 16, PatchedSize: 16, First: &Difference{
				Offset: 3, StockTarget: `"default"`, PatchedTarget: `"bar1"`,
			}}, Inlines, "_init, _initOverrides"},
			{Change{Status: Changed, Function: true, Name: "behind", First: &Difference{}}, LineNumbers, "src/bus.c"},
			{Change{Status: Changed, Function: true, Name: "farther", First: &Difference{}}, LineNumbers, "src/bus.c"},
			{Change{Status: Changed, Function: true, Name: "surprise", StockSize: 8, PatchedSize: 9, First: &Difference{
				Offset: 4, PatchedTarget: "other",
			}}, Unexplained, ""},
			{Change{Status: Changed, Name: "table", File: "bus.c", StockSize: 8, PatchedSize: 8, First: &Difference{
				Stock: []byte{1}, Patched: []byte{2},
			}}, Unexplained, ""},
			{Change{Status: Removed, Function: true, Name: "stub", File: "bus.c", StockSize: 7}, Reference, "create"},
			{Change{Status: Added, Function: true, Name: "helper", File: "bus.c", PatchedSize: 70}, Reference, "create"},
		},
		Without: []string{"remove"},
	}
	golden.Equal(t, "testdata/report.golden", r.String())
}
