// Package facts gathers what a machine says about itself that bears on PCIe
// peer-to-peer traffic between GPUs, as plain data that can be saved, sent and
// judged elsewhere.
//
// [Gather] reads below a root path, so that a fixture or another host's copy of
// /sys and /proc works as well as the running system. It never gives up over
// one source: what could not be read is listed in [Facts.Unknown] with the
// reason, and the rest stands.
//
// Serial numbers, UUIDs and MAC addresses are left out: of DMI only the fields
// that name a model are read, the Device Serial Number capability is blanked in
// raw configuration space, and the kernel's command line and log lines are
// redacted.
package facts

import (
	"mkp2pimg/firmware-checks/pcicfg"
)

// Version is the version of the facts document this package writes.
const Version = 1

// Facts is everything known about one machine. Slices are sorted by address,
// number or name, so that equal machines give equal documents.
type Facts struct {
	Version int `json:"version"`

	Kernel   Kernel   `json:"kernel"`
	Firmware Firmware `json:"firmware"`
	CPU      CPU      `json:"cpu"`
	IOMMU    IOMMU    `json:"iommu"`
	// Devices are all PCI functions.
	Devices []Device `json:"devices"`
	// NVIDIA is the loaded NVIDIA driver, nil when none is loaded.
	NVIDIA *NVIDIA `json:"nvidia,omitempty"`
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
}

// Firmware is what the platform firmware says about itself.
type Firmware struct {
	BoardVendor string `json:"board_vendor,omitempty"`
	BoardName   string `json:"board_name,omitempty"`
	Product     string `json:"product,omitempty"`
	BIOSVendor  string `json:"bios_vendor,omitempty"`
	BIOSVersion string `json:"bios_version,omitempty"`
	BIOSDate    string `json:"bios_date,omitempty"`
	UEFI        bool   `json:"uefi"`
	// SecureBoot is nil when the machine has no such variable or it could not
	// be read.
	SecureBoot *bool `json:"secure_boot,omitempty"`
	// ACPITables are the signatures of the ACPI tables present, for example
	// DMAR (Intel IOMMU), IVRS (AMD IOMMU), MCFG.
	ACPITables []string `json:"acpi_tables,omitempty"`
}

// CPU is the processor, as /proc/cpuinfo describes the first one.
type CPU struct {
	Vendor     string `json:"vendor"` // GenuineIntel, AuthenticAMD
	Family     int    `json:"family"`
	Model      int    `json:"model"`
	Name       string `json:"name,omitempty"`
	Sockets    int    `json:"sockets"`
	Logical    int    `json:"logical"`
	Hypervisor bool   `json:"hypervisor"` // this is a virtual machine
}

// IOMMU is the kernel's view of DMA translation.
type IOMMU struct {
	// Units are the entries of /sys/class/iommu, for example dmar0 or ivhd0.
	// None means that the kernel uses no IOMMU.
	Units []string `json:"units,omitempty"`
	// Groups are the IOMMU groups.
	Groups []IOMMUGroup `json:"groups,omitempty"`
	// Known says that both lists could be read, so that an empty one means
	// none.
	Known bool `json:"known"`
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

	// The link of GPUs and of the bridges above them as sysfs words it
	// ("16.0 GT/s PCIe", "16"), empty without one.
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

// NVIDIA is the loaded NVIDIA driver.
type NVIDIA struct {
	Version string `json:"version"`          // first line of /proc/driver/nvidia/version
	Params  string `json:"params,omitempty"` // /proc/driver/nvidia/params
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
