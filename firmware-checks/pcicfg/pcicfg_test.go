package pcicfg_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

// space returns the configuration space of one function of the odd machine.
func space(t testing.TB, address string) []byte {
	t.Helper()
	for _, s := range odd.Spaces() {
		if s.Address == address {
			return s.Bytes
		}
	}
	t.Fatalf("no function %s", address)
	return nil
}

const (
	port       = "0000:00:01.0"
	gpu        = "0000:01:00.0"
	noWindow   = "0000:00:02.0"
	window32   = "0000:00:03.0"
	integrated = "0000:00:04.0"
)

func decode(t testing.TB, address string) *pcicfg.Config {
	t.Helper()
	c, err := pcicfg.Decode(space(t, address))
	require.NoError(t, err)
	return c
}

func put16(b []byte, off int, v uint16) { binary.LittleEndian.PutUint16(b[off:], v) }
func put32(b []byte, off int, v uint32) { binary.LittleEndian.PutUint32(b[off:], v) }

func TestDecodeEndpoint(t *testing.T) {
	c := decode(t, gpu)
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

	require.Len(t, c.ResizableBARs, 1)
	r := c.ResizableBARs[0]
	assert.Equal(t, 2, r.BAR)
	assert.Equal(t, uint64(64<<30), r.Size)
	assert.Equal(t, uint64(1<<62), r.MaxSize(), "sizes above 128 TiB are in the control register")
}

func TestDecodeBridge(t *testing.T) {
	c := decode(t, port)
	require.NotNil(t, c.Bridge)
	assert.Equal(t, pcicfg.RootPort, c.Express.Port)
	assert.Equal(t, [3]int{0, 1, 1}, [3]int{c.Bridge.Primary, c.Bridge.Secondary, c.Bridge.Subordinate})
	assert.True(t, c.Bridge.Prefetchable64)
	assert.Equal(t, uint64(64<<30), c.Bridge.Prefetchable.Size())
	assert.Zero(t, c.Bridge.Memory.Size(), "nothing below needs it, the window is closed")
	assert.Equal(t, "EC DT", c.ACS.Control.String())
	assert.Equal(t, pcicfg.Hex(0x00204000), c.AER.UncorrectableStatus)
}

// What the fixture was told is what the decoder finds, for every field of every
// capability.
func TestDecodeEverything(t *testing.T) {
	root := odd.Hosts[0].Functions[0]
	c := decode(t, port)
	want := root.Caps
	assert.Equal(t, [2]pcicfg.Hex{0x1043, 0x8877}, [2]pcicfg.Hex{c.SubsystemVendor, c.SubsystemDevice})
	assert.Equal(t, 1024, c.Express.MaxPayloadSupported)
	assert.Equal(t, 512, c.Express.MaxPayload)
	assert.Equal(t, 4096, c.Express.MaxReadRequest)
	assert.Equal(t, [3]bool{}, [3]bool{c.Express.RelaxedOrdering, c.Express.ExtendedTags, c.Express.NoSnoop})
	assert.Equal(t, pcicfg.Hex(want.DeviceStatus), c.Express.DeviceStatus)
	same(t, &want.DeviceCapabilities2, c.Express.DeviceCapabilities2)
	same(t, &want.DeviceControl2, c.Express.DeviceControl2)
	active := true
	assert.Equal(t, &pcicfg.Link{
		MaxSpeed: 5, Speed: 1, MaxWidth: 16, Width: 4, Active: &active, SupportedSpeeds: []int{1, 2, 3, 4, 5}, Port: 9,
		ASPMSupported: pcicfg.ASPML0s | pcicfg.ASPML1, ASPM: pcicfg.ASPML1, AutonomousWidthDisabled: true, BandwidthChanged: true,
	}, c.Express.Link)
	same(t, want.Link2, c.Express.Link2)
	same(t, want.Slot, c.Express.Slot)
	same(t, root.ACS, c.ACS)
	same(t, root.AER, c.AER)
	same(t, want.DPC, c.DPC)
	same(t, want.DataLinkFeature, c.DataLinkFeature)
	same(t, want.Physical32, c.Physical32)
	same(t, &pcicfg.PhysicalLayer{}, c.Physical16)
	assert.Nil(t, c.Physical64)

	c = decode(t, gpu)
	want = root.Below[0].Caps
	assert.True(t, c.MultiFunction)
	assert.Equal(t, [2]pcicfg.Hex{0x10de, 0x1234}, [2]pcicfg.Hex{c.SubsystemVendor, c.SubsystemDevice})
	assert.Equal(t, want.ROM, c.ROM)
	assert.True(t, c.Express.FunctionReset)
	assert.Nil(t, c.Express.Slot)
	same(t, &want.DeviceCapabilities2, c.Express.DeviceCapabilities2)
	same(t, &want.DeviceControl2, c.Express.DeviceControl2)
	same(t, want.ATS, c.ATS)
	same(t, want.PRI, c.PRI)
	same(t, want.PASID, c.PASID)
	same(t, want.ARI, c.ARI)
	same(t, want.SRIOV, c.SRIOV)
	same(t, want.L1Substates, c.L1Substates)
	same(t, want.Device3, c.Device3)
	assert.Equal(t, want.VFResizableBARs, c.VFResizableBARs)
	require.NotNil(t, c.DataLinkFeature.RemoteScaledFlowControl)

	c = decode(t, window32)
	assert.True(t, c.Express.FlitModeSupported)
	same(t, odd.Hosts[0].Functions[2].Caps.Link2, c.Express.Link2)
	same(t, odd.Hosts[0].Functions[2].Caps.Physical64, c.Physical64)
}

