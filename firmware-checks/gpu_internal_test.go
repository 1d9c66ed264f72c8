package checks

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

// logged returns a machine with two GPUs and these lines in its log.
func logged(lines ...string) *facts.Facts {
	f := two("", "-", "-")
	f.KernelLog = lines
	return f
}

func TestXid(t *testing.T) {
	for line, want := range map[string]struct {
		status  Status
		devices []string
	}{
		"NVRM: Xid (PCI:0000:01:00): 79, pid=0, GPU has fallen off the bus.":                         {Fail, []string{"0000:01:00.0"}},
		"NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9).":       {Warn, []string{"0000:01:00.0"}},
		"NVRM: Xid (PCI:0000:00:00): 119, pid=1, Timeout after 6s of waiting for RPC response":       {Fail, []string{"0000:00:00.0"}},
		"NVRM: Xid (PCI:0000:07:00): 13, pid=1, Graphics Exception":                                  {Warn, nil},
		"NVRM: Xid (PCI:0000:01:00): 999999999999999999999, what no release says":                    {Warn, []string{"0000:01:00.0"}},
		"NVRM: GPU at PCI:0000:01:00: GPU-00000000-0000-0000-0000-000000000000: no Xid in this line": {Pass, nil},
	} {
		found := xid(logged(line))
		require.Len(t, found, 1, line)
		assert.Equal(t, want.status, found[0].Status, line)
		assert.Equal(t, want.devices, found[0].Devices, line)
	}
	found := xid(logged("NVRM: Xid (PCI:0000:01:00): 31, a", "NVRM: Xid (PCI:0000:01:00): 31, b", "NVRM: Xid (PCI:0000:00:00): 95, c"))
	require.Len(t, found, 2)
	assert.Len(t, found[0].Evidence, 2)
}

// Every message is recognised, and by its own entry.
func TestDriverLines(t *testing.T) {
	messages := []string{
		"NVRM: fallen off the bus and is not responding to commands.",
		"NVRM: GPU0 kgspBootstrap_TU102: unexpected WPR2 already up, cannot proceed with booting GSP",
		"NVRM: RmFetchGspRmImages: No firmware image found",
		"NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2142)",
		"NVRM: GPU0 kbusIsStaticBar1Supported_TU102: BAR1 size 268435456 is not large enough to map FB size11811160064 to force static BAR1",
		"NVRM: GPU0 kbusEnableStaticBar1Mapping_TU102: Failed to create the static bar1 mapping offset0x0 size 0x600000000",
		"NVRM: GPU0 kbusGetBar1P2PDmaInfo_GH100: The peer DMA address 0x1800400000 is not aligned at 0x20000000",
		"NVRM: nvGpuOpsBuildExternalAllocPtes: DMA base address is not set for BAR1P2P mapping",
		"NVRM: GPU0 kbusCreateP2PMappingForBar1P2P_GH100: IOMMU mapping failed from GPU0 to GPU1",
		"NVRM: GPU0 kbusCreateP2PMapping_GP100: P2P type 2 is not supported",
		"NVRM: FATAL: Failed to re-allocate BAR1.",
		"NVRM: No address space to allocate resized BAR1.",
		"NVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)",
		"NVRM: The NVIDIA probe routine was not called for 2 device(s).",
		"NVRM: API mismatch: the client 'nvidia-smi' (pid 2211)",
		"NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
		"NVRM: installed in this system is not supported by open",
	}
	require.Len(t, messages, len(driverLines))
	for i, line := range messages {
		k := slices.IndexFunc(driverLines, func(l driverLine) bool { return l.text.MatchString(line) })
		assert.Equal(t, i, k, line)
		found := driverLog(logged(line))
		require.Len(t, found, 1)
		assert.Equal(t, driverLines[i].status, found[0].Status)
		assert.NotEmpty(t, found[0].Fix)
	}
	for _, line := range []string{
		"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.142",
		"amdgpu 0000:03:00.0: fallen off the bus",
		"NVRM: Xid (PCI:0000:01:00): 79, pid=0, GPU has fallen off the bus.",
	} {
		assert.Equal(t, Pass, driverLog(logged(line))[0].Status, line)
	}
}

// A message about a GPU in the line before or after names it; another GPU's line
// does not.
func TestDriverLineDevices(t *testing.T) {
	found := driverLog(logged(
		"NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)",
		"NVRM: installed in this system requires use of the NVIDIA open kernel modules.",
		"pci 0000:00:00.0: enabling device"))
	require.Len(t, found, 1)
	assert.Equal(t, []string{"0000:01:00.0"}, found[0].Devices)
}

func TestNoRoom(t *testing.T) {
	for line, want := range map[string]bool{
		"pci 0000:01:00.0: BAR 1 [mem size 0x800000000 64bit pref]: can't assign; no space":       true,
		"pci 0000:01:00.0: BAR 1: no space for [mem size 0x800000000 64bit pref]":                 true,
		"pci 0000:00:01.1: bridge window [mem size 0x1000000000 64bit pref]: failed to assign":    true,
		"pcieport 0000:00:01.1: BAR 15: no space for [mem size 0x600000000 64bit pref]":           true,
		"pci 0000:01:00.0: BAR 1: can't claim [mem 0xc0000000-0xcfffffff pref]: no compatible br": true,
		"pci 0000:00:01.1: bridge window [io  size 0x1000]: can't assign; no space":               false,
		"pci 0000:00:01.1: BAR 13: no space for [io  size 0x1000]":                                false,
		"pci 0000:01:00.0: BAR 1 [mem 0x38000000000-0x387ffffffff 64bit pref]: assigned":          false,
	} {
		assert.Equal(t, want, noRoom.MatchString(line), line)
	}
}

