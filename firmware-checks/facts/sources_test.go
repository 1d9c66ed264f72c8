package facts_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/firmware-checks/acpi"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/firmware-checks/pcicfg"
)

// rich returns a machine that has something of every source: two sockets, a GPU
// of a loaded driver with errors on its link, and one that a guest is to have.
func rich() fixture.Machine {
	on := true
	gpu := fixture.GeForce(0x2684, 32*fixture.GiB, 32*fixture.GiB)
	gpu.Driver, gpu.Model, gpu.VBIOS, gpu.BootVGA = "nvidia", "NVIDIA GeForce RTX 4090", "95.02.18.80.5f", true
	gpu.Errors = fixture.Errors{
		Correctable: map[string]uint64{"BadTLP": 12, "Timeout": 3}, NonFatal: map[string]uint64{"UnsupReq": 1},
	}
	gpu.NVML = fixture.NVML{Memory: 24564 * fixture.MiB}
	passed := fixture.GeForce(0x2684, 256*fixture.MiB, 32*fixture.GiB)
	passed.Driver, passed.ResetMethods = "vfio-pci", "bus"
	nic := fixture.Function{
		Slot: "00.0", Vendor: 0x8086, Device: 0x1572, Class: 0x020000, MaxGeneration: 3, MaxWidth: 8,
		BARs: []fixture.BAR{{Index: 0, Size: 8 * fixture.MiB, Wide: true}}, VirtualFunctions: 1, MaxVirtualFunctions: 64,
	}
	vf := nic
	vf.VirtualFunctions, vf.MaxVirtualFunctions, vf.PhysicalFunction = 0, 0, "0000:80:02.0"
	nic.Slot, vf.Slot = "02.0", "02.1"
	return fixture.Machine{
		CPU:          fixture.CPU{Family: 6, Model: 143, Stepping: 8, Name: "Intel(R) Xeon(R) Gold 6430", Sockets: 2},
		SystemVendor: "Supermicro",
		Board:        fixture.Board{Vendor: "Supermicro", Name: "X13DEG-OA", Product: "SYS-421GE-TNRT", BIOSVendor: "American Megatrends International, LLC.", BIOSVersion: "2.1", BIOSDate: "12/14/2023"},
		ACPI:         []string{"DMAR"}, SecureBoot: &on, Lockdown: "none [integrity] confidentiality", IOMMU: "DMA-FQ",
		CommandLine: "BOOT_IMAGE=/vmlinuz intel_iommu=on",
		Tables: fixture.Tables{
			DMAR: &acpi.DMAR{
				HostAddressWidth: 52, InterruptRemapping: true, X2APICOptOut: true, DMAOptIn: true,
				Units: []acpi.DRHD{
					{Base: 0xd97fc000, Scopes: []acpi.Scope{{Kind: acpi.ScopeBridge, Bus: 0x80, Path: []string{"01.0", "00.0"}}}},
					{Base: 0xd0dfc000, All: true, Scopes: []acpi.Scope{{Kind: acpi.ScopeIOAPIC, Path: []string{"1e.7"}}}},
				},
				Reserved: []acpi.RMRR{{Base: 0x7a000000, Limit: 0x7a00ffff, Scopes: []acpi.Scope{{Kind: acpi.ScopeEndpoint, Path: []string{"14.0"}}}}},
				ATS:      []acpi.ATSR{{Scopes: []acpi.Scope{{Kind: acpi.ScopeBridge, Bus: 0x80, Path: []string{"01.0"}}}}},
				Affinity: []acpi.RHSA{{Base: 0xd97fc000, Domain: 1}, {Base: 0xd0dfc000}},
			},
			SRAT: &acpi.SRAT{
				Processors: []acpi.ProcessorAffinity{{Domain: 0, Count: 1}, {Domain: 1, Count: 1}},
				Memory:     []acpi.MemoryAffinity{{Base: 0, Size: 2 * fixture.GiB}, {Domain: 1, Base: 1 << 32, Size: 62 * fixture.GiB, Hotplug: true}},
				Devices:    []acpi.DeviceAffinity{{Domain: 1, Device: "0000:81:00.0"}},
			},
		},
		NVIDIA:       "EnableMSI: 1\nEnableResizableBar: 1\nRegistryDwords: \"ForceP2P=0x11\"\nExcludedGpus: \"GPU-5f1c9a30-77aa-4b5e-9d0e-2a6bdf1f3c11\"",
		Modules:      []string{"vfio_pci"},
		Libraries:    []string{"535.261.03", "570.148.08"},
		Framebuffers: []string{"EFI VGA"},
		Hosts: []fixture.Host{
			{Bus: 0x00, Node: 0, Functions: []fixture.Function{fixture.RootPort("01.1", fixture.ACS(fixture.KernelACS), gpu)}},
			{Bus: 0x80, Node: 1, Functions: []fixture.Function{fixture.RootPort("01.1", fixture.ACS(fixture.KernelACS), passed), nic, vf}},
		},
	}
}

