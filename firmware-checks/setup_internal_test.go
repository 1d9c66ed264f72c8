package checks

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
)

func TestWhereInSetup(t *testing.T) {
	const elsewhere = "docs/bios.md has the names that vendors give it, and where they put it."
	for name, tc := range map[string]struct {
		maker, cpu string
		setting    setting
		want       string
	}{
		"ASUS":               {"ASUSTeK COMPUTER INC.", "AuthenticAMD", largeBARs, "Boards of ASUS often have it under: Advanced Mode (F7), Advanced > PCI Subsystem Settings; CSM is in Boot. docs/bios.md has other names."},
		"other setting":      {"ASUSTeK COMPUTER INC.", "AuthenticAMD", acsItem, elsewhere},
		"Supermicro, Intel":  {"Supermicro", "GenuineIntel", acsItem, "Boards of Supermicro often have it under: ACS (Access Control Services) Control, in the menu of VT-d. docs/bios.md has other names."},
		"Supermicro, AMD":    {"Supermicro", "AuthenticAMD", acsItem, elsewhere},
		"no name of a maker": {"", "AuthenticAMD", largeBARs, elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			f := &facts.Facts{Firmware: facts.Firmware{BoardVendor: tc.maker}, CPU: facts.CPU{Vendor: tc.cpu}}
			assert.Equal(t, tc.want, whereInSetup(f, tc.setting))
		})
	}
}

// What the findings say about a vendor's menus stands with its source in the page.
func TestMenusAreInThePage(t *testing.T) {
	page, err := os.ReadFile("../" + biosPage)
	require.NoError(t, err)
	for _, m := range menus {
		found := false
		for line := range strings.Lines(string(page)) {
			found = found || strings.HasPrefix(line, "| "+m.vendor) && strings.Contains(line, m.menu)
		}
		assert.True(t, found, "%s: %s", m.vendor, m.menu)
	}
}