// same compares all but where the capability lies and its raw value.
func same[T any](t *testing.T, want, got *T) {
	t.Helper()
	require.NotNil(t, got)
	w := *want
	for _, name := range []string{"Offset", "Raw"} {
		if f := reflect.ValueOf(&w).Elem().FieldByName(name); f.IsValid() {
			f.Set(reflect.ValueOf(got).Elem().FieldByName(name))
		}
	}
	assert.Equal(t, &w, got)
}

func TestDecodeWindows(t *testing.T) {
	b := decode(t, noWindow).Bridge
	assert.True(t, b.NoPrefetchable)
	assert.Zero(t, b.Prefetchable.Size(), "registers that read zero are no window of 1 MiB")
	assert.False(t, b.Prefetchable.Contains(0, 1))

	b = decode(t, window32).Bridge
	assert.False(t, b.NoPrefetchable)
	assert.False(t, b.Prefetchable64)
	assert.Equal(t, uint64(256<<20), b.Prefetchable.Size())
	assert.Less(t, b.Prefetchable.Limit, pcicfg.Hex(1<<32))

	// The first MiB by a 64-bit window: a bridge that nobody programmed.
	raw := space(t, noWindow)
	put32(raw, 0x24, 0x00010001)
	c, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.False(t, c.Bridge.NoPrefetchable)
	assert.Equal(t, pcicfg.Window{Base: 0, Limit: 0xfffff}, c.Bridge.Prefetchable)
}

func TestDecodeIntegrated(t *testing.T) {
	c := decode(t, integrated)
	assert.Equal(t, pcicfg.IntegratedEndpoint, c.Express.Port)
	assert.Nil(t, c.Express.Link, "it has none")
	assert.Nil(t, c.Express.Link2)
	assert.NotNil(t, c.Express.DeviceCapabilities2)
	same(t, &pcicfg.ATS{Enabled: true, SmallestUnit: 4096, InvalidateQueue: 32}, c.ATS)
}

// A capability version 1 ends before the second registers.
func TestDecodeVersion1(t *testing.T) {
	raw := space(t, port)
	raw[0x62] = raw[0x62]&^0xf | 1
	c, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.NotNil(t, c.Express.Link)
	assert.NotNil(t, c.Express.Slot)
	assert.Nil(t, c.Express.Link2)
	assert.Nil(t, c.Express.DeviceCapabilities2)
	assert.Nil(t, c.Express.DeviceControl2)
	assert.Empty(t, c.Express.Link.SupportedSpeeds)
	assert.Empty(t, c.Unknown, "nothing is hidden, it does not exist")
}

// Only what the whole list did not have is known to be missing.
func TestHasExtended(t *testing.T) {
	whole := decode(t, gpu)
	has, known := whole.HasExtended(pcicfg.ExtCapIDE)
	assert.True(t, has && known)
	has, known = whole.HasExtended(pcicfg.ExtCapACS)
	assert.True(t, !has && known)
	short, err := pcicfg.Decode(space(t, gpu)[:pcicfg.ConventionalSize])
	require.NoError(t, err)
	has, known = short.HasExtended(pcicfg.ExtCapACS)
	assert.True(t, !has && !known)
}