func TestSources(t *testing.T) {
	m := rich()
	f, err := facts.Gather(tree(t, m), facts.Options{NVML: strings.NewReader(m.NVMLDocument())})
	require.NoError(t, err)
	saved(t, f)
	assert.Empty(t, f.Unknown)

	assert.Equal(t, m.Tables.DMAR, f.ACPI.DMAR)
	assert.Equal(t, m.Tables.SRAT, f.ACPI.SRAT)
	assert.Nil(t, f.ACPI.IVRS)
	assert.Equal(t, []acpi.Segment{{End: 0xff, Base: 0xe0000000}}, f.ACPI.MCFG.Segments)
	assert.Equal(t, 8, f.CPU.Stepping)
	assert.Equal(t, "Supermicro", f.Firmware.SystemVendor)
	assert.Equal(t, "y", f.Kernel.Config["CONFIG_IOMMU_DEFAULT_DMA_LAZY"])
	assert.Equal(t, "n", f.Kernel.Config["CONFIG_IOMMU_DEFAULT_PASSTHROUGH"])
	assert.NotContains(t, f.Kernel.Config, "CONFIG_64BIT")
	assert.Equal(t, []facts.Node{{ID: 0, CPUs: "0", Package: 0, Distances: []int{10, 32}}, {ID: 1, CPUs: "1", Package: 1, Distances: []int{32, 10}}}, f.Nodes)
	assert.Equal(t, []string{"EFI VGA"}, f.Framebuffers)
	assert.Equal(t, "dmar0", f.IOMMU.Details[0].Name)
	assert.Equal(t, pcicfg.Hex(0x3ef9a6f42f0dfe), f.IOMMU.Details[0].Extended)
	assert.Len(t, f.IOMMU.Details[0].Devices, len(f.Devices))

	gpu := f.Device("0000:01:00.0")
	assert.Equal(t, &facts.AERCounters{
		Correctable: facts.AERCounter{Total: 15, Kinds: map[string]uint64{"BadTLP": 12, "Timeout": 3}},
		NonFatal:    facts.AERCounter{Total: 1, Kinds: map[string]uint64{"UnsupReq": 1}},
	}, gpu.AER)
	assert.True(t, gpu.BootVGA)
	assert.True(t, *gpu.D3ColdAllowed)
	assert.Equal(t, []string{"flr", "bus"}, gpu.ResetMethods)
	assert.Empty(t, f.Device("0000:00:01.1").ResetMethods)
	assert.Equal(t, "vfio-pci", f.Device("0000:81:00.0").Driver)
	nic := f.Device("0000:80:02.0")
	assert.Equal(t, 1, nic.VirtualFunctions)
	assert.Equal(t, 64, nic.MaxVirtualFunctions)
	assert.Nil(t, nic.AER)
	assert.Equal(t, "8.0 GT/s PCIe", nic.LinkSpeed)
	assert.Equal(t, "0000:80:02.0", f.Device("0000:80:02.1").PhysicalFunction)

	n := f.NVIDIA
	assert.Equal(t, "535.261.03", n.Release)
	assert.True(t, n.Open)
	assert.Equal(t, []facts.NVIDIAGPU{{Address: "0000:01:00.0", Model: "NVIDIA GeForce RTX 4090", VBIOS: "95.02.18.80.5f", Firmware: "535.261.03"}}, n.GPUs)
	off := uint64(0)
	assert.Equal(t, []facts.NVMLGPU{{
		Address: "0000:01:00.0", Memory: 24564 * fixture.MiB, BAR1: 32 * fixture.GiB, MIG: "N/A", Virtualization: "None", Persistence: "Enabled",
		Protected: &off, LinkGeneration: 4, MaxLinkGeneration: 4, LinkWidth: 16, MaxLinkWidth: 16,
	}}, n.NVML)
	assert.Equal(t, map[string][]string{"535.261.03": {"gsp_ga10x.bin", "gsp_tu10x.bin"}}, f.Installed.Firmware)
	assert.Equal(t, facts.Library{Name: "libcuda.so", Release: "535.261.03", Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"}, f.Installed.Libraries[0])
	assert.Len(t, f.Installed.Libraries, 4)
	assert.Equal(t, []facts.Module{
		{Name: "nvidia", Version: "535.261.03"},
		{Name: "nvidia_uvm", Version: "535.261.03", Parameters: map[string]string{"uvm_disable_hmm": "N"}},
		{Name: "vfio_pci"},
	}, f.Modules)
}

// The memory map has the windows of buses and the BARs of GPUs, with who holds
// them, and what is in the way.
func TestMemoryMap(t *testing.T) {
	f := gather(t, fixture.Kind{Machine: rich()})
	var lines []string
	for _, r := range f.MemoryMap {
		lines = append(lines, strings.Repeat("  ", r.Depth)+r.Name)
	}
	assert.Equal(t, []string{
		"Reserved", "System RAM", "Reserved", "System RAM",
		"PCI Bus 0000:00", "  PCI Bus 0000:01", "    0000:01:00.0", "      nvidia",
		"PCI Bus 0000:80", "  PCI Bus 0000:81", "    0000:81:00.0", "      vfio-pci",
		"PCI ECAM 0000 [bus 00-ff]", "Reserved", "System RAM",
		"PCI Bus 0000:00", "  PCI Bus 0000:01", "    0000:01:00.0", "      nvidia", "    0000:01:00.0", "      nvidia",
		"PCI Bus 0000:80", "  PCI Bus 0000:81", "    0000:81:00.0", "      vfio-pci", "    0000:81:00.0", "      vfio-pci",
	}, lines)
	assert.Equal(t, uint64(32*fixture.GiB), f.MemoryMap[17].Size())
}

// Without root the kernel hides what it would show; the facts say so.
func TestUnprivileged(t *testing.T) {
	m := rich()
	m.Unprivileged = true
	f := gather(t, fixture.Kind{Machine: m})
	saved(t, f)
	assert.Empty(t, f.MemoryMap)
	assert.Equal(t, &facts.ACPI{}, f.ACPI)
	assert.Contains(t, f.Firmware.ACPITables, "DMAR", "the names are there for all")
	assert.Contains(t, f.Unknown, facts.Unknown{What: "memory map", Where: "/proc/iomem", Why: "the kernel shows addresses to root only"})
	var where []string
	for _, u := range f.Unknown {
		where = append(where, u.Where)
	}
	assert.Subset(t, where, []string{"/sys/firmware/acpi/tables/DMAR", "/sys/firmware/acpi/tables/MCFG", "/sys/firmware/acpi/tables/SRAT"})
}

func TestPrivate(t *testing.T) {
	m := rich()
	root := tree(t, m)
	f, err := facts.Gather(root, facts.Options{Private: true, NVML: strings.NewReader(m.NVMLDocument())})
	require.NoError(t, err)
	saved(t, f)
	assert.Equal(t, "SN-MUST-NOT-LEAK", f.Firmware.BoardSerial)
	assert.Equal(t, "4c4c4544-0042-3510-8054-b4c04f4a4d32", f.Firmware.ProductUUID)
	assert.Equal(t, "GPU-5f1c9a30-77aa-4b5e-9d0e-2a6bdf1f3c00", f.NVIDIA.GPUs[0].UUID)
	assert.Contains(t, f.NVIDIA.Params, "5f1c9a30-77aa")
	assert.Contains(t, string(f.GPUs()[0].RawConfig), "\x2d\x4b\x04\x00", "part of the serial number")

	f, err = facts.Gather(root, facts.Options{NVML: strings.NewReader(m.NVMLDocument())})
	require.NoError(t, err)
	doc := string(saved(t, f))
	for _, secret := range []string{"MUST-NOT-LEAK", "4c4c4544", "5f1c9a30"} {
		assert.NotContains(t, doc, secret)
	}
}

func TestHypervisor(t *testing.T) {
	for name, tc := range map[string]struct {
		vendor, product string
		virtual         bool
		want            string
	}{
		"qemu":       {"QEMU", "Standard PC (Q35 + ICH9, 2009)", true, "qemu"},
		"kvm":        {"Red Hat", "KVM", true, "kvm"},
		"vmware":     {"VMware, Inc.", "VMware7,1", true, "vmware"},
		"hyper-v":    {"Microsoft Corporation", "Virtual Machine", true, "hyper-v"},
		"google":     {"Google", "Google Compute Engine", true, "google"},
		"amazon":     {"Amazon EC2", "p5.48xlarge", true, "amazon"},
		"bare metal": {"Amazon EC2", "c5.metal", false, ""},
		"unnamed":    {"", "", true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := gather(t, fixture.Kind{Machine: fixture.Machine{
				CPU: fixture.CPU{Hypervisor: tc.virtual}, SystemVendor: tc.vendor, Board: fixture.Board{Product: tc.product},
			}})
			assert.Equal(t, tc.want, f.CPU.HypervisorKind)
		})
	}
}

func TestKernelConfigPlaces(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte("CONFIG_INTEL_IOMMU=y\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	for name, tc := range map[string]struct {
		file, content string
		want          map[string]string
		why           string
	}{
		"kernel":        {"proc/config.gz", zipped.String(), map[string]string{"CONFIG_INTEL_IOMMU": "y"}, ""},
		"damaged":       {"proc/config.gz", "CONFIG", nil, "unexpected EOF"},
		"modules":       {"lib/modules/6.12.117+deb12-amd64/config", "# CONFIG_NUMA is not set\n", map[string]string{"CONFIG_NUMA": "n"}, ""},
		"none anywhere": {"boot/README", "", nil, "not found, nor /proc/config.gz"},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, fixture.Machine{})
			require.NoError(t, os.RemoveAll(filepath.Join(root, "boot")))
			file := filepath.Join(root, tc.file)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(tc.content), 0o644))
			f, err := facts.Gather(root, facts.Options{})
			require.NoError(t, err)
			assert.Equal(t, tc.want, f.Kernel.Config)
			if tc.why == "" {
				assert.Empty(t, f.Unknown)
				return
			}
			require.Len(t, f.Unknown, 1)
			assert.Equal(t, "kernel configuration", f.Unknown[0].What)
			assert.Equal(t, tc.why, f.Unknown[0].Why)
		})
	}
}

