package topology_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/topology"
)

// function returns a function with a link, both as capable and as trained.
func function(address string, port pcicfg.PortType, generation, width, payload int, path ...string) facts.Device {
	return facts.Device{
		Address: address, Root: "pci0000:00", Path: path, NUMANode: -1, GPU: port == pcicfg.Endpoint,
		Config: &pcicfg.Config{Length: pcicfg.ExtendedSize, Express: &pcicfg.Express{
			Port: port, MaxPayload: payload,
			Link: &pcicfg.Link{MaxSpeed: generation, Speed: generation, MaxWidth: width, Width: width},
		}},
	}
}

// two returns two GPUs on root ports, all links alike.
func two(generation, width, payload int) *facts.Facts {
	return &facts.Facts{Devices: []facts.Device{
		function("0000:00:01.0", pcicfg.RootPort, generation, width, payload),
		function("0000:00:02.0", pcicfg.RootPort, generation, width, payload),
		function("0000:01:00.0", pcicfg.Endpoint, generation, width, payload, "0000:00:01.0"),
		function("0000:02:00.0", pcicfg.Endpoint, generation, width, payload, "0000:00:02.0"),
	}}
}

func path(f *facts.Facts) topology.Path { return topology.New(f).Path("0000:01:00.0", "0000:02:00.0") }

// Raw rates are those of the specification (2.5 and 5 GT/s at 8b/10b, 128b/130b
// from 8 GT/s on); with a payload P of a posted write they are less by
// P/(P+24), and with a 32-bit address by P/(P+20).
func TestCeiling(t *testing.T) {
	for _, tc := range []struct {
		generation, width, payload int
		low                        bool
		write, read                float64
	}{
		{1, 16, 0, false, 4, 4},
		{2, 16, 0, false, 8, 8},
		{3, 16, 0, false, 15.754, 15.754},
		{3, 16, 128, false, 13.27, 13.62},
		{3, 16, 256, false, 14.40, 14.61},
		{3, 16, 512, false, 15.05, 15.16},
		{4, 16, 0, false, 31.508, 31.508},
		{4, 16, 128, false, 26.53, 27.25},
		{4, 16, 256, false, 28.81, 29.22},
		{4, 16, 512, false, 30.10, 30.32},
		{5, 16, 0, false, 63.015, 63.015},
		{5, 16, 128, false, 53.07, 54.50},
		{5, 16, 256, false, 57.61, 58.45},
		{5, 16, 512, false, 60.19, 60.65},
		{3, 8, 128, false, 6.63, 6.81},
		{4, 4, 256, false, 7.20, 7.31},
		{3, 16, 128, true, 13.62, 13.62},
		{4, 16, 128, true, 27.25, 27.25},
		{5, 16, 128, true, 54.50, 54.50},
		// Flits of 256 bytes give 236 to packets, which have no framing.
		{6, 16, 0, false, 118, 118},
		{6, 16, 256, false, 111.06, 112.72},
	} {
		f := two(tc.generation, tc.width, tc.payload)
		start := pcicfg.Hex(0x38_0000_0000)
		if tc.low {
			start = 0xc000_0000
		}
		f.Devices[3].Resources = []facts.Resource{{Index: 1, Start: start, End: start + 256<<20 - 1, Flags: 0x14220c}}
		p := path(f)
		assert.InDelta(t, tc.write, float64(p.Ceiling.Write), 0.006, "%+v", tc)
		assert.InDelta(t, tc.read, float64(p.Ceiling.Read), 0.006, "%+v", tc)
		assert.Equal(t, 0, p.Ceiling.Hop)
		assert.Equal(t, tc.payload, p.Ceiling.MaxPayload)
		assert.Equal(t, tc.payload == 0, p.Ceiling.Notes != nil)
	}
}