// An egress control vector of size 0 has 256 bits, and one that is cut off
// leaves the rest of the capability readable.
func TestDecodeEgressVector(t *testing.T) {
	raw := make([]byte, pcicfg.ExtendedSize)
	put32(raw, 0x100, pcicfg.ExtCapACS|1<<16)
	put16(raw, 0x104, uint16(pcicfg.EgressControl))
	raw[0x108+31] = 0x80
	c, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	assert.Equal(t, 256, c.ACS.EgressBits)
	assert.Equal(t, []int{255}, c.ACS.Egress)

	c, err = pcicfg.Decode(raw[:0x110])
	require.NoError(t, err)
	require.NotNil(t, c.ACS)
	assert.Zero(t, c.ACS.EgressBits)
	assert.Contains(t, c.Unknown, "ACS egress control vector capability at 0x100 is cut off by the end of the 272 byte dump")
}

func TestDecodeSlotPower(t *testing.T) {
	for _, tc := range []struct{ value, scale, milliwatts uint32 }{
		{75, 0, 75_000}, {0xef, 0, 239_000}, {0xf0, 0, 250_000}, {0xf2, 0, 300_000}, {0xfe, 0, 600_000},
		{0xf0, 1, 24_000}, {25, 2, 250}, {255, 3, 255}, {0, 0, 0},
	} {
		raw := space(t, port)
		put32(raw, 0x60+0x14, tc.value<<7|tc.scale<<15)
		c, err := pcicfg.Decode(raw)
		require.NoError(t, err)
		assert.Equal(t, int(tc.milliwatts), c.Express.Slot.PowerLimit, tc)
	}
}

func TestCompletionTimeout(t *testing.T) {
	var valid int
	for code := range 16 {
		shortest, longest, ok := pcicfg.DeviceControl2{Timeout: code}.CompletionTimeout()
		assert.Equal(t, ok, shortest < longest, code)
		if ok {
			valid++
		}
	}
	assert.Equal(t, 9, valid)
	_, _, ok := pcicfg.DeviceControl2{TimeoutDisabled: true}.CompletionTimeout()
	assert.False(t, ok, "it waits for ever")
}

// What is decoded of every kind of machine follows the schema and survives being
// saved.
func TestFollowsSchema(t *testing.T) {
	schema, err := jsonschema.NewCompiler().Compile("schema.json")
	require.NoError(t, err)
	for _, k := range append(fixture.Kinds(), odd) {
		for _, s := range k.Spaces() {
			for _, n := range []int{pcicfg.HeaderSize, pcicfg.ConventionalSize, len(s.Bytes)} {
				c, err := pcicfg.Decode(s.Bytes[:n])
				if err != nil {
					continue // no response
				}
				doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(roundTrip(t, c)))
				require.NoError(t, err)
				require.NoError(t, schema.Validate(doc), "%s %s", k.Name, s.Address)
			}
		}
	}
}

// roundTrip checks that c comes out of JSON as it went in, and returns its
// text.
func roundTrip(t testing.TB, c *pcicfg.Config) []byte {
	t.Helper()
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var back pcicfg.Config
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, c, &back)
	return text
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

// However short the dump, what is decoded is what the whole one says, and what
// is missing is said to be unknown: no zero stands in for it.
func TestDecodeShortNeverLies(t *testing.T) {
	for _, address := range []string{port, gpu, integrated} {
		raw := space(t, address)
		whole, err := pcicfg.Decode(raw)
		require.NoError(t, err)
		for n := pcicfg.HeaderSize; n < len(raw); n += 2 {
			c, err := pcicfg.Decode(raw[:n])
			require.NoError(t, err)
			within(t, "", reflect.ValueOf(c), reflect.ValueOf(whole))
			if !c.ExtendedRead {
				require.NotEmpty(t, c.Unknown)
			}
		}
	}
}

