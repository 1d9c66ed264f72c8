package fakegpu

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/qemu/vfiouser"
)

// board makes a board of a built-in model.
func board(t testing.TB, name string, change func(*Config)) *GPU {
	m, err := ModelByName(name)
	require.NoError(t, err)
	c := Config{Model: m}
	if change != nil {
		change(&c)
	}
	g, err := New(c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// load reads a 32-bit register of configuration space as a guest does.
func load(t testing.TB, d vfiouser.Device, off uint64) uint32 {
	var b [4]byte
	require.NoError(t, d.ReadRegion(vfiouser.ConfigRegion, b[:], off))
	return binary.LittleEndian.Uint32(b[:])
}

func store(t testing.TB, d vfiouser.Device, off uint64, v uint32) {
	require.NoError(t, d.WriteRegion(vfiouser.ConfigRegion, binary.LittleEndian.AppendUint32(nil, v), off))
}

// decode reads the configuration space as a guest does.
func decode(t testing.TB, d vfiouser.Device) *pcicfg.Config {
	var raw []byte
	for off := uint64(0); off < configSize; off += 4 {
		raw = binary.LittleEndian.AppendUint32(raw, load(t, d, off))
	}
	c, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	return c
}

// capabilities lists ids and offsets.
func capabilities(list []pcicfg.Capability) (s []string) {
	for _, c := range list {
		s = append(s, fmt.Sprintf("%x@%x", uint64(c.ID), c.Offset))
	}
	return s
}

func TestModels(t *testing.T) {
	models, err := Models()
	require.NoError(t, err)
	assert.NotEmpty(t, models)
	for _, m := range models {
		t.Run(m.Name, func(t *testing.T) {
			g := board(t, m.Name, func(c *Config) { c.ATS = true })
			for i, f := range g.Functions() {
				c := decode(t, f)
				assert.Empty(t, c.Unknown)
				assert.True(t, c.ExtendedRead)
				assert.EqualValues(t, Vendor, c.Vendor)
				assert.EqualValues(t, SubsystemVendor, c.SubsystemVendor)
				assert.EqualValues(t, Subsystem, c.SubsystemDevice)
				assert.Nil(t, c.ACS, "an endpoint of one function needs none")
				require.NotNil(t, c.Express)
				assert.Equal(t, m.Speed, c.Express.Link.Speed)
				assert.Equal(t, m.Width, c.Express.Link.Width)
				assert.Equal(t, i == 0, c.ATS != nil)
			}
			c := decode(t, g.Functions()[0])
			assert.EqualValues(t, m.Device, c.Device)
			assert.EqualValues(t, m.Class, c.Class)
			fb := m.BARs[m.framebuffer()]
			for _, r := range c.ResizableBARs {
				if r.BAR == fb.Index {
					assert.EqualValues(t, fb.Size, r.Size)
					assert.EqualValues(t, fb.largest(), r.MaxSize())
				}
			}
			assert.Equal(t, fb.Size, g.BAR())
			var bar0 [0xa04]byte
			require.NoError(t, g.Functions()[0].ReadRegion(0, bar0[:], 0))
			boot42 := binary.LittleEndian.Uint32(bar0[pmcBoot42:])
			assert.EqualValues(t, m.Chip, boot42>>20&0x3ff, "NV_PMC_BOOT_42_CHIP_ID")
			assert.EqualValues(t, 0xa, boot42>>16&0xf, "NV_PMC_BOOT_42_MAJOR_REVISION")
			assert.EqualValues(t, uint32(m.Chip)<<20|0xa1, binary.LittleEndian.Uint32(bar0[pmcBoot0:]))
		})
	}
	_, err = ModelByName("voodoo2")
	assert.ErrorContains(t, err, `no GPU model "voodoo2"; there are rtx-3090, `)
}

// TestRealBoard compares a board with what lspci -vvv prints for the real one.
func TestRealBoard(t *testing.T) {
	g := board(t, "rtx-a6000", nil)
	c := decode(t, g.Functions()[0])
	assert.Equal(t, []string{"1@60", "5@68", "10@78", "9@b4"}, capabilities(c.Capabilities))
	assert.Equal(t, []string{"2@100", "1e@258", "4@128", "1@420", "b@600", "19@900", "15@bb0", "26@c1c", "27@d00", "25@e00"},
		capabilities(c.ExtendedCapabilities))
	e := c.Express
	assert.Equal(t, "legacy endpoint", e.Port.String())
	assert.Equal(t, 256, e.MaxPayloadSupported)
	assert.Equal(t, 512, e.MaxReadRequest)
	assert.True(t, e.FunctionReset)
	assert.True(t, e.ExtendedTags)
	assert.Equal(t, []int{1, 2, 3, 4}, e.Link.SupportedSpeeds)
	assert.Equal(t, []pcicfg.ResizableBAR{
		{BAR: 0, Sizes: 1 << 4, Size: 16 << 20},
		{BAR: 1, Sizes: 1<<17 - 1<<6, Size: 256 << 20}, // 64 MiB to 64 GiB
		{BAR: 3, Sizes: 1 << 5, Size: 32 << 20},
	}, c.ResizableBARs)
	// lspci: UEMsk UnsupReq, UESvrt DLP SDES FCP CmpltTO UnxCmplt RxOF MalfTLP
	assert.EqualValues(t, 1<<20, c.AER.UncorrectableMask)
	assert.EqualValues(t, 1<<4|1<<5|1<<13|1<<14|1<<16|1<<17|1<<18, c.AER.UncorrectableSeverity)

	audio := decode(t, g.Functions()[1])
	assert.EqualValues(t, 0x040300, audio.Class)
	assert.Equal(t, []string{"1@60", "5@68", "10@78"}, capabilities(audio.Capabilities))
	assert.Equal(t, []string{"1@100", "25@160"}, capabilities(audio.ExtendedCapabilities))
}

// TestRealSpace compares a board with the configuration space of a real one of
// the same layout, as far as a hypervisor had left that and software does not
// set it.
func TestRealSpace(t *testing.T) {
	text, err := os.ReadFile("../../firmware-checks/testdata/machines/h200-guest.json")
	require.NoError(t, err)
	type device struct {
		Vendor string `json:"vendor"`
		Raw    []byte `json:"raw_config"`
	}
	var facts struct {
		Devices []device `json:"devices"`
	}
	require.NoError(t, json.Unmarshal(text, &facts))
	i := slices.IndexFunc(facts.Devices, func(d device) bool { return d.Vendor == "0x10de" })
	require.GreaterOrEqual(t, i, 0)
	h200, err := pcicfg.Decode(facts.Devices[i].Raw)
	require.NoError(t, err)

	fake := decode(t, board(t, "h100-pcie", nil).Functions()[0])
	assert.Equal(t, h200.Class, fake.Class)
	assert.Equal(t, h200.Revision, fake.Revision)
	assert.Equal(t, capabilities(h200.Capabilities), capabilities(fake.Capabilities))
	assert.Equal(t, h200.Express.Port, fake.Express.Port)
	assert.Equal(t, h200.Express.DeviceCapabilities, fake.Express.DeviceCapabilities)
	assert.Equal(t, h200.Express.DeviceCapabilities2, fake.Express.DeviceCapabilities2)
	assert.Equal(t, h200.Express.Link.SupportedSpeeds, fake.Express.Link.SupportedSpeeds)
	assert.Equal(t, h200.Express.Link.ASPMSupported, fake.Express.Link.ASPMSupported)
	assert.Equal(t, h200.Express.Link.MaxWidth, fake.Express.Link.MaxWidth)
	assert.Equal(t, h200.AER.UncorrectableMask, fake.AER.UncorrectableMask)
	assert.Equal(t, h200.AER.UncorrectableSeverity, fake.AER.UncorrectableSeverity)
	var offsets []int
	for _, c := range fake.ExtendedCapabilities {
		offsets = append(offsets, c.Offset)
	}
	for _, c := range h200.ExtendedCapabilities {
		switch c.Offset {
		case 0x248, 0x250: // SR-IOV and what belongs to it
		case 0x2f0: // serial number
		default:
			assert.Contains(t, offsets, c.Offset)
		}
	}
}

func TestDegradedLink(t *testing.T) {
	g := board(t, "rtx-5090", func(c *Config) { c.Speed, c.Width = 1, 4 })
	l := decode(t, g.Functions()[0]).Express.Link
	assert.Equal(t, []int{5, 16, 1, 4}, []int{l.MaxSpeed, l.MaxWidth, l.Speed, l.Width})
}

// sizing finds the size of BAR 1 as software does: write ones, read the mask.
func sizing(t *testing.T, d vfiouser.Device) uint64 {
	low, high := load(t, d, 0x14), load(t, d, 0x18)
	store(t, d, 0x14, 0xffff_ffff)
	store(t, d, 0x18, 0xffff_ffff)
	mask := uint64(load(t, d, 0x18))<<32 | uint64(load(t, d, 0x14)&^0xf)
	store(t, d, 0x14, low)
	store(t, d, 0x18, high)
	return -mask
}

func TestResize(t *testing.T) {
	const control = 0xbb0 + rebarControl + rebarEntry // of BAR 1
	g := board(t, "rtx-4090", nil)
	d := g.Functions()[0]
	assert.EqualValues(t, 256*MiB, sizing(t, d))

	store(t, d, 0x14, 0xd000_0000)
	store(t, d, control, 1|15<<8)
	assert.EqualValues(t, 1|15<<8, load(t, d, control))
	assert.EqualValues(t, 32*GiB, sizing(t, d))
	assert.Equal(t, 32*GiB, g.BAR())
	assert.EqualValues(t, 0xc, load(t, d, 0x14), "the old address is not one of the new size")
	store(t, d, 0x18, 0x77)
	assert.EqualValues(t, 0x70, load(t, d, 0x18), "addresses are multiples of 32 GiB")

	store(t, d, control, 1|16<<8) // 64 GiB is not offered
	assert.EqualValues(t, 1|15<<8, load(t, d, control))
	assert.EqualValues(t, 32*GiB, sizing(t, d))

	require.NoError(t, d.WriteRegion(vfiouser.ConfigRegion, []byte{6}, control+1)) // one byte
	assert.Equal(t, 64*MiB, g.BAR())

	store(t, d, 0xbb0+rebarControl, 0|5<<8) // BAR 0 has one size
	assert.EqualValues(t, 0|3<<5|4<<8, load(t, d, 0xbb0+rebarControl))

	d.Reset()
	assert.Equal(t, 256*MiB, g.BAR())

	store(t, d, control, 1|15<<8)
	store(t, d, 0x78+expDevCtl, devCtlFLR)
	assert.Equal(t, 256*MiB, g.BAR(), "function level reset")
	assert.Zero(t, load(t, d, 0x78+expDevCtl)&devCtlFLR)
}

func TestKnobs(t *testing.T) {
	resizable := func(g *GPU) []pcicfg.ResizableBAR { return decode(t, g.Functions()[0]).ResizableBARs }
	assert.Empty(t, resizable(board(t, "rtx-4090", func(c *Config) { c.NoReBAR = true })))

	capped := board(t, "rtx-3090", func(c *Config) { c.MaxBAR = 256 * MiB })
	assert.EqualValues(t, 256*MiB, resizable(capped)[1].MaxSize())

	full := board(t, "rtx-3090", func(c *Config) { c.BAR = 32 * GiB })
	assert.Equal(t, 32*GiB, full.BAR())
	assert.EqualValues(t, 32*GiB, full.Functions()[0].Region(1).Size)

	large := board(t, "h100-pcie", func(c *Config) { c.MaxBAR = 1 * GiB })
	assert.Equal(t, 1*GiB, large.BAR(), "a cap also lowers the size at power-on")
}

func TestConfigErrors(t *testing.T) {
	m, err := ModelByName("rtx-4090")
	require.NoError(t, err)
	small, err := NewVRAM(1 * GiB)
	require.NoError(t, err)
	defer small.Close()
	for want, c := range map[string]Config{
		`emulated GPU : no name`: {},
		`emulated GPU rtx-4090: BAR 1: size 3.0 GiB is not a power of two of at least 128 B`:                                                     {Model: m, BAR: 3 * GiB},
		`emulated GPU rtx-4090: BAR 1: size 64 GiB is not one of [64 MiB 128 MiB 256 MiB 512 MiB 1.0 GiB 2.0 GiB 4.0 GiB 8.0 GiB 16 GiB 32 GiB]`: {Model: m, BAR: 64 * GiB},
		`emulated GPU rtx-4090: BAR 1: size 1.0 GiB is not one of [64 MiB 128 MiB 256 MiB]`:                                                      {Model: m, BAR: 1 * GiB, MaxBAR: 256 * MiB},
		`emulated GPU rtx-4090: BAR 1 is 64 MiB at least, more than the cap of 1.0 MiB`:                                                          {Model: m, MaxBAR: MiB},
		`emulated GPU rtx-4090: link Gen5 x16 is beyond the board's Gen4 x16`:                                                                    {Model: m, Speed: 5},
		`emulated GPU rtx-4090: link width x3, want x1, x2, x4, x8 or x16`:                                                                       {Model: m, Width: 3},
		`emulated GPU rtx-4090: VRAM of 1.0 GiB is smaller than BAR 1 can be, 32 GiB`:                                                            {Model: m, VRAM: small},
	} {
		_, err := New(c)
		assert.EqualError(t, err, want)
	}
}

func TestVRAM(t *testing.T) {
	v, err := NewVRAM(32 * GiB)
	require.NoError(t, err)
	defer v.Close()
	share := func(c *Config) { c.VRAM, c.BAR = v, 32*GiB }
	a, b := board(t, "rtx-4090", share), board(t, "rtx-4090", share)
	const at = 0x7_8765_4000
	require.NoError(t, a.Functions()[0].WriteRegion(1, []byte("peer"), at))
	got := make([]byte, 4)
	require.NoError(t, b.Functions()[0].ReadRegion(1, got, at))
	assert.Equal(t, "peer", string(got))
	_, err = v.ReadAt(got, at)
	require.NoError(t, err)
	assert.Equal(t, "peer", string(got))

	_, err = v.WriteAt([]byte("x"), int64(32*GiB))
	assert.ErrorContains(t, err, "is outside the GPU's memory of 32 GiB")
	require.NoError(t, a.Close(), "memory that the Config brought stays")
	_, err = v.ReadAt(got, at)
	assert.NoError(t, err)
}

// TestClientView: a read as large as only a client that sets the device up
// makes is not shown Resizable BAR, so that it leaves the capability alone.
func TestClientView(t *testing.T) {
	d := board(t, "rtx-4090", nil).Functions()[0]
	whole := make([]byte, configSize)
	require.NoError(t, d.ReadRegion(vfiouser.ConfigRegion, whole, 0))
	c, err := pcicfg.Decode(whole)
	require.NoError(t, err)
	assert.Empty(t, c.ResizableBARs)
	assert.Contains(t, capabilities(c.ExtendedCapabilities), "b@bb0")
	assert.EqualValues(t, extReBAR, load(t, d, 0xbb0)&0xffff)
}

func TestOtherRegions(t *testing.T) {
	d := board(t, "rtx-4090", nil).Functions()[0]
	b := []byte{1, 2, 3, 4}
	for _, region := range []int{0, 3, 5} {
		require.NoError(t, d.WriteRegion(region, b, 0x10), "writes are lost")
		got := []byte{9, 9, 9, 9}
		require.NoError(t, d.ReadRegion(region, got, 0x10))
		assert.Zero(t, binary.LittleEndian.Uint32(got))
	}
	assert.Zero(t, d.Region(vfiouser.ROMRegion).Size)
	assert.EqualValues(t, 1, d.IRQs(vfiouser.MSIIRQ))
}

// good is one valid model.
const good = `{name: n, board: b, device: 1, class: 0x030000, revision: 0xa1, chip: 0x192, vram: 1GiB, layout: ga102, speed: 4, width: 16,
  bars: [{index: 0, size: 16MiB}, {index: 1, size: 256MiB, bits64: true, prefetchable: true, sizes: 64MiB-1GiB}]}`

func TestParseModels(t *testing.T) {
	_, err := ParseModels([]byte("models: [" + good + "]"))
	require.NoError(t, err)
	replaced := func(old, changed string) string {
		assert.Contains(t, good, old)
		return strings.Replace(good, old, changed, 1)
	}
	for want, text := range map[string]string{
		`model "n" is there twice`:                                                  good + "," + good,
		"field colour not found":                                                    replaced("name: n", "name: n, colour: red"),
		`model "": no name`:                                                         replaced("name: n,", ""),
		`model "n": no device id`:                                                   replaced("device: 1", "device: 0"),
		"class 0x20000 is not a display controller's":                               replaced("0x030000", "0x020000"),
		"chip id 0x400 does not fit 10 bits":                                        replaced("0x192", "0x400"),
		`layout "nv1", want ga102 or gh100`:                                         replaced("ga102", "nv1"),
		"memory of 1.0 KiB is not a multiple of 1 MiB":                              replaced("vram: 1GiB", "vram: 1KiB"),
		"link generation 7, want 1 to 6":                                            replaced("speed: 4", "speed: 7"),
		"BAR 1: I/O ports are neither 64-bit nor prefetchable nor resizable":        replaced("index: 1,", "index: 1, io: true,"),
		"BAR 1: the framebuffer needs a 64-bit prefetchable BAR":                    replaced("bits64: true, ", ""),
		"BAR 0 overlaps the one before it":                                          replaced("index: 1", "index: 0"),
		"BARs need 7 registers, there are 6":                                        replaced("index: 1", "index: 5"),
		"0 resizable BARs, want 1":                                                  replaced(", sizes: 64MiB-1GiB", ""),
		"BAR 0: 8.0 GiB needs a 64-bit BAR":                                         replaced("16MiB", "8GiB"),
		"BAR 0 must be at least 16 MiB of memory: it has the registers":             replaced("16MiB", "1MiB"),
		"BAR 7: index is not 0 to 5":                                                replaced("index: 1", "index: 7"),
		`sizes "64MiB", want a range such as 64MiB-32GiB`:                           replaced("64MiB-1GiB", "64MiB"),
		`sizes "1GiB-64MiB" are not powers of two, ascending, from 1MiB to 128 TiB`: replaced("64MiB-1GiB", "1GiB-64MiB"),
		`size "large"`: replaced("64MiB-1GiB", "large-1GiB"),
	} {
		_, err := ParseModels([]byte("models: [" + text + "]"))
		assert.ErrorContains(t, err, want)
	}
}

// FuzzConfig writes anything anywhere in configuration space: identity and
// capability lists must stay, and the BAR must keep one of its sizes.
func FuzzConfig(f *testing.F) {
	f.Add(uint16(0xbc0), []byte{0x21, 15, 0, 0})
	f.Add(uint16(0x10), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint16(0x80), []byte{0, 0x80})
	f.Fuzz(func(t *testing.T, off uint16, p []byte) {
		g := board(t, "rtx-4090", nil)
		d := g.Functions()[0]
		at := int(off) % configSize
		p = p[:min(len(p), configSize-at)]
		before := decode(t, d)
		require.NoError(t, d.WriteRegion(vfiouser.ConfigRegion, p, uint64(at)))
		after := decode(t, d)
		assert.Equal(t, before.Device, after.Device)
		assert.Equal(t, before.Capabilities, after.Capabilities)
		assert.Equal(t, before.ExtendedCapabilities, after.ExtendedCapabilities)
		assert.Contains(t, g.fb.Sizes, g.BAR())
	})
}

// FuzzParseModels makes boards of whatever models can be read.
func FuzzParseModels(f *testing.F) {
	f.Add([]byte("models: [" + good + "]"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		models, err := ParseModels(text)
		if err != nil {
			return
		}
		for _, m := range models {
			g, err := New(Config{Model: m})
			if err != nil {
				continue // memory larger than a file can be
			}
			_ = g.Close()
		}
	})
}