// What the kernel says about a device that is no GPU, and no bridge above one,
// does not matter.
func TestNoRoomElsewhere(t *testing.T) {
	found := barLog(logged("pci 0000:07:00.0: BAR 7 [mem size 0x100000 64bit pref]: can't assign; no space"))
	require.Len(t, found, 1)
	assert.Equal(t, Pass, found[0].Status)
}

// Without the kernel's log nothing is said to be well.
func TestLogUnread(t *testing.T) {
	f := logged()
	f.Unknown = []facts.Unknown{{What: "kernel log", Where: "/dev/kmsg", Why: "operation not permitted"}}
	for _, family := range []func(*facts.Facts) []Finding{xid, driverLog, barLog} {
		found := family(f)
		require.Len(t, found, 1)
		assert.Equal(t, Unknown, found[0].Status)
	}
}

func TestModuleTrust(t *testing.T) {
	on, off := true, false
	for name, tc := range map[string]struct {
		secureBoot        *bool
		uefi              bool
		lockdown, cmdline string
		log               string
		driver            bool
		want              Status
	}{
		"legacy boot":                  {nil, false, "", "", "", false, Pass},
		"off":                          {&off, true, "none", "", "", false, Pass},
		"on, lockdown":                 {&on, true, "integrity", "", "", false, Fail},
		"on, no lockdown":              {&on, true, "none", "", "", false, Pass},
		"on, lockdown not known":       {&on, true, "", "", "", false, Warn},
		"unreadable":                   {nil, true, "", "", "", false, Unknown},
		"unreadable, no lockdown":      {nil, true, "none", "", "", false, Pass},
		"enforced":                     {&off, true, "none", "module.sig_enforce=1", "", false, Fail},
		"not enforced":                 {&off, true, "none", "module.sig_enforce=0", "", false, Pass},
		"refused":                      {&off, true, "none", "", "Loading of unsigned module is rejected", false, Fail},
		"tainted, not refused":         {&off, true, "none", "", "nvidia: module verification failed: signature and/or required key missing - tainting kernel", false, Pass},
		"on, lockdown, driver is here": {&on, true, "integrity", "", "", true, Pass},
	} {
		f := two(tc.cmdline, "-", "-")
		f.Firmware.SecureBoot, f.Firmware.UEFI, f.Kernel.Lockdown = tc.secureBoot, tc.uefi, tc.lockdown
		if tc.log != "" {
			f.KernelLog = []string{tc.log}
		}
		if tc.driver {
			f.NVIDIA = &facts.NVIDIA{}
		}
		found := moduleTrust(f)
		require.Len(t, found, 1)
		assert.Equal(t, tc.want, found[0].Status, name)
	}
}

// Documents of version 1 have only the line that names the driver.
func TestLoadedOfVersion1(t *testing.T) {
	f := &facts.Facts{NVIDIA: &facts.NVIDIA{Version: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.211.01  Release Build"}}
	release, open := loaded(f)
	assert.Equal(t, "570.211.01", release)
	assert.True(t, open)
	assert.Equal(t, Unknown, driverMatch(f)[0].Status)
	assert.Equal(t, Unknown, console(two("", "-", "-"))[0].Status)
}

// An image may have firmware for some GPUs only.
func TestGSPFirmwareOfOtherGPUs(t *testing.T) {
	const release = "580.142"
	f := &facts.Facts{NVIDIA: &facts.NVIDIA{}, Installed: &facts.Installed{Firmware: map[string][]string{release: {"gsp_ga10x.bin"}}}}
	ada := &facts.Device{Address: "0000:01:00.0", Vendor: vendorNVIDIA, Device: 0x2684}
	assert.Equal(t, Pass, gspFirmwareOf(f, ada, release).Status)

	turing := &facts.Device{Address: "0000:02:00.0", Vendor: vendorNVIDIA, Device: 0x1e07}
	found := gspFirmwareOf(f, turing, release)
	assert.Equal(t, Fail, found.Status)
	assert.Equal(t, "/lib/firmware/nvidia/580.142/gsp_tu10x.bin is missing", found.Title)
	assert.Contains(t, found.Meaning, "for GPUs of other chips")
	assert.Contains(t, found.Fix, "mkp2pimg build --gpu all")

	f.Installed.Firmware = nil
	found = gspFirmwareOf(f, turing, release)
	assert.Equal(t, Fail, found.Status)
	assert.NotContains(t, found.Fix, "--gpu")
}

func TestGSPFile(t *testing.T) {
	for id, want := range map[pcicfg.Hex]string{0x1e07: "gsp_tu10x.bin", 0x20b5: "gsp_tu10x.bin", 0x2684: "gsp_ga10x.bin", 0x2b85: "gsp_ga10x.bin", 0xffff: ""} {
		assert.Equal(t, want, gspFile(&facts.Device{Vendor: vendorNVIDIA, Device: id}), id.String())
	}
}
