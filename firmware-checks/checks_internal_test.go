package checks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// two returns a machine with two GPUs in groups of these types; "-" is no
// group.
func two(cmdline string, types ...string) *facts.Facts {
	f := &facts.Facts{Kernel: facts.Kernel{CommandLine: cmdline}}
	f.IOMMU.Known = true
	for i, typ := range types {
		id := string(rune('0' + i))
		d := facts.Device{Address: "0000:0" + id + ":00.0", Vendor: 0x10de, Class: 0x030000, GPU: true}
		if typ != "-" {
			d.IOMMUGroup = id
			f.IOMMU.Units = []string{"dmar0"}
			f.IOMMU.Groups = append(f.IOMMU.Groups, facts.IOMMUGroup{ID: id, Type: typ, Devices: []string{d.Address}})
		}
		f.Devices = append(f.Devices, d)
	}
	return f
}

func TestIOMMUSwitch(t *testing.T) {
	// QEMU's default CPU calls itself AuthenticAMD, whatever its IOMMU is.
	for unit, want := range map[string]string{"dmar0": "intel_iommu=off", "ivhd0": "amd_iommu=off"} {
		f := &facts.Facts{CPU: facts.CPU{Vendor: "AuthenticAMD"}, IOMMU: facts.IOMMU{Units: []string{unit}}}
		got, _ := iommuSwitch(f)
		assert.Equal(t, want, got, unit)
	}
}

func TestIOMMU(t *testing.T) {
	type outcome struct {
		status  Status
		devices int
	}
	for name, tc := range map[string]struct {
		facts *facts.Facts
		want  []outcome
		fix   string
	}{
		"off":                {two("", "-", "-"), []outcome{{Pass, 2}}, ""},
		"identity":           {two("", "identity", "identity"), []outcome{{Pass, 2}}, ""},
		"translating":        {two("", "DMA", "DMA-FQ"), []outcome{{Fail, 2}}, "Boot with iommu=pt, or"},
		"mixed":              {two("", "identity", "DMA"), []outcome{{Fail, 1}, {Pass, 1}}, ""},
		"one without group":  {two("", "-", "identity"), []outcome{{Pass, 2}}, ""},
		"kernel before 5.11": {two("", "", ""), []outcome{{Unknown, 2}}, "5.11"},
		"blocked":            {two("", "blocked", "identity"), []outcome{{Unknown, 1}, {Pass, 1}}, ""},
		"pt without effect":  {two("iommu=pt", "DMA", "DMA"), []outcome{{Fail, 2}}, "without effect"},
		"pt undone":          {two("iommu=pt iommu.passthrough=0", "DMA", "DMA"), []outcome{{Fail, 2}}, "Remove iommu.passthrough=0"},
		"nopt":               {two("iommu=nopt", "DMA", "DMA"), []outcome{{Fail, 2}}, "Remove iommu=nopt"},
		"forced isolation":   {two("amd_iommu=force_isolation iommu=pt", "DMA", "DMA"), []outcome{{Fail, 2}}, "Remove amd_iommu=force_isolation"},
	} {
		t.Run(name, func(t *testing.T) {
			found := iommu(tc.facts)
			var got []outcome
			for _, f := range found {
				got = append(got, outcome{f.Status, len(f.Devices)})
			}
			assert.Equal(t, tc.want, got)
			assert.Contains(t, found[0].Fix, tc.fix)
		})
	}
	f := two("", "-", "-")
	f.IOMMU.Known = false
	assert.Equal(t, Unknown, iommu(f)[0].Status)
}

func TestPlacebos(t *testing.T) {
	for name, tc := range map[string]struct {
		cmdline, kernel string
		want            []string
	}{
		"none":                  {"quiet iommu=pt", "6.12.1", nil},
		"noacs":                 {"pci=realloc,noacs", "6.12.1", []string{"pci=noacs"}},
		"after the dashes":      {"quiet -- pci=noacs", "6.12.1", nil},
		"quoted":                {`"pci=noacs"`, "6.12.1", []string{"pci=noacs"}},
		"intel on":              {"intel_iommu=on", "6.12.1", []string{"intel_iommu=on"}},
		"intel on, later pt":    {"intel_iommu=on,sm_on iommu=pt", "6.12.1", nil},
		"intel on, passthrough": {"intel_iommu=on iommu.passthrough=1", "6.12.1", nil},
		"intel pt":              {"intel_iommu=pt", "6.12.1", []string{"intel_iommu=pt"}},
		"intel off":             {"intel_iommu=off", "6.12.1", nil},
		"amd off":               {"amd_iommu=off", "6.12.1", nil},
		"amd pt":                {"amd_iommu=pt", "6.12.1", []string{"amd_iommu=pt"}},
		"semicolons":            {"pci=disable_acs_redir=0000:00:00.0;01:00.0", "6.12.23", nil},
		"comma":                 {"pci=disable_acs_redir=01:00.0,02:00.0", "6.1.1", []string{"pci=…,02:00.0"}},
		"twice":                 {"pci=disable_acs_redir=01:00.0 pci=disable_acs_redir=00:00.0", "6.1.1", []string{"2 times pci=disable_acs_redir"}},
		"nobody there":          {"pci=disable_acs_redir=01:00.0;77:00.0", "6.1.1", []string{"pci=disable_acs_redir=…0000:77:00.0"}},
		"by IDs and by path":    {"pci=disable_acs_redir=pci:8086:1234;01:00.0/02.0", "6.1.1", nil},
		"misread":               {"pci=disable_acs_redir=01:00.0", "6.11.4", []string{"pci=disable_acs_redir"}},
		"iommu on":              {"iommu=on", "6.12.1", []string{"iommu=on"}},
		"option of no module":   {"NVreg_EnableResizableBar=1", "6.12.1", []string{"NVreg_EnableResizableBar=1"}},
		"parameter as a key":    {"nvidia.NVreg_RegistryDwords=EnableResizableBar=1;ForceP2P=0x11", "6.12.1", []string{"nvidia.NVreg_RegistryDwords=EnableResizableBar=1;ForceP2P=0x11"}},
		"parameter as it is":    {"nvidia.NVreg_EnableResizableBar=1", "6.12.1", nil},
		"config_acs too early":  {"pci=config_acs=0x00xx@01:00.0", "6.10.9", []string{"pci=config_acs"}},
		"config_acs":            {"pci=config_acs=0x00xx@01:00.0", "6.15.0", nil},
		"redir too early":       {"pci=disable_acs_redir=01:00.0", "4.18.0", []string{"pci=disable_acs_redir"}},
		"kernel unreadable":     {"pci=config_acs=0x00xx@01:00.0", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := two(tc.cmdline, "-", "-")
			f.Kernel.Release = tc.kernel
			var got []string
			for _, p := range placebosOf(f) {
				got = append(got, p.param)
				assert.NotEmpty(t, p.why)
				assert.NotEmpty(t, p.fix)
			}
			assert.Equal(t, tc.want, got)
		})
	}
}

