package measure

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestKernelLines(t *testing.T) {
	for line, want := range map[string]struct{ concerns, alarm bool }{
		"NVRM: Xid (PCI:0000:41:00): 31, pid=812, name=p2pbw, Ch 00000002, intr 00000000. MMU Fault":                                    {true, true},
		"DMAR: [DMA Write NO_PASID] Request device [41:00.0] fault addr 0x202000000000 [fault reason 0x05] PTE Write access is not set": {true, true},
		"nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010 address=0x2020 flags=0x0020]":                           {true, true},
		"pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Requester ID)":             {true, true},
		"pcieport 0000:40:01.1: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)":                   {true, true},
		"pcieport 0000:40:01.1: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)":                           {true, false},
		"pcieport 0000:40:01.1: AER: Correctable error message received from 0000:41:00.0":                                              {true, false},
		"DMAR: IOMMU enabled":        {true, false},
		"eth0: link becomes ready":   {false, false},
		"random: crng init done":     {false, false},
		"NVRM: loading NVIDIA UNIX…": {true, false},
	} {
		assert.Equal(t, want.concerns, Concerns(line), line)
		assert.Equal(t, want.alarm, len((&Watch{Kernel: []string{line}}).alarms()) > 0, line)
	}
	var none *Watch
	assert.Empty(t, none.alarms())
}

func TestThrottled(t *testing.T) {
	link := func(speed string, width int) Link {
		return Link{BDF: "0000:41:00.0", MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16, Seen: []LinkState{{speed, width, 9}, {"2.5 GT/s PCIe", 16, 1}}}
	}
	for _, tc := range []struct {
		link Link
		want string
	}{
		{link("16.0 GT/s PCIe", 16), ""},
		{link("8.0 GT/s PCIe", 16), "the link of 0000:41:00.0 ran at 8.0 GT/s PCIe x16 of 16.0 GT/s PCIe x16"},
		{link("16.0 GT/s PCIe", 8), "the link of 0000:41:00.0 ran at 16.0 GT/s PCIe x8 of 16.0 GT/s PCIe x16"},
		{Link{MaxSpeed: "16.0 GT/s PCIe", MaxWidth: 16}, ""}, // not sampled: nothing is known
	} {
		assert.Equal(t, tc.want, (&Watch{Links: []Link{tc.link}}).throttled())
	}
}

func TestWith(t *testing.T) {
	links, sensors := &Watch{Links: []Link{{BDF: "a"}}}, &Watch{Sensors: []Sensor{{BDF: "b"}}}
	var none *Watch
	assert.Equal(t, &Watch{Links: links.Links, Sensors: sensors.Sensors}, links.With(sensors))
	assert.Same(t, sensors, none.With(sensors))
	assert.Same(t, links, links.With(nil))
	assert.Nil(t, none.With(nil))
}