func TestNarrowest(t *testing.T) {
	link := func(f *facts.Facts, i int) *pcicfg.Link { return f.Devices[i].Config.Express.Link }
	for name, tc := range map[string]struct {
		change func(f *facts.Facts)
		hop    int
		loaded topology.Rate
		write  float64
		now    float64
		notes  int
	}{
		"narrow slot":   {func(f *facts.Facts) { link(f, 1).Width, link(f, 3).Width = 4, 4 }, 3, topology.Rate{Generation: 4, Width: 4}, 7.20, 7.20, 0},
		"one end slow":  {func(f *facts.Facts) { link(f, 1).MaxSpeed, link(f, 1).Speed, link(f, 3).Speed = 3, 3, 3 }, 3, topology.Rate{Generation: 3, Width: 16}, 14.40, 14.40, 0},
		"idle GPU":      {func(f *facts.Facts) { link(f, 1).Speed, link(f, 3).Speed = 1, 1 }, 0, topology.Rate{Generation: 4, Width: 16}, 28.81, 3.66, 1},
		"state unknown": {func(f *facts.Facts) { *link(f, 3), *link(f, 1) = pcicfg.Link{MaxSpeed: 4, MaxWidth: 8}, pcicfg.Link{} }, 3, topology.Rate{Generation: 4, Width: 8}, 14.40, 28.81, 1},
		"rate unknown":  {func(f *facts.Facts) { *link(f, 3), *link(f, 1) = pcicfg.Link{}, pcicfg.Link{} }, 0, topology.Rate{Generation: 4, Width: 16}, 28.81, 28.81, 1},
		"small payload": {func(f *facts.Facts) { f.Devices[1].Config.Express.MaxPayload = 128 }, 0, topology.Rate{Generation: 4, Width: 16}, 26.53, 26.53, 0},
		"no config, as sysfs words it": {func(f *facts.Facts) {
			for _, i := range []int{1, 3} {
				d := &f.Devices[i]
				d.Config = nil
				d.LinkSpeed, d.LinkWidth, d.MaxLinkSpeed, d.MaxLinkWidth = "8.0 GT/s PCIe", "8", "16 GT/s", "255"
			}
		}, 3, topology.Rate{Generation: 4, Width: 8}, 15.754, 7.877, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := two(4, 16, 256)
			tc.change(f)
			p := path(f)
			require.Equal(t, tc.hop, p.Ceiling.Hop)
			assert.Equal(t, tc.loaded, p.Hops[p.Ceiling.Hop].Link.Loaded)
			assert.InDelta(t, tc.write, float64(p.Ceiling.Write), 0.006)
			assert.InDelta(t, tc.now, float64(p.Now.Write), 0.006)
			assert.Len(t, p.Ceiling.Notes, tc.notes)
		})
	}
}

// kinds returns the kinds of the hops.
func kinds(p topology.Path) []topology.HopKind {
	var out []topology.HopKind
	for _, h := range p.Hops {
		out = append(out, h.Kind)
	}
	return out
}

