package pcicfg_test

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

// space returns the configuration space of one function of the machine with
// every capability.
func space(t testing.TB, address string) []byte {
	t.Helper()
	for _, s := range oddities.Spaces() {
		if s.Address == address {
			return s.Bytes
		}
	}
	t.Fatalf("no function %s", address)
	return nil
}

const (
	port = "0000:00:01.0"
	gpu  = "0000:01:00.0"
)

func put16(b []byte, off int, v uint16) { binary.LittleEndian.PutUint16(b[off:], v) }
func put32(b []byte, off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }

func TestDecodeEndpoint(t *testing.T) {
	c, err := pcicfg.Decode(space(t, gpu))
	require.NoError(t, err)
	assert.Equal(t, pcicfg.Hex(0x10de), c.Vendor)
	assert.Equal(t, pcicfg.Hex(0x030200), c.Class)
	assert.Equal(t, []pcicfg.BAR{{Index: 2, Is64: true, Prefetchable: true, Address: 0x38000000000}}, c.BARs)
	assert.Nil(t, c.Bridge)
	assert.True(t, c.ExtendedRead)
	assert.Empty(t, c.Unknown)

	require.NotNil(t, c.Express)
	assert.Equal(t, pcicfg.Endpoint, c.Express.Port)
	assert.Equal(t, 128, c.Express.MaxPayload)
	assert.Equal(t, 512, c.Express.MaxReadRequest)
	assert.Equal(t, 8, c.Express.Link.Width)
	assert.Equal(t, []int{1, 2, 3, 4}, c.Express.Link.SupportedSpeeds)
	assert.Equal(t, &pcicfg.ATS{Offset: c.ATS.Offset, Enabled: true, SmallestUnit: 4096}, c.ATS)

	require.Len(t, c.ResizableBARs, 1)
	r := c.ResizableBARs[0]
	assert.Equal(t, 2, r.BAR)
	assert.Equal(t, uint64(64<<30), r.Size)
	assert.Equal(t, uint64(1<<62), r.MaxSize(), "sizes above 128 TiB are in the control register")
}

func TestDecodeBridge(t *testing.T) {
	c, err := pcicfg.Decode(space(t, port))
	require.NoError(t, err)
	require.NotNil(t, c.Bridge)
	assert.Equal(t, pcicfg.RootPort, c.Express.Port)
	assert.Equal(t, [3]int{0, 1, 1}, [3]int{c.Bridge.Primary, c.Bridge.Secondary, c.Bridge.Subordinate})
	assert.True(t, c.Bridge.Prefetchable64)
	assert.Equal(t, uint64(64<<30), c.Bridge.Prefetchable.Size())
	assert.Zero(t, c.Bridge.Memory.Size(), "nothing below needs it, the window is closed")
	assert.Equal(t, "EC DT", c.ACS.Control.String())
	assert.Equal(t, pcicfg.Hex(0x00204000), c.AER.UncorrectableStatus)
}

func TestDecodeResizableBARSizes(t *testing.T) {
	for name, tc := range map[string]struct {
		capable, control uint32
		bar              int
		size, largest    uint64
	}{
		"4090 at 256 MiB": {0x0000ffc0 << 4, 1 | 1<<5 | 8<<8, 1, 256 << 20, 32 << 30},
		"8 EiB":           {0, 2 | 1<<5 | 43<<8 | 1<<31, 2, 1 << 63, 1 << 63},
		"256 TiB":         {1 << 4, 1<<5 | 28<<8 | 1<<16, 0, 1 << 48, 1 << 48},
		"128 TiB":         {1 << 31, 1<<5 | 27<<8, 0, 1 << 47, 1 << 47},
		"no size":         {0, 1 << 5, 0, 1 << 20, 0},
		"undefined code":  {1 << 4, 1<<5 | 44<<8, 0, 0, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			raw := make([]byte, pcicfg.ExtendedSize)
			put32(raw, 0x100, pcicfg.ExtCapReBAR|1<<16)
			put32(raw, 0x104, tc.capable)
			put32(raw, 0x108, tc.control)
			c, err := pcicfg.Decode(raw)
			require.NoError(t, err)
			require.Len(t, c.ResizableBARs, 1)
			assert.Equal(t, tc.bar, c.ResizableBARs[0].BAR)
			assert.Equal(t, tc.size, c.ResizableBARs[0].Size)
			assert.Equal(t, tc.largest, c.ResizableBARs[0].MaxSize())
		})
	}
}

