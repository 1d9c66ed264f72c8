package predict

import (
	"slices"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// chipset is an entry of the driver's list of chipsets, of which it takes the
// first that any function on the bus matches, with what its table of peer access
// says about it. The driver forwards only where reads and writes are both
// allowed.
type chipset struct {
	name     string
	vendor   pcicfg.Hex
	forwards bool
	devices  []pcicfg.Hex
}

const (
	vendorAMD   = 0x1022
	vendorATI   = 0x1002
	vendorHygon = 0x1d94
)

// chipsets are those for x86 from 2008 on, in the order of chipsetInfo (nvcst.h)
// with pciePeerAccessCaps (chipset_pcie.c) of release 610. Two boards that the
// table denies it to are left out: a Foxconn C422 and a Clevo notebook, told by
// the subsystem of the chipset.
var chipsets = []chipset{
	{"Intel X58", vendorIntel, true, []pcicfg.Hex{0x3400, 0x3403, 0x3405, 0x3406}},
	{"Intel P55", vendorIntel, true, []pcicfg.Hex{0xd130, 0xd132, 0x3b42}},
	{"Intel P67", vendorIntel, true, []pcicfg.Hex{0x1c46, 0x1c4b, 0x1c4f, 0x1c44}},
	{"Intel X79", vendorIntel, true, []pcicfg.Hex{0x1d40, 0x1d41}},
	{"Intel Z75", vendorIntel, true, []pcicfg.Hex{0x1e10, 0x0150, 0x0151, 0x0100}},
	{"Intel Z87", vendorIntel, true, []pcicfg.Hex{0x8c4b, 0x8c44, 0x8c41, 0x8c49, 0x8c52}},
	{"Intel Z97", vendorIntel, true, []pcicfg.Hex{0x8cc4, 0x8cc3}},
	{"Intel Z170", vendorIntel, true, []pcicfg.Hex{0xa145, 0xa14e, 0xa150, 0xa149, 0xa14a, 0xa14d, 0xa244, 0xa1c8}},
	{"Intel X99", vendorIntel, true, []pcicfg.Hex{0x8d47, 0x8d44}},
	{"Intel Z270", vendorIntel, true, []pcicfg.Hex{0xa2c5, 0xa154, 0xa152}},
	{"Intel C422", vendorIntel, true, []pcicfg.Hex{0xa242, 0xa241, 0xa243}},
	{"Intel X299", vendorIntel, true, []pcicfg.Hex{0xa2d2}},
	{"Intel C62x", vendorIntel, true, []pcicfg.Hex{0xa2d3, 0xa1c1, 0xa1c2, 0xa1c3, 0xa1c4, 0xa1c5, 0xa1c6, 0xa1c7}},
	{"Intel Z370", vendorIntel, true, []pcicfg.Hex{0xa2c9, 0xa310, 0xa30e, 0xa305, 0xa30d}},
	{"Intel Cannon Lake", vendorIntel, false, []pcicfg.Hex{0xa301}},
	{"Intel Comet Lake", vendorIntel, true, []pcicfg.Hex{0x0685}},
	{"Intel C620A", vendorIntel, true, []pcicfg.Hex{0xa1cb}},
	{"Intel Rocket Lake", vendorIntel, true, []pcicfg.Hex{0x4381, 0x4385}},
	{"Intel Alder Lake", vendorIntel, true, []pcicfg.Hex{0x7a82, 0x7a84}},
	{"Intel Sapphire Rapids", vendorIntel, true, []pcicfg.Hex{0x1b81, 0x7a8a}},
	{"Intel Ice Lake", vendorIntel, true, []pcicfg.Hex{0x18dc}},
	{"Intel Raptor Lake", vendorIntel, true, []pcicfg.Hex{0x7a04}},
	{"Intel Granite Rapids", vendorIntel, true, []pcicfg.Hex{0x5795}},
	{"Intel B660", vendorIntel, false, []pcicfg.Hex{0xa70d}},
	{"Intel Arrow Lake", vendorIntel, false, []pcicfg.Hex{
		0x7d06, 0x7d1a, 0x7d1b, 0x7d1c, 0x7d2a, 0x7d2d, 0x7d2e, 0x7d2f, 0x7d35, 0x7d67, 0x7d30,
	}},
	{"AMD RD850", vendorATI, true, []pcicfg.Hex{0x5a13}},
	{"AMD RD870", vendorATI, true, []pcicfg.Hex{0x5a12}},
	{"AMD RD890", vendorATI, true, []pcicfg.Hex{0x5a10}},
	{"AMD 990FX", vendorATI, true, []pcicfg.Hex{0x5a14}},
	// The bridge to the low pin count bus, which all of AMD's hubs since Zen
	// have, those of EPYC included.
	{"AMD hub of Ryzen and EPYC", vendorAMD, true, []pcicfg.Hex{0x790e}},
	{"AMD Raphael", vendorAMD, false, []pcicfg.Hex{0x14d8}},
	{"Hygon", vendorHygon, true, []pcicfg.Hex{0x790e}},
}

// chipsetOf returns the name of the chipset that the driver finds, "" for none
// of the list, and whether the table allows peer access through it.
func chipsetOf(f *facts.Facts) (name string, forwards bool) {
	for _, c := range chipsets {
		for i := range f.Devices {
			if d := &f.Devices[i]; d.Vendor == c.vendor && slices.Contains(c.devices, d.Device) {
				return c.name, c.forwards
			}
		}
	}
	return "", false
}
