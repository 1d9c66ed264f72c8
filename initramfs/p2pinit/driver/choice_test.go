package driver

import (
	"testing"
	"testing/fstest"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/kmod/loadopt"

	"github.com/stretchr/testify/assert"
)

// Flags of a 64-bit prefetchable memory BAR (linux/include/linux/ioport.h).
const prefetchable64 = 0x00102200

func TestChoose(t *testing.T) {
	data := &loadopt.Data{
		Offer:  loadopt.Offer{BAR1: loadopt.Separate, Static: loadopt.StaticAuto},
		Edited: []string{"p2p"},
		Models: map[string]loadopt.Model{"2204": {Name: "GeForce RTX 3090", Memory: 24 << 10, Patch: true}, "2bb5": {Memory: 96 << 10}},
	}
	card := func(id, size uint64) facts.Device {
		return facts.Device{Address: "0000:01:00.0", Device: pcicfg.Hex(id), GPU: true, Resources: []facts.Resource{
			{Index: 0, Start: 1 << 30, End: 1<<30 + 16<<20 - 1, Flags: 0x200},
			{Index: 1, Start: 1 << 40, End: pcicfg.Hex(1<<40 + size - 1), Flags: prefetchable64},
			{Index: 3, Start: 1 << 41, End: 1<<41 + 32<<20 - 1, Flags: prefetchable64},
		}}
	}
	const bar1, both = "RMPcieP2PType=1", "RMPcieP2PType=1;RMForceStaticBar1=1"
	unassigned := card(0x2204, 32<<30)
	unassigned.Resources[1].Start, unassigned.Resources[1].End = 0, 32<<30-1
	standIn := card(0x2204, 32<<30)
	standIn.StandIn = true
	for name, test := range map[string]struct {
		devices []facts.Device
		set     string
		console string // of boot_vga
		want    string // keys
	}{
		"BAR1 holds all":          {[]facts.Device{card(0x2204, 32<<30)}, "p2p", "1\n", both},
		"one is too small":        {[]facts.Device{card(0x2204, 32<<30), card(0x2204, 256<<20)}, "p2p", "0\n", bar1},
		"not assigned":            {[]facts.Device{unassigned}, "p2p", "0\n", bar1},
		"unknown model":           {[]facts.Device{card(0x9999, 32<<30)}, "p2p", "0\n", bar1},
		"as large, no console":    {[]facts.Device{card(0x2bb5, 96<<30)}, "p2p", "0\n", both},
		"as large, console":       {[]facts.Device{card(0x2bb5, 96<<30)}, "p2p", "1\n", bar1},
		"as large, console maybe": {[]facts.Device{card(0x2bb5, 96<<30)}, "p2p", "?\n", bar1},
		"as large, no VGA":        {[]facts.Device{card(0x2bb5, 96<<30)}, "p2p", "", both},
		"stock":                   {[]facts.Device{card(0x2204, 32<<30)}, "stock", "0\n", ""},
		"stock does it natively":  {[]facts.Device{card(0x2bb5, 128<<30)}, "stock", "0\n", both},
		"stand-in":                {[]facts.Device{standIn}, "p2p", "0\n", bar1},
		"no GPU":                  {nil, "p2p", "", bar1},
		"no GPU, stock":           {nil, "stock", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			if test.console != "" {
				root["sys/bus/pci/devices/0000:01:00.0/boot_vga"] = &fstest.MapFile{Data: []byte(test.console)}
			}
			c := Choose(data, test.set, &facts.Facts{Devices: test.devices}, root)
			want := ""
			if test.want != "" {
				want = `NVreg_RegistryDwords="` + test.want + `"`
			}
			assert.Equal(t, want, loadopt.Arguments(c.Options))
		})
	}
	assert.Equal(t, data.Choose("p2p", nil), Choose(data, "p2p", nil, nil), "without facts")
}
