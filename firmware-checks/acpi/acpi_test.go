package acpi_test

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/acpi"
	"mkp2pimg/internal/golden"
)

// parsers are the decoders by signature.
var parsers = map[string]func([]byte) (any, error){
	"DMAR": func(b []byte) (any, error) { return acpi.ParseDMAR(b) },
	"IVRS": func(b []byte) (any, error) { return acpi.ParseIVRS(b) },
	"MCFG": func(b []byte) (any, error) { return acpi.ParseMCFG(b) },
	"SRAT": func(b []byte) (any, error) { return acpi.ParseSRAT(b) },
}

// table returns a table of a header, with the right length and checksum, and body.
func table(signature string, body ...byte) []byte {
	b := append(make([]byte, 36), body...)
	copy(b, signature)
	copy(b[10:], "OEMID TABLE   ")
	binary.LittleEndian.PutUint32(b[4:], uint32(len(b)))
	return sum(b)
}

// sum sets the checksum of b.
func sum(b []byte) []byte {
	b[9] = 0
	var n byte
	for _, c := range b {
		n += c
	}
	b[9] = -n
	return b
}

// fixed returns n bytes that begin with b.
func fixed(n int, b ...byte) []byte { return append(b, make([]byte, n-len(b))...) }

func join(parts ...[]byte) (b []byte) {
	for _, p := range parts {
		b = append(b, p...)
	}
	return b
}

// The tables that QEMU makes for a machine with two NUMA nodes: with an Intel
// IOMMU and a second root bus on node 1, and with an AMD IOMMU.
func TestQEMU(t *testing.T) {
	files, err := filepath.Glob("testdata/qemu-*.bin")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			parsed, err := parsers[string(b[:4])](b)
			require.NoError(t, err)
			got, err := json.MarshalIndent(parsed, "", "  ")
			require.NoError(t, err)
			golden.Equal(t, strings.TrimSuffix(file, ".bin")+".json", string(got)+"\n")
		})
	}
}

func TestDMAR(t *testing.T) {
	d, err := acpi.ParseDMAR(table("DMAR", join(
		fixed(12, 45, 0b101),
		// A unit for a device behind a bridge, then one for all others.
		[]byte{0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0xfc, 0xc5, 0, 0, 0, 0}, []byte{1, 8, 0, 0, 0, 0x80, 0x1d, 2},
		[]byte{0, 0, 16, 0, 1, 0, 0, 0, 0, 0xc0, 0xff, 0xc5, 0, 0, 0, 0},
		// Reserved memory of a device behind a root port.
		[]byte{1, 0, 34, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0xff, 0xff, 0x1f, 0, 0, 0, 0, 0}, []byte{2, 10, 0, 0, 0, 0, 0x1c, 0, 0, 1},
		// Root ports with ATS: one, a scope of a later specification, a platform's HPET.
		[]byte{2, 0, 32, 0, 0, 0, 0, 0}, []byte{2, 8, 0, 0, 0, 0x16, 2, 0}, []byte{9, 8, 0, 0, 0, 0, 0, 0}, []byte{4, 8, 0, 0, 0, 0, 0x1f, 0},
		[]byte{3, 0, 20, 0, 0, 0, 0, 0, 0, 0xc0, 0xff, 0xc5, 0, 0, 0, 0, 1, 0, 0, 0},
		[]byte{5, 0, 8, 0, 1, 0, 0, 0}, // SATC
	)...))
	require.NoError(t, err)
	assert.Equal(t, &acpi.DMAR{
		HostAddressWidth: 46, InterruptRemapping: true, DMAOptIn: true,
		Units: []acpi.DRHD{
			{Segment: 1, Base: 0xc5fc0000, Scopes: []acpi.Scope{{Kind: acpi.ScopeEndpoint, Bus: 0x80, Path: []string{"1d.2"}}}},
			{Base: 0xc5ffc000, All: true},
		},
		Reserved: []acpi.RMRR{{Base: 0x100000, Limit: 0x1fffff, Scopes: []acpi.Scope{{Kind: acpi.ScopeBridge, Path: []string{"1c.0", "00.1"}}}}},
		ATS: []acpi.ATSR{{Scopes: []acpi.Scope{
			{Kind: acpi.ScopeBridge, Bus: 0x16, Path: []string{"02.0"}}, {Kind: acpi.ScopeHPET, Path: []string{"1f.0"}},
		}}},
		Affinity: []acpi.RHSA{{Base: 0xc5ffc000, Domain: 1}},
	}, d)
}