func TestHops(t *testing.T) {
	port := func(address string, t pcicfg.PortType, path ...string) facts.Device {
		return function(address, t, 4, 16, 256, path...)
	}
	gpu := func(address string, path ...string) facts.Device {
		return function(address, pcicfg.Endpoint, 4, 16, 256, path...)
	}
	inDomain := func(root string, node int, d facts.Device) facts.Device {
		d.Root, d.NUMANode = root, node
		return d
	}
	const link, sw = topology.LinkHop, topology.SwitchHop
	for name, tc := range map[string]struct {
		devices []facts.Device
		class   topology.Class
		want    []topology.HopKind
	}{
		"root bus, as in a guest": {
			[]facts.Device{gpu("0000:01:00.0"), gpu("0000:02:00.0")},
			topology.PHB,
			[]topology.HopKind{topology.RootComplexHop, topology.RootComplexHop},
		},
		"two devices below one port": {
			[]facts.Device{port("0000:00:01.0", pcicfg.RootPort), gpu("0000:01:00.0", "0000:00:01.0"), gpu("0000:02:00.0", "0000:00:01.0")},
			topology.PIX, []topology.HopKind{link, link},
		},
		"switch whose downstream ports are functions": {
			[]facts.Device{
				port("0000:00:01.0", pcicfg.RootPort), port("0000:03:00.0", pcicfg.UpstreamPort, "0000:00:01.0"),
				port("0000:04:00.0", pcicfg.DownstreamPort, "0000:00:01.0", "0000:03:00.0"),
				port("0000:04:00.1", pcicfg.DownstreamPort, "0000:00:01.0", "0000:03:00.0"),
				gpu("0000:01:00.0", "0000:00:01.0", "0000:03:00.0", "0000:04:00.0"),
				gpu("0000:02:00.0", "0000:00:01.0", "0000:03:00.0", "0000:04:00.1"),
			},
			topology.PIX, []topology.HopKind{link, sw, sw, link},
		},
		"switch of several upstream functions": {
			[]facts.Device{
				port("0000:00:01.0", pcicfg.RootPort),
				port("0000:03:00.0", pcicfg.UpstreamPort, "0000:00:01.0"), port("0000:03:00.1", pcicfg.UpstreamPort, "0000:00:01.0"),
				port("0000:04:00.0", pcicfg.DownstreamPort, "0000:00:01.0", "0000:03:00.0"),
				port("0000:05:00.0", pcicfg.DownstreamPort, "0000:00:01.0", "0000:03:00.1"),
				gpu("0000:01:00.0", "0000:00:01.0", "0000:03:00.0", "0000:04:00.0"),
				gpu("0000:02:00.0", "0000:00:01.0", "0000:03:00.1", "0000:05:00.0"),
			},
			topology.PXB, []topology.HopKind{link, sw, topology.DeviceHop, sw, link},
		},
		"two domains": {
			[]facts.Device{
				inDomain("pci10000:00", 0, gpu("0000:01:00.0")), inDomain("pci0000:80", 1, gpu("0000:02:00.0")),
			},
			topology.SYS, []topology.HopKind{topology.RootComplexHop, topology.SocketHop, topology.RootComplexHop},
		},
		"ports gone from the bus": {
			[]facts.Device{gpu("0000:01:00.0", "0000:00:01.0"), gpu("0000:02:00.0", "0000:00:02.0")},
			topology.PHB, []topology.HopKind{link, topology.RootComplexHop, topology.RootComplexHop, link},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := path(&facts.Facts{Devices: tc.devices})
			assert.Equal(t, tc.class, p.Class)
			assert.Equal(t, tc.want, kinds(p))
			if len(p.Hops) > 0 {
				assert.Equal(t, "0000:01:00.0", p.Hops[0].From)
				assert.Equal(t, "0000:02:00.0", p.Hops[len(p.Hops)-1].To)
			}
			for i := 1; i < len(p.Hops); i++ {
				assert.Equal(t, p.Hops[i-1].To, p.Hops[i].From)
			}
		})
	}
}

// The way back is the same hops in the other order.
func TestPathsAreOrdered(t *testing.T) {
	g := topology.New(gather(t, kind(t, "two-switches")))
	paths := g.Paths()
	assert.Len(t, paths, 6)
	assert.Len(t, g.Pairs(), 3)
	for _, p := range paths {
		back := g.Path(p.B.Address, p.A.Address)
		require.Len(t, back.Hops, len(p.Hops))
		for i, h := range p.Hops {
			r := back.Hops[len(p.Hops)-1-i]
			assert.Equal(t, [2]string{h.From, h.To}, [2]string{r.To, r.From})
			assert.Equal(t, h.Kind, r.Kind)
		}
	}
}

func BenchmarkPaths(b *testing.B) {
	f := gather(b, fixture.Kind{Machine: fixture.Crowd()})
	for b.Loop() {
		topology.New(f).Paths()
	}
}
