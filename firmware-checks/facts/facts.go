// Package facts gathers what a machine says about itself that bears on PCIe
// peer-to-peer traffic between GPUs, as plain data that can be saved, sent and
// judged elsewhere.
//
// [Gather] reads below a root path, so that a fixture or another host's copy of
// /sys and /proc works as well as the running system. It never gives up over
// one source: what could not be read is listed in [Facts.Unknown] with the
// reason, and the rest stands.
//
// Serial numbers, UUIDs and MAC addresses are left out unless
// [Options.Private] asks for them: of DMI only the fields that name a model are
// read, the Device Serial Number capability is blanked in raw configuration
// space, and the kernel's command line and log lines are redacted.
package facts

import (
	"mkp2pimg/firmware-checks/acpi"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/internal/rm"
)

// Version is the version of the facts document this package writes. What came
// with version 2 says so; [Load] leaves it empty in a document of version 1.
const Version = 2

// Facts is everything known about one machine. Slices are sorted by address,
// number or name, so that equal machines give equal documents.
type Facts struct {
	Version int `json:"version"`

	Kernel   Kernel   `json:"kernel"`
	Firmware Firmware `json:"firmware"`
	CPU      CPU      `json:"cpu"`
	IOMMU    IOMMU    `json:"iommu"`
	// ACPI are the tables that describe IOMMUs, PCI segments and NUMA nodes.
	// Nil before version 2.
	ACPI *ACPI `json:"acpi,omitempty"`
	// Nodes are the NUMA nodes that have processors or memory, since version 2.
	Nodes []Node `json:"nodes,omitempty"`
	// MemoryMap are the physical address ranges of /proc/iomem that bear on
	// where BARs can go, since version 2. Empty when they could not be read:
	// the kernel shows addresses to root only.
	MemoryMap []Range `json:"memory_map,omitempty"`
	// Framebuffers are the consoles of /proc/fb by driver ("EFI VGA",
	// "simpledrmdrmfb"), since version 2.
	Framebuffers []string `json:"framebuffers,omitempty"`
	// Devices are all PCI functions.
	Devices []Device `json:"devices"`
	// NVIDIA is the loaded NVIDIA driver, nil when none is loaded.
	NVIDIA *NVIDIA `json:"nvidia,omitempty"`
	// Installed is what of NVIDIA's driver lies in the file system, loaded or
	// not. Nil before version 2.
	Installed *Installed `json:"installed,omitempty"`
	// Modules are the loaded kernel modules that drive GPUs, since version 2.
	Modules []Module `json:"modules,omitempty"`
	// KernelLog are the lines of the kernel's log that bear on the subject,
	// without their timestamps, oldest first.
	KernelLog []string `json:"kernel_log,omitempty"`
	// Unknown lists the sources that could not be read.
	Unknown []Unknown `json:"unknown,omitempty"`
}

// Unknown is a source that could not be read.
type Unknown struct {
	What  string `json:"what"`  // what it would have told: "secure boot state"
	Where string `json:"where"` // its path on the machine
	Why   string `json:"why"`   // the error, or why it has no answer
}

// Kernel is the running kernel.
type Kernel struct {
	Release     string `json:"release"`            // uname -r
	CommandLine string `json:"command_line"`       // /proc/cmdline
	Lockdown    string `json:"lockdown,omitempty"` // none, integrity or confidentiality; empty without the LSM
	// Config are the options of the kernel's configuration that bear on the
	// subject, by name with the prefix CONFIG_: y, m, n or a number. Nil when no
	// configuration could be read, and before version 2.
	Config map[string]string `json:"config,omitempty"`
}

// Firmware is what the platform firmware says about itself.
type Firmware struct {
	BoardVendor string `json:"board_vendor,omitempty"`
	BoardName   string `json:"board_name,omitempty"`
	// SystemVendor is the maker of the whole machine, since version 2.
	SystemVendor string `json:"system_vendor,omitempty"`
	Product      string `json:"product,omitempty"`
	BIOSVendor   string `json:"bios_vendor,omitempty"`
	BIOSVersion  string `json:"bios_version,omitempty"`
	BIOSDate     string `json:"bios_date,omitempty"`
	UEFI         bool   `json:"uefi"`
	// SecureBoot is nil when the machine has no such variable or it could not
	// be read.
	SecureBoot *bool `json:"secure_boot,omitempty"`
	// ACPITables are the signatures of the ACPI tables present, for example
	// DMAR (Intel IOMMU), IVRS (AMD IOMMU), MCFG.
	ACPITables []string `json:"acpi_tables,omitempty"`

	// What identifies the machine, only with [Options.Private].
	BoardSerial   string `json:"board_serial,omitempty"`
	ProductSerial string `json:"product_serial,omitempty"`
	ProductUUID   string `json:"product_uuid,omitempty"`
}