// Files that hold something else than they should are listed, each with its
// reason.
func TestDamagedSources(t *testing.T) {
	m := rich()
	root := tree(t, m)
	device := "/sys/bus/pci/devices/0000:01:00.0/"
	why := map[string]struct{ content, why string }{
		"/proc/iomem":                                                     {"00000000-00000fff Reserved\n", `line "00000000-00000fff Reserved": want a range`},
		"/sys/firmware/acpi/tables/DMAR":                                  {"DMAR", "DMAR: 4 bytes are no ACPI table"},
		"/sys/class/iommu/dmar0/intel-iommu/cap":                          {"many\n", "invalid syntax"},
		"/sys/devices/system/node/node0/distance":                         {"10 far\n", "invalid syntax"},
		device + "aer_dev_correctable":                                    {"RxErr many\n", `line "RxErr many": want a kind of error and a count`},
		device + "sriov_totalvfs":                                         {"many\n", "invalid syntax"},
		"/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/aer_dev_fatal": {"DLP 0\n", "no line with the total"},
	}
	for name, tc := range why {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(tc.content), 0o644))
	}
	f, err := facts.Gather(root, facts.Options{NVML: strings.NewReader("<html>")})
	require.NoError(t, err)
	saved(t, f)
	got := map[string]string{}
	for _, u := range f.Unknown {
		got[u.Where] = u.Why
	}
	why["/sys/bus/pci/devices/0000:81:00.0/aer_dev_fatal"] = why["/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/aer_dev_fatal"]
	delete(why, "/sys/devices/pci0000:80/0000:80:01.1/0000:81:00.0/aer_dev_fatal")
	for name, tc := range why {
		assert.Contains(t, got[name], tc.why, name)
	}
	assert.Contains(t, got["nvidia-smi"], "nvidia_smi_log")
	assert.Len(t, got, len(why)+1)
	assert.Nil(t, f.Device("0000:01:00.0").AER)
}

