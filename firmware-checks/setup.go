package checks

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

// biosPage has the names that vendors give the settings, and the sources of
// [menus].
const biosPage = "docs/bios.md"

// setting is a part of the firmware setup.
type setting string

const (
	largeBARs setting = "Above 4G Decoding, Resizable BAR"
	acsItem   setting = "ACS"
	iommuItem setting = "IOMMU"
)

// menus are where setups have a setting, as far as [biosPage] has a source: in
// boards whose maker's name begins as maker does in DMI, with a CPU of one vendor
// or, where none is named, of any.
var menus = []struct {
	vendor, maker, cpu string
	setting            setting
	menu               string
}{
	{"ASUS", "asus", "", largeBARs, "Advanced Mode (F7), Advanced > PCI Subsystem Settings; CSM is in Boot"},
	{"Gigabyte", "gigabyte", "", largeBARs, "Settings > IO Ports"},
	{"MSI", "micro-star", "GenuineIntel", iommuItem, "Intel VT for Directed I/O Configuration > Intel VT-d"},
	{"Supermicro", "supermicro", "GenuineIntel", acsItem, "ACS (Access Control Services) Control, in the menu of VT-d"},
	{"Supermicro", "supermicro", "GenuineIntel", iommuItem, "Intel VT for Directed I/O (VT-d)"},
}

// whereInSetup is a line of a fix that says where to look for a setting.
func whereInSetup(f *facts.Facts, s setting) string {
	maker := strings.ToLower(f.Firmware.BoardVendor)
	for _, m := range menus {
		if m.setting == s && strings.HasPrefix(maker, m.maker) && (m.cpu == "" || m.cpu == f.CPU.Vendor) {
			return fmt.Sprintf("Boards of %s often have it under: %s. %s has other names.", m.vendor, m.menu, biosPage)
		}
	}
	return biosPage + " has the names that vendors give it, and where they put it."
}

// ofBoard names the board and its firmware, as far as DMI does.
func ofBoard(f *facts.Facts) string {
	fw := f.Firmware
	board := strings.Join(strings.Fields(fw.BoardVendor+" "+fw.BoardName), " ")
	if board == "" {
		return ""
	}
	bios := strings.Join(strings.Fields(fw.BIOSVersion+" "+fw.BIOSDate), " ")
	if bios == "" {
		return fmt.Sprintf(" (%s)", board)
	}
	return fmt.Sprintf(" (%s, BIOS %s)", board, bios)
}