// ACPI is what the ACPI tables say that bear on the subject. A table is nil when
// the machine has none; when it is there and could not be read or decoded,
// [Facts.Unknown] has the reason and [Firmware.ACPITables] its name.
type ACPI struct {
	DMAR *acpi.DMAR `json:"dmar,omitempty"` // Intel IOMMU
	IVRS *acpi.IVRS `json:"ivrs,omitempty"` // AMD IOMMU
	MCFG *acpi.MCFG `json:"mcfg,omitempty"` // configuration space of PCI segments
	SRAT *acpi.SRAT `json:"srat,omitempty"` // NUMA nodes of processors, memory and devices
}

// Node is a NUMA node.
type Node struct {
	ID int `json:"id"`
	// CPUs is the list of its processors as the kernel words it: "0-15,32-47",
	// empty for a node of memory only.
	CPUs string `json:"cpus,omitempty"`
	// Package is the physical package (socket) of its first processor, -1 when
	// not known.
	Package int `json:"package"`
	// Distances are to the nodes of the machine, in their order; 10 is local
	// (ACPI, "System Locality Information Table").
	Distances []int `json:"distances,omitempty"`
}

// Range is a range of physical addresses as /proc/iomem names it: "PCI Bus
// 0000:00", "Reserved", "System RAM", or the address of a GPU for its BAR.
type Range struct {
	Start pcicfg.Hex `json:"start"`
	End   pcicfg.Hex `json:"end"` // last byte
	Name  string     `json:"name"`
	// Depth is how many ranges of the file hold this one.
	Depth int `json:"depth,omitempty"`
}

// Size returns the size of r in bytes.
func (r Range) Size() uint64 {
	if r.End < r.Start {
		return 0
	}
	return uint64(r.End-r.Start) + 1
}

// CPU is the processor, as /proc/cpuinfo describes the first one.
type CPU struct {
	Vendor  string `json:"vendor"` // GenuineIntel, AuthenticAMD
	Family  int    `json:"family"`
	Model   int    `json:"model"`
	Name    string `json:"name,omitempty"`
	Sockets int    `json:"sockets"`
	Logical int    `json:"logical"`
	// Stepping is since version 2.
	Stepping   int  `json:"stepping,omitempty"`
	Hypervisor bool `json:"hypervisor"` // this is a virtual machine
	// HypervisorKind names the hypervisor, since version 2: kvm, qemu, vmware,
	// hyper-v, xen, virtualbox, amazon, google, parallels, bhyve, apple; empty on
	// bare metal, and for one that its guest cannot name.
	HypervisorKind string `json:"hypervisor_kind,omitempty"`
}

// IOMMU is the kernel's view of DMA translation.
type IOMMU struct {
	// Units are the entries of /sys/class/iommu, for example dmar0 or ivhd0.
	// None means that the kernel uses no IOMMU.
	Units []string `json:"units,omitempty"`
	// Details say more of each unit, since version 2.
	Details []IOMMUUnit `json:"details,omitempty"`
	// Groups are the IOMMU groups.
	Groups []IOMMUGroup `json:"groups,omitempty"`
	// Known says that both lists could be read, so that an empty one means
	// none.
	Known bool `json:"known"`
}

// IOMMUUnit is an IOMMU that the kernel uses.
type IOMMUUnit struct {
	Name string `json:"name"` // as in [IOMMU.Units]
	// Capabilities and Extended are its registers: CAP and ECAP of an Intel
	// unit (VT-d specification, "Register Descriptions"); the capability header
	// and the extended features of an AMD unit (AMD I/O Virtualization
	// Technology specification). 0 when the kernel does not show them.
	Capabilities pcicfg.Hex `json:"capabilities,omitempty"`
	Extended     pcicfg.Hex `json:"extended,omitempty"`
	// Devices are the addresses of the functions it translates for.
	Devices []string `json:"devices,omitempty"`
}

// IOMMUGroup is a set of devices that the IOMMU cannot tell apart.
type IOMMUGroup struct {
	ID string `json:"id"`
	// Type is the group's default domain: identity, DMA, DMA-FQ, blocked,
	// unmanaged; empty when the kernel does not say (before 5.11).
	Type    string   `json:"type,omitempty"`
	Devices []string `json:"devices"` // addresses
}