// A fixture has no devices of the driver to ask.
func TestAsk(t *testing.T) {
	root := tree(t, rich())
	f, err := facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	f.Ask(t.Context(), root)
	saved(t, f)
	assert.Nil(t, f.NVIDIA.Survey)
	assert.Nil(t, f.NVIDIA.NVML)
	assert.Equal(t, []facts.Unknown{
		{What: "NVML", Where: "nvidia-smi", Why: "runs on the machine itself only"},
		{What: "what the driver grants to pairs of GPUs", Where: "/dev/nvidiactl", Why: "no such file or directory"},
	}, f.Unknown)

	root = tree(t, fixture.Machine{})
	f, err = facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	f.Ask(t.Context(), root)
	assert.Empty(t, f.Unknown, "there is no driver to ask")
}

func TestInstalledPlaces(t *testing.T) {
	m := fixture.Machine{Firmware: []string{"580.142"}, Libraries: []string{"580.142"}}
	root := tree(t, m)
	link := func(name, target string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.Symlink(target, filepath.Join(root, name)))
	}
	write := func(name, content string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o644))
	}
	link("usr/lib64", "lib/x86_64-linux-gnu") // leads to the same files
	link("usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.580.142")
	link("usr/lib/libcuda.so.550.54", "nowhere")
	write("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.261.03", "")
	write("lib/firmware/nvidia/ga102/gr.bin", "") // nouveau's
	write("opt/firmware/nvidia/580.142/bindata_image.bin", "")
	write("sys/module/firmware_class/parameters/path", "/opt/firmware\n")
	f, err := facts.Gather(root, facts.Options{})
	require.NoError(t, err)
	assert.Empty(t, f.Unknown)
	assert.Equal(t, map[string][]string{"580.142": {"bindata_image.bin", "gsp_ga10x.bin", "gsp_tu10x.bin"}}, f.Installed.Firmware)
	assert.Equal(t, []facts.Library{
		{Name: "libcuda.so", Release: "580.142", Path: "/usr/lib/x86_64-linux-gnu/libcuda.so.580.142"},
		{Name: "libnvidia-ml.so", Release: "580.142", Path: "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.142"},
		{Name: "libcuda.so", Release: "535.261.03", Path: "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.261.03"},
	}, f.Installed.Libraries)
}