func TestDecodeShortDumps(t *testing.T) {
	whole := space(t, gpu)
	for name, tc := range map[string]struct {
		length  int
		unknown []string
		express bool
	}{
		"header only": {64, []string{
			"capability at 0x40 lies beyond the 64 bytes of the dump",
			"extended capabilities (ACS, Resizable BAR, ATS, AER) lie beyond the 64 bytes of the dump; read it as root",
		}, false},
		"conventional part": {256, []string{
			"extended capabilities (ACS, Resizable BAR, ATS, AER) lie beyond the 256 bytes of the dump; read it as root",
		}, true},
		"cut in a capability": {0x6a, []string{
			"PCI Express capability at 0x60 is cut off by the end of the 106 byte dump",
			"extended capabilities (ACS, Resizable BAR, ATS, AER) lie beyond the 106 bytes of the dump; read it as root",
		}, false},
		"cut in Resizable BAR": {0x108, []string{
			"Resizable BAR capability at 0x100 is cut off by the end of the 264 byte dump",
			"extended capability at 0x10c lies beyond the 264 bytes of the dump",
		}, true},
		"whole":           {4096, nil, true},
		"longer than any": {5000, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			raw := append(slices.Clone(whole), make([]byte, 1000)...)[:tc.length]
			c, err := pcicfg.Decode(raw)
			require.NoError(t, err)
			assert.Equal(t, min(tc.length, 4096), c.Length)
			assert.Equal(t, tc.unknown, c.Unknown)
			assert.Equal(t, tc.express, c.Express != nil)
			assert.Equal(t, tc.unknown == nil, c.ExtendedRead)
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	_, err := pcicfg.Decode(make([]byte, 63))
	require.ErrorContains(t, err, "63 bytes")
	_, err = pcicfg.Decode(slices.Repeat([]byte{0xff}, 4096))
	require.ErrorIs(t, err, pcicfg.ErrNoResponse)
}

func TestDecodeBrokenLists(t *testing.T) {
	for name, tc := range map[string]struct {
		corrupt func(raw []byte)
		unknown string
	}{
		"loop":                     {func(raw []byte) { raw[0x61] = 0x40 }, "capability list loops back to 0x40"},
		"self loop":                {func(raw []byte) { raw[0x41] = 0x40 }, "capability list loops back to 0x40"},
		"into the header":          {func(raw []byte) { raw[0x41] = 0x10 }, "capability list points into the header at 0x10"},
		"all ones":                 {func(raw []byte) { raw[0x40] = 0xff }, "capability at 0x40 reads all ones"},
		"extended loop":            {func(raw []byte) { put32(raw, 0x100, 0x10010015) }, "extended capability list loops back to 0x100"},
		"extended below its space": {func(raw []byte) { put32(raw, 0x100, 0x04010015) }, "extended capability list points outside its space at 0x40"},
		"extended all ones":        {func(raw []byte) { put32(raw, 0x100, 0xffffffff) }, "extended capability at 0x100 reads all ones"},
		"no entries":               {func(raw []byte) { put32(raw, 0x108, 0) }, "Resizable BAR capability at 0x100 claims 0 entries, the specification allows 1 to 6"},
		"seven entries":            {func(raw []byte) { put32(raw, 0x108, 7<<5) }, "Resizable BAR capability at 0x100 claims 7 entries, the specification allows 1 to 6"},
		"header type":              {func(raw []byte) { raw[0x0e] = 2 }, "header type 2 is neither an endpoint (0) nor a PCI-to-PCI bridge (1)"},
		"last BAR 64-bit":          {func(raw []byte) { put32(raw, 0x24, 0xc) }, "BAR 5 says it is 64 bits wide but is the last register"},
	} {
		t.Run(name, func(t *testing.T) {
			raw := space(t, gpu)
			tc.corrupt(raw)
			c, err := pcicfg.Decode(raw)
			require.NoError(t, err)
			assert.Contains(t, c.Unknown, tc.unknown)
		})
	}
}

// A conventional PCI device has no extended space: what is not in its 256 bytes
// does not exist.
func TestConventionalDeviceIsWhole(t *testing.T) {
	raw := make([]byte, 256)
	put16(raw, 0, 0x1b36)
	c, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.True(t, c.ExtendedRead)
	assert.Empty(t, c.Unknown)
}

func TestWindowContains(t *testing.T) {
	w := pcicfg.Window{Base: 0x1000, Limit: 0x1fff}
	assert.True(t, w.Contains(0x1000, 0x1000))
	assert.True(t, w.Contains(0x1fff, 1))
	assert.False(t, w.Contains(0x1fff, 2))
	assert.False(t, w.Contains(0xfff, 1))
	assert.False(t, w.Contains(0x1000, 0))
	assert.False(t, w.Contains(0x1800, 1<<63))
	assert.False(t, pcicfg.Window{Base: 2, Limit: 1}.Contains(1, 1))
}

func TestBlankSerial(t *testing.T) {
	m := fixture.Machine{Hosts: []fixture.Host{{Functions: []fixture.Function{fixture.GeForce(0x2684, 1<<30, 1<<30)}}}}
	raw := m.Spaces()[0].Bytes
	before, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.Contains(t, string(raw), "\x01\x00\xb0\x48", "the fixture has a serial number")
	pcicfg.BlankSerial(raw)
	assert.NotContains(t, string(raw), "\x01\x00\xb0\x48")
	after, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.Equal(t, before, after, "nothing else is touched")
	pcicfg.BlankSerial(nil)
}

func TestHexText(t *testing.T) {
	for text, want := range map[string]pcicfg.Hex{"0x0": 0, "0x1d": 0x1d, "0xffffffffffffffff": 1<<64 - 1} {
		var h pcicfg.Hex
		require.NoError(t, h.UnmarshalText([]byte(text)))
		assert.Equal(t, want, h)
		assert.Equal(t, text, h.String())
	}
	for _, text := range []string{"", "1d", "0x", "0xg", "0x10000000000000000", "-0x1"} {
		var h pcicfg.Hex
		require.Error(t, h.UnmarshalText([]byte(text)), text)
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "none", pcicfg.ACSBits(0).String())
	assert.Equal(t, "SV RR CR UF", pcicfg.ACSBits(0x1d).String())
	assert.Equal(t, "switch downstream port", pcicfg.DownstreamPort.String())
	assert.Equal(t, "port type 15", pcicfg.PortType(15).String())
}

func FuzzDecode(f *testing.F) {
	for _, s := range oddities.Spaces() {
		f.Add(s.Bytes)
		f.Add(s.Bytes[:256])
		f.Add(s.Bytes[:64])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := pcicfg.Decode(raw)
		if err != nil {
			return
		}
		text, err := json.Marshal(c)
		require.NoError(t, err)
		var back pcicfg.Config
		require.NoError(t, json.Unmarshal(text, &back))
		again, err := json.Marshal(&back)
		require.NoError(t, err)
		assert.Equal(t, string(text), string(again))
		if !c.ExtendedRead {
			assert.NotEmpty(t, c.Unknown, "what is not known must be said")
		}
		pcicfg.BlankSerial(slices.Clone(raw))
	})
}

func BenchmarkDecode4K(b *testing.B) {
	raw := space(b, port)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pcicfg.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}