// Device is one PCI function.
type Device struct {
	// Address is the domain, bus, device and function: 0000:01:00.0.
	Address string     `json:"address"`
	Vendor  pcicfg.Hex `json:"vendor"`
	Device  pcicfg.Hex `json:"device"`
	Class   pcicfg.Hex `json:"class"` // 24 bits: class, subclass, programming interface

	// GPU says that the checks judge this function: an NVIDIA display
	// controller, or a stand-in.
	GPU bool `json:"gpu,omitempty"`
	// StandIn says that it is no GPU and is only treated as one because the
	// gatherer was asked to.
	StandIn bool `json:"stand_in,omitempty"`

	// Root is the name of the host bridge in sysfs: pci0000:00.
	Root string `json:"root"`
	// Path are the addresses of the bridges above, from the root port down to
	// the direct parent.
	Path []string `json:"path,omitempty"`

	// NUMANode is -1 when the firmware assigns none.
	NUMANode   int    `json:"numa_node"`
	IOMMUGroup string `json:"iommu_group,omitempty"`
	Driver     string `json:"driver,omitempty"`
	Enabled    bool   `json:"enabled"`
	PowerState string `json:"power_state,omitempty"` // D0, D3cold …

	// D3ColdAllowed says that the kernel may cut the power, since version 2. Nil
	// when it does not say.
	D3ColdAllowed *bool `json:"d3cold_allowed,omitempty"`
	// ResetMethods are the ways the kernel would reset the function, in the order
	// it tries them: flr, pm, bus, cxl_bus, device_specific. Since version 2.
	ResetMethods []string `json:"reset_methods,omitempty"`
	// BootVGA says that the firmware put its console here, since version 2.
	BootVGA bool `json:"boot_vga,omitempty"`
	// AER are the kernel's counts of PCIe errors since it started, since version
	// 2. Nil where it does not count.
	AER *AERCounters `json:"aer,omitempty"`
	// PhysicalFunction is the address of the function this is a virtual function
	// of; VirtualFunctions is how many of its own are enabled, of
	// MaxVirtualFunctions. Since version 2.
	PhysicalFunction    string `json:"physical_function,omitempty"`
	VirtualFunctions    int    `json:"virtual_functions,omitempty"`
	MaxVirtualFunctions int    `json:"max_virtual_functions,omitempty"`

	// The link as sysfs words it ("16.0 GT/s PCIe", "16"), empty without one.
	// Before version 2 only of GPUs and of the bridges above them.
	LinkSpeed    string `json:"link_speed,omitempty"`
	LinkWidth    string `json:"link_width,omitempty"`
	MaxLinkSpeed string `json:"max_link_speed,omitempty"`
	MaxLinkWidth string `json:"max_link_width,omitempty"`

	// Resources are the assigned BARs, from the first six lines of the sysfs
	// file resource. Windows of bridges are in Config.
	Resources []Resource `json:"resources,omitempty"`
	// Resizable are the masks of sizes that the kernel offers in resourceN_resize,
	// by BAR index; bit n stands for 1 MiB << n.
	Resizable map[int]pcicfg.Hex `json:"resizable,omitempty"`

	// RawConfig and Config are configuration space, as read and decoded, of
	// GPUs and of the bridges above them.
	RawConfig []byte         `json:"raw_config,omitempty"`
	Config    *pcicfg.Config `json:"config,omitempty"`
	// NoResponse says that the device answers no configuration read.
	NoResponse bool `json:"no_response,omitempty"`
}

// Resource is a BAR as the kernel assigned it.
type Resource struct {
	Index int        `json:"index"`
	Start pcicfg.Hex `json:"start"`
	End   pcicfg.Hex `json:"end"` // last byte
	Flags pcicfg.Hex `json:"flags"`
}

// Flags of a resource (linux/include/linux/ioport.h).
const (
	resourceMem      = 0x00000200
	resourcePrefetch = 0x00002000
	resource64       = 0x00100000
	resourceUnset    = 0x20000000
)

// Size returns the size of r in bytes.
func (r Resource) Size() uint64 {
	if r.End < r.Start || r.End == 0 {
		return 0
	}
	return uint64(r.End-r.Start) + 1
}

// Assigned reports whether r has an address.
func (r Resource) Assigned() bool { return r.Start != 0 && r.Flags&resourceUnset == 0 }

// Prefetchable64 reports whether r is a 64-bit prefetchable memory BAR, the
// kind that may lie above 4 GiB behind a bridge.
func (r Resource) Prefetchable64() bool {
	const want = resourceMem | resourcePrefetch | resource64
	return r.Flags&want == want
}

// AERCounters are counts of PCIe errors by severity.
type AERCounters struct {
	Correctable AERCounter `json:"correctable"`
	NonFatal    AERCounter `json:"non_fatal"`
	Fatal       AERCounter `json:"fatal"`
}