// within checks that got is want with some parts not known: nil, an entry less
// or, of the few fields that may be 0 for that, 0.
func within(t *testing.T, name string, got, want reflect.Value) {
	t.Helper()
	switch got.Kind() {
	case reflect.Pointer:
		if !got.IsNil() {
			require.False(t, want.IsNil(), name)
			within(t, name, got.Elem(), want.Elem())
		}
	case reflect.Slice:
		require.LessOrEqual(t, got.Len(), want.Len(), name)
		for i := range got.Len() {
			within(t, name, got.Index(i), want.Index(i))
		}
	case reflect.Struct:
		for i := range got.NumField() {
			switch field := got.Type().Field(i).Name; field {
			case "Length", "ExtendedRead", "Unknown":
			default:
				within(t, name+"."+field, got.Field(i), want.Field(i))
			}
		}
	default:
		mayBeZero := []string{".SubsystemVendor", ".SubsystemDevice", ".ACS.EgressBits"}
		if !got.IsZero() || !slices.Contains(mayBeZero, name) {
			require.Equal(t, want.Interface(), got.Interface(), name)
		}
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
		"ACS beyond itself":        {func(raw []byte) { put32(raw, 0x100, pcicfg.ExtCapACS|1<<16); put32(raw, 0x104, 0x0065_0005) }, "ACS capability at 0x100 has EC DT switched on, which it does not implement"},
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
	names := map[string]bool{}
	for port := range pcicfg.PortType(16) {
		assert.NotEmpty(t, port.String())
		names[port.String()] = true
	}
	assert.Len(t, names, 16, "each has a name of its own")
	assert.Equal(t, "switch downstream port", pcicfg.DownstreamPort.String())
	assert.Equal(t, "port type 15", pcicfg.PortType(15).String())
}

// check tests what must hold of the decoding of any bytes.
func check(t *testing.T, raw []byte) {
	before := slices.Clone(raw)
	c, err := pcicfg.Decode(raw)
	require.Equal(t, before, raw, "the dump is only read")
	if err != nil {
		require.True(t, len(raw) < pcicfg.HeaderSize || errors.Is(err, pcicfg.ErrNoResponse), err)
		return
	}
	again, err := pcicfg.Decode(raw)
	require.NoError(t, err)
	require.Equal(t, c, again)
	roundTrip(t, c)
	if !c.ExtendedRead {
		require.NotEmpty(t, c.Unknown, "what is not known must be said")
	}
	offsets := map[int]bool{}
	for _, e := range slices.Concat(c.Capabilities, c.ExtendedCapabilities) {
		require.False(t, offsets[e.Offset], "no entry is met twice")
		offsets[e.Offset] = true
		require.Less(t, e.Offset, c.Length)
	}
	for _, r := range slices.Concat(c.ResizableBARs, c.VFResizableBARs) {
		require.True(t, r.Size == 0 || r.Size >= 1<<20 && bits.OnesCount64(r.Size) == 1)
		require.Less(t, r.Sizes, pcicfg.Hex(1<<44))
	}
	if c.Bridge != nil && c.Bridge.NoPrefetchable {
		require.Zero(t, c.Bridge.Prefetchable.Size())
	}
	for peer := range 3 {
		_, known := c.ACS.Toward(peer)
		require.True(t, known || len(c.Unknown) > 0)
	}
	blanked := slices.Clone(raw)
	pcicfg.BlankSerial(blanked)
	if c, err = pcicfg.Decode(blanked); err == nil && len(again.Unknown) == 0 {
		require.Equal(t, again.ExtendedCapabilities[:len(c.ExtendedCapabilities)], c.ExtendedCapabilities, "blanking moves nothing")
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range odd.Spaces() {
		f.Add(s.Bytes)
		f.Add(s.Bytes[:min(len(s.Bytes), 256)])
		f.Add(s.Bytes[:64])
	}
	f.Fuzz(check)
}

// FuzzDecodeEdited writes a few words over a good configuration space, so that
// the fuzzer needs not find the way into the capabilities first. Each edit is an
// offset, 12 bits in two bytes, and a double word.
func FuzzDecodeEdited(f *testing.F) {
	spaces := odd.Spaces()
	f.Add(uint8(0), uint16(4096), []byte{0x00, 0x60, 0x10, 0x10, 0x42, 0x00})
	f.Add(uint8(1), uint16(300), []byte{0x01, 0x00, 0x0d, 0x00, 0x01, 0x10, 0x01, 0x04, 0xff, 0xff, 0xff, 0xff})
	f.Add(uint8(2), uint16(64), []byte{})
	f.Fuzz(func(t *testing.T, which uint8, length uint16, edits []byte) {
		raw := slices.Clone(spaces[int(which)%len(spaces)].Bytes)
		for edit := range slices.Chunk(edits, 6) {
			if len(edit) < 6 {
				break
			}
			off := int(binary.BigEndian.Uint16(edit)) % (len(raw) - 3)
			copy(raw[off:], edit[2:])
		}
		check(t, raw[:int(length)%(len(raw)+1)])
	})
}

func BenchmarkDecode4K(b *testing.B) {
	for name, address := range map[string]string{"port": port, "gpu": gpu} {
		b.Run(name, func(b *testing.B) {
			raw := space(b, address)
			b.ReportAllocs()
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				if _, err := pcicfg.Decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