func TestParseNVML(t *testing.T) {
	const head = `<?xml version="1.0" ?><!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd"><nvidia_smi_log>`
	gpus, err := facts.ParseNVML([]byte(head + `
<gpu id="00000000:4F:00.0"><persistence_mode>Disabled</persistence_mode><mig_mode><current_mig>Enabled</current_mig></mig_mode>
<fb_memory_usage><total>Insufficient Permissions</total></fb_memory_usage><pci><pci_gpu_link_info><link_widths><current_link_width>N/A</current_link_width></link_widths></pci_gpu_link_info></pci></gpu>
<gpu id="00010000:01:00.0"><cc_protected_memory_usage><total>131072 MiB</total></cc_protected_memory_usage></gpu>
<gpu id="00000000:0A:00.0"><cc_protected_memory_usage><total>N/A</total></cc_protected_memory_usage></gpu></nvidia_smi_log>`))
	require.NoError(t, err)
	protected := uint64(128 << 30)
	assert.Equal(t, []facts.NVMLGPU{
		{Address: "0000:0a:00.0"},
		{Address: "0000:4f:00.0", MIG: "Enabled", Persistence: "Disabled"},
		{Address: "00010000:01:00.0", Protected: &protected},
	}, gpus)

	_, err = facts.ParseNVML([]byte("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."))
	require.ErrorContains(t, err, "reading the document of nvidia-smi")
}

func FuzzParseNVML(f *testing.F) {
	f.Add([]byte(rich().NVMLDocument()))
	f.Fuzz(func(t *testing.T, b []byte) {
		gpus, err := facts.ParseNVML(b)
		if err == nil {
			require.NotNil(t, gpus)
		}
	})
}