// A port named in a path that is no longer on the bus is unknown, not clean.
func TestACSOfVanishedPort(t *testing.T) {
	f := two("", "-", "-")
	for i := range f.Devices {
		f.Devices[i].Root, f.Devices[i].Path = "pci0000:00", []string{"0000:00:01.0"}
	}
	f.Devices[1].Path = []string{"0000:00:02.0"}
	found := acsRedirect(f)
	require.Len(t, found, 1)
	assert.Equal(t, Unknown, found[0].Status)
	assert.Equal(t, []string{"0000:00:01.0", "0000:00:02.0"}, found[0].Devices)
}

func TestACSWithoutPorts(t *testing.T) {
	found := acsRedirect(two("", "-", "-"))
	require.Len(t, found, 1)
	assert.Equal(t, Pass, found[0].Status)
}

// The framebuffer is the largest 64-bit prefetchable BAR, wherever it is, and
// known even when the kernel dropped its resource.
func TestFramebuffer(t *testing.T) {
	const wide = 0x14220c
	server := &facts.Device{Resources: []facts.Resource{
		{Index: 0, Start: 0x1000000000, End: 0x1003ffffff, Flags: wide},
		{Index: 2, Start: 0x2000000000, End: 0x3fffffffff, Flags: wide},
	}}
	fb, ok := server.Framebuffer()
	require.True(t, ok)
	assert.Equal(t, 2, fb.Index)
	assert.Equal(t, uint64(128<<30), fb.Size)

	dropped := &facts.Device{Config: &pcicfg.Config{
		BARs:          []pcicfg.BAR{{Index: 1, Is64: true, Prefetchable: true}, {Index: 3, Is64: true, Prefetchable: true}},
		ResizableBARs: []pcicfg.ResizableBAR{{BAR: 1, Sizes: 0xffc0, Size: 32 << 30}},
	}}
	fb, ok = dropped.Framebuffer()
	require.True(t, ok)
	assert.Equal(t, 1, fb.Index)
	assert.Equal(t, uint64(32<<30), fb.Size)
	assert.False(t, fb.Assigned)

	_, ok = (&facts.Device{Resources: []facts.Resource{{Index: 0, Start: 1, End: 2, Flags: 0x40200}}}).Framebuffer()
	assert.False(t, ok)
}

func TestBytes(t *testing.T) {
	for want, n := range map[string]uint64{
		"0 bytes": 0, "1 KiB": 1 << 10, "288 MiB": 288 << 20, "32 GiB": 32 << 30, "32.03 GiB": 32<<30 + 32<<20, "8 EiB": 1 << 63,
	} {
		assert.Equal(t, want, bytes(n))
	}
}

func TestSince(t *testing.T) {
	assert.True(t, since("6.11.0", 6, 11))
	assert.True(t, since("7.0-rc1", 6, 11))
	assert.False(t, since("6.1.0-31-amd64", 6, 11))
	assert.False(t, since("5.19", 6, 11))
	assert.True(t, since("", 6, 11))
	assert.True(t, sincePatch("6.12.23+deb13-amd64", 6, 12, 23))
	assert.False(t, sincePatch("6.12-rc1", 6, 12, 23))
}

func TestMisreadsACS(t *testing.T) {
	for release, want := range map[string]bool{
		"6.1.0-31-amd64": false, "6.10.9": false, "6.11.0-26-generic": true, "6.11.11": true, "6.12.22": true, "6.12.23": false,
		"6.12.57+deb13-amd64": false, "6.13.10": true, "6.13.11": false, "6.14.1": true, "6.14.2": false, "6.15.0": false, "7.0": false, "": false,
	} {
		assert.Equal(t, want, misreadsACS(release), release)
	}
}

func TestAdd(t *testing.T) {
	found := []Finding{{ID: ReBAR, Title: "two are small"}, {ID: Above4G}, {ID: ReBAR, Title: "one is large"}}
	found = Add(found, Finding{ID: DriverLoad}, Finding{ID: ReBAR, Title: "one is small", Again: true}, Finding{ID: ReBAR, Title: "two are large", Again: true})
	assert.Equal(t, []Finding{
		{ID: Above4G}, {ID: DriverLoad},
		{ID: ReBAR, Title: "one is small", Again: true}, {ID: ReBAR, Title: "two are large", Again: true},
	}, found)
}