// AERCounter counts errors of one severity.
type AERCounter struct {
	Total uint64 `json:"total"`
	// Kinds are the counts that are not zero, under the kernel's abbreviations
	// (aer_correctable_error_string and aer_uncorrectable_error_string in
	// linux/drivers/pci/pcie/aer.c): BadTLP, Timeout, CmpltTO …
	Kinds map[string]uint64 `json:"kinds,omitempty"`
}

// NVIDIA is the loaded NVIDIA driver.
type NVIDIA struct {
	Version string `json:"version"`          // first line of /proc/driver/nvidia/version
	Params  string `json:"params,omitempty"` // /proc/driver/nvidia/params

	// What follows is since version 2.

	// Release is that in Version: 535.261.03; Open tells the open kernel module
	// from the proprietary one.
	Release string `json:"release,omitempty"`
	Open    bool   `json:"open,omitempty"`
	// GPUs are those the driver has bound.
	GPUs []NVIDIAGPU `json:"gpus,omitempty"`
	// NVML is what NVML tells of each GPU, nil when it was not asked.
	NVML []NVMLGPU `json:"nvml,omitempty"`
	// Survey is what the driver's resource manager grants to each pair, nil when
	// it was not asked.
	Survey *rm.Survey `json:"survey,omitempty"`
}

// NVIDIAGPU is the file /proc/driver/nvidia/gpus/*/information.
type NVIDIAGPU struct {
	Address  string `json:"address"`
	Model    string `json:"model,omitempty"`
	VBIOS    string `json:"vbios,omitempty"`
	Firmware string `json:"firmware,omitempty"` // of the GSP: its release, or N/A
	Excluded bool   `json:"excluded,omitempty"`
	UUID     string `json:"uuid,omitempty"` // only with Options.Private
}

// NVMLGPU is what NVML tells of a GPU. A field is empty or 0 when it does not
// tell; "N/A" is its own word for what the GPU cannot do.
type NVMLGPU struct {
	Address        string `json:"address"`
	Memory         uint64 `json:"memory,omitempty"`         // bytes
	BAR1           uint64 `json:"bar1,omitempty"`           // bytes
	MIG            string `json:"mig,omitempty"`            // Enabled, Disabled, N/A
	Virtualization string `json:"virtualization,omitempty"` // None, Pass-Through, VGPU, Host VGPU, Host VSGA
	Persistence    string `json:"persistence,omitempty"`    // Enabled, Disabled
	// Protected is the size of the memory under confidential computing in bytes.
	// Nil when the release does not tell or the GPU has no such mode; 0 is off.
	Protected *uint64 `json:"protected,omitempty"`

	LinkGeneration    int `json:"link_generation,omitempty"`
	MaxLinkGeneration int `json:"max_link_generation,omitempty"` // of GPU and port together
	LinkWidth         int `json:"link_width,omitempty"`
	MaxLinkWidth      int `json:"max_link_width,omitempty"`
}

// Installed is what of NVIDIA's driver lies in the file system.
type Installed struct {
	// Firmware are the files below /lib/firmware/nvidia/<release>/, by release.
	Firmware map[string][]string `json:"firmware,omitempty"`
	// Libraries are libcuda and libnvidia-ml in the usual directories.
	Libraries []Library `json:"libraries,omitempty"`
}

// Library is a shared library of the driver. Its file name carries the release.
type Library struct {
	Name    string `json:"name"`    // libcuda.so, libnvidia-ml.so
	Release string `json:"release"` // 535.261.03
	Path    string `json:"path"`
}

// Module is a loaded kernel module.
type Module struct {
	Name string `json:"name"` // nvidia, nvidia_uvm, nouveau, vfio_pci …
	// Version is what the module says of itself, empty when it says nothing.
	Version string `json:"version,omitempty"`
	// Parameters are those in /sys/module, in which NVreg_RegistryDwords always
	// reads as empty: [NVIDIA.Params] has it.
	Parameters map[string]string `json:"parameters,omitempty"`
}

// GPUs returns the functions that the checks judge, in address order.
func (f *Facts) GPUs() []*Device {
	var gpus []*Device
	for i := range f.Devices {
		if f.Devices[i].GPU {
			gpus = append(gpus, &f.Devices[i])
		}
	}
	return gpus
}

// Device returns the function at address, nil when there is none.
func (f *Facts) Device(address string) *Device {
	for i := range f.Devices {
		if f.Devices[i].Address == address {
			return &f.Devices[i]
		}
	}
	return nil
}

// Group returns the IOMMU group of d, nil when it is in none.
func (f *Facts) Group(d *Device) *IOMMUGroup {
	for i := range f.IOMMU.Groups {
		if d.IOMMUGroup != "" && f.IOMMU.Groups[i].ID == d.IOMMUGroup {
			return &f.IOMMU.Groups[i]
		}
	}
	return nil
}