func TestIVRS(t *testing.T) {
	v, err := acpi.ParseIVRS(table("IVRS", join(
		fixed(12, 0x41, 0x30, 0x60), // EFRSup, 48 physical and 64 virtual bits, HtAtsResv
		// Type 10h: a range and one function.
		[]byte{0x10, 0xb0, 40, 0, 0x02, 0, 0x40, 0, 0, 0, 0x30, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0x6f, 0x8f, 4, 0x80},
		[]byte{3, 0x08, 0, 0}, []byte{4, 0xfe, 0xff, 0}, []byte{0x42, 0, 4, 0, 0, 0xa5, 0, 0},
		// Type 40h: all, a special device, a device with a hardware ID, padding.
		[]byte{0x40, 0, 81, 0, 0x02, 0, 0x40, 0, 0, 0, 0x30, 0xfd, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, []byte{0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 1}, make([]byte, 8),
		[]byte{1, 0, 0, 0}, []byte{0x48, 0, 0, 0xd7, 0x21, 0xa0, 0, 1}, fixed(25, []byte{0xf0, 0, 1, 0, 'A', 'M', 'D', 'I', 21: 3}...), []byte{0, 0, 0, 0},
		[]byte{0x20, 8, 32, 0}, fixed(28, []byte{14: 0x10, 21: 0x10}...),
		[]byte{0x21, 1, 32, 0, 0x00, 0x01}, fixed(26),
		[]byte{0x22, 1, 32, 0, 0x00, 0x01, 0x07, 0x01}, fixed(24),
		[]byte{0x77, 0, 4, 0}, // unknown
	)...))
	require.NoError(t, err)
	assert.Equal(t, &acpi.IVRS{
		PhysicalAddressBits: 48, VirtualAddressBits: 64, HTATSReserved: true,
		Units: []acpi.IVHD{
			{Type: 0x10, Flags: 0xb0, IOTLB: true, Device: "0000:00:00.2", Base: 0xfd300000, Ranges: []acpi.DeviceRange{{First: "00:01.0", Last: "ff:1f.6"}, {First: "04:00.0", Last: "04:00.0"}}},
			{Type: 0x40, Device: "0001:00:00.2", Segment: 1, Base: 0xfd300000, Features: 0x01000000efbeadde, All: true},
		},
		Memory: []acpi.IVMD{
			{All: true, Base: 0x100000, Size: 0x1000, Exclusion: true},
			{Devices: &acpi.DeviceRange{First: "01:00.0", Last: "01:00.0"}, Unity: true},
			{Devices: &acpi.DeviceRange{First: "01:00.0", Last: "01:00.7"}, Unity: true},
		},
	}, v)
}

func TestSRAT(t *testing.T) {
	s, err := acpi.ParseSRAT(table("SRAT", join(
		make([]byte, 12),
		fixed(16, 0, 16, 1, 0, 1),
		fixed(16, 0, 16, 1, 2, 1),
		fixed(16, 0, 16, 0, 4, 0), // disabled
		fixed(16, []byte{0, 16, 2, 6, 1, 9: 1}...),
		fixed(24, 2, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1),
		fixed(40, []byte{1, 40, 1, 12: 1, 19: 0x40, 28: 3}...),
		fixed(40, 1, 40, 1), // disabled
		fixed(32, []byte{5, 32, 0, 1, 3, 10: 0x41, 11: 0x08, 24: 1}...),
		fixed(32, []byte{6, 32, 0, 0, 3, 24: 1}...), // an ACPI device
		[]byte{3, 18}, make([]byte, 16), // of another architecture
	)...))
	require.NoError(t, err)
	assert.Equal(t, &acpi.SRAT{
		Processors: []acpi.ProcessorAffinity{{Domain: 0, Count: 1}, {Domain: 1, Count: 2}, {Domain: 0x102, Count: 1}},
		Memory:     []acpi.MemoryAffinity{{Domain: 1, Base: 0x100000000, Size: 1 << 30, Hotplug: true}},
		Devices:    []acpi.DeviceAffinity{{Domain: 3, Device: "0000:41:01.0"}},
	}, s)
}

func TestRefuses(t *testing.T) {
	damaged := table("MCFG", make([]byte, 8)...)
	damaged[40]++
	short := table("SRAT", make([]byte, 12)...)
	binary.LittleEndian.PutUint32(short[4:], 47)
	long := table("SRAT", make([]byte, 12)...)
	binary.LittleEndian.PutUint32(long[4:], 49)
	dmar := func(s ...byte) []byte { return table("DMAR", append(make([]byte, 12), s...)...) }
	ivrs := func(s ...byte) []byte { return table("IVRS", append(make([]byte, 12), s...)...) }
	for name, tc := range map[string]struct {
		b    []byte
		want string
	}{
		"no header":           {[]byte("DMAR"), "DMAR: 4 bytes are no ACPI table"},
		"signature":           {append([]byte("DMAR"), table("XXXX")...), "DMAR: header gives"},
		"checksum":            {damaged, "MCFG: wrong checksum: bytes add up to 0x01"},
		"length short":        {short, "SRAT: header gives a length of 47, want 48 to 48"},
		"length beyond":       {long, "SRAT: header gives a length of 49, want 48 to 48"},
		"MCFG rest":           {table("MCFG", make([]byte, 15)...), "7 bytes left over"},
		"MCFG buses":          {table("MCFG", fixed(24, []byte{18: 2, 19: 1}...)...), "segment 0000 has buses 02 to 01"},
		"rest":                {dmar(0, 0, 0), "DMAR: 3 bytes left over at offset 0x30"},
		"structure empty":     {dmar(0, 0, 0, 0), "DMAR: structure of type 0x0 at offset 0x30 has a length of 0, want 16 to 4"},
		"structure long":      {dmar(9, 0, 5, 0), "structure of type 0x9 at offset 0x30 has a length of 5, want 4 to 4"},
		"scope rest":          {dmar(append(fixed(16, 0, 0, 18), 1, 2)...), "offset 0x30: 2 bytes left over after its device scopes"},
		"scope empty":         {dmar(append(fixed(16, 0, 0, 22), 1, 0, 0, 0, 0, 0)...), "device scope at 0x10 in it has a length of 0, want an even number from 6 to 6"},
		"scope odd":           {dmar(append(fixed(16, 0, 0, 23), 1, 7, 0, 0, 0, 0, 0)...), "has a length of 7, want an even number"},
		"device entry":        {ivrs(append(fixed(24, 0x10, 0, 28), 0x42, 0, 0, 0)...), "device entry of type 0x42 needs 8 bytes, 4 are left"},
		"device entry named":  {ivrs(append(fixed(40, 0x40, 0, 44), 0xf0, 0, 0, 0)...), "device entry of type 0xf0 needs 22 bytes, 4 are left"},
		"range without start": {ivrs(append(fixed(24, 0x10, 0, 28), 4, 8, 0, 0)...), "end a range at 00:01.0 that did not start"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parsers[string(tc.b[:4])](tc.b)
			require.ErrorContains(t, err, tc.want)
			if name == "checksum" {
				require.ErrorIs(t, err, acpi.ErrChecksum)
			}
		})
	}
	_, err := acpi.ParseDMAR(table("MCFG", make([]byte, 12)...))
	require.ErrorContains(t, err, `DMAR: signature is "MCFG"`)
}

// Every decoder, on bytes whose length and checksum are set right so that they
// get past the header.
func FuzzTables(f *testing.F) {
	files, err := filepath.Glob("testdata/qemu-*.bin")
	require.NoError(f, err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 36 {
			return
		}
		for signature, parse := range parsers {
			fit := append([]byte(nil), b...)
			copy(fit, signature)
			binary.LittleEndian.PutUint32(fit[4:], uint32(len(fit)))
			if parsed, err := parse(sum(fit)); err == nil {
				_, err := json.Marshal(parsed)
				require.NoError(t, err)
			}
			_, _ = parse(b) // must not panic
		}
	})
}
