package facts

import (
	"fmt"
	"strconv"
	"strings"

	"mkp2pimg/firmware-checks/pcicfg"
)

func (g *gatherer) kernel() {
	k := &g.facts.Kernel
	k.Release = g.want("kernel release", "proc/sys/kernel/osrelease")
	k.CommandLine = g.redact(g.want("kernel command line", "proc/cmdline"))
	k.Lockdown = selected(g.may("lockdown state", "sys/kernel/security/lockdown"))
	k.Config = g.kernelConfig()
}

// selected returns the word in brackets of a line such as
// "none [integrity] confidentiality".
func selected(s string) string {
	_, rest, _ := strings.Cut(s, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// secureBootVariable is the SecureBoot variable under its namespace
// EFI_GLOBAL_VARIABLE (UEFI Specification, "Globally Defined Variables").
const secureBootVariable = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

func (g *gatherer) firmware() {
	f := &g.facts.Firmware
	const dmi = "sys/class/dmi/id/"
	f.BoardVendor = g.may("board vendor", dmi+"board_vendor")
	f.BoardName = g.may("board name", dmi+"board_name")
	f.SystemVendor = g.may("system vendor", dmi+"sys_vendor")
	f.Product = g.may("product name", dmi+"product_name")
	f.BIOSVendor = g.may("BIOS vendor", dmi+"bios_vendor")
	f.BIOSVersion = g.may("BIOS version", dmi+"bios_version")
	f.BIOSDate = g.may("BIOS date", dmi+"bios_date")
	if g.private {
		f.BoardSerial = g.may("board serial number", dmi+"board_serial")
		f.ProductSerial = g.may("product serial number", dmi+"product_serial")
		f.ProductUUID = g.may("product UUID", dmi+"product_uuid")
	}

	names, _ := g.list("ACPI tables", "sys/firmware/acpi/tables")
	for _, n := range names {
		// Signatures are four capitals; a further table of one signature has a
		// number appended, and data and dynamic are directories.
		if len(n) == 4 && n == strings.ToUpper(n) {
			f.ACPITables = append(f.ACPITables, n)
		}
	}
	g.secureBoot()
}

func (g *gatherer) secureBoot() {
	const vars = "sys/firmware/efi/efivars"
	if names, known := g.list("UEFI", "sys/firmware/efi"); known && len(names) == 0 {
		return
	}
	g.facts.Firmware.UEFI = true
	const name = vars + "/" + secureBootVariable
	s, err := g.readRaw(name)
	if err == nil && len(s) != 5 { // four bytes of attributes, one of value
		err = fmt.Errorf("variable has %d bytes, want 5", len(s))
	}
	if err != nil {
		g.unknown("secure boot state", name, err)
		return
	}
	on := s[4] == 1
	g.facts.Firmware.SecureBoot = &on
}

func (g *gatherer) cpu() {
	g.facts.CPU = parseCPUInfo(g.want("processors", "proc/cpuinfo"))
	if g.facts.CPU.Hypervisor {
		g.facts.CPU.HypervisorKind = hypervisorKind(g.facts.Firmware)
	}
}

// hypervisors are the kinds by what their virtual machines say in DMI, the
// specific before the general: clouds put their name over KVM or QEMU.
var hypervisors = []struct{ text, kind string }{
	{"Amazon EC2", "amazon"},
	{"Google Compute Engine", "google"},
	{"Google", "google"},
	{"VMware", "vmware"},
	{"VirtualBox", "virtualbox"},
	{"innotek GmbH", "virtualbox"},
	{"Microsoft Corporation", "hyper-v"},
	{"Parallels", "parallels"},
	{"BHYVE", "bhyve"},
	{"Apple Virtualization", "apple"},
	{"Xen", "xen"},
	{"OpenStack", "kvm"},
	{"KubeVirt", "kvm"},
	{"KVM", "kvm"},
	{"QEMU", "qemu"},
	{"Bochs", "qemu"},
	{"Standard PC (", "qemu"}, // the product name of QEMU's machines
}

// hypervisorKind names the hypervisor of a machine that is known to be virtual:
// some physical machines have the same words in DMI.
func hypervisorKind(f Firmware) string {
	for _, h := range hypervisors {
		for _, field := range []string{f.SystemVendor, f.Product, f.BoardVendor, f.BoardName, f.BIOSVendor} {
			if strings.Contains(field, h.text) {
				return h.kind
			}
		}
	}
	return ""
}

// parseCPUInfo reads the x86 form of /proc/cpuinfo; of another architecture it
// takes what has the same name.
func parseCPUInfo(s string) CPU {
	var c CPU
	sockets := map[string]bool{}
	for line := range strings.Lines(s) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "processor":
			c.Logical++
		case "physical id":
			sockets[value] = true
		case "vendor_id":
			c.Vendor = value
		case "model name":
			c.Name = value
		case "cpu family":
			c.Family, _ = strconv.Atoi(value) // stays 0 when it is no number
		case "model":
			c.Model, _ = strconv.Atoi(value)
		case "stepping":
			c.Stepping, _ = strconv.Atoi(value)
		case "flags":
			c.Hypervisor = strings.Contains(" "+value+" ", " hypervisor ")
		}
	}
	c.Sockets = max(1, len(sockets))
	return c
}

func (g *gatherer) iommu() {
	const groups = "sys/kernel/iommu_groups"
	m := &g.facts.IOMMU
	var unitsKnown, groupsKnown bool
	m.Units, unitsKnown = g.list("IOMMU units", "sys/class/iommu")
	ids, groupsKnown := g.list("IOMMU groups", groups)
	m.Known = unitsKnown && groupsKnown
	for _, unit := range m.Units {
		m.Details = append(m.Details, g.iommuUnit(unit))
	}
	for _, id := range ids {
		dir := groups + "/" + id
		devices, _ := g.list("devices of an IOMMU group", dir+"/devices")
		if devices == nil {
			devices = []string{} // not null in the document
		}
		m.Groups = append(m.Groups, IOMMUGroup{
			ID:      id,
			Type:    g.want("type of an IOMMU group", dir+"/type"),
			Devices: devices,
		})
	}
}

// iommuUnit reads an entry of /sys/class/iommu. The drivers of Intel and AMD show
// their registers in different files.
func (g *gatherer) iommuUnit(name string) IOMMUUnit {
	dir := "sys/class/iommu/" + name
	u := IOMMUUnit{Name: name}
	u.Devices, _ = g.list("devices of an IOMMU", dir+"/devices")
	u.Capabilities = g.register("capabilities of an IOMMU", dir+"/intel-iommu/cap", dir+"/amd-iommu/cap")
	u.Extended = g.register("extended features of an IOMMU", dir+"/intel-iommu/ecap", dir+"/amd-iommu/features")
	return u
}

// register reads the first of some files that exists: a hexadecimal number
// without prefix, which a second one may follow after a colon.
func (g *gatherer) register(what string, names ...string) pcicfg.Hex {
	for _, name := range names {
		s := g.may(what, name)
		if s == "" {
			continue
		}
		first, _, _ := strings.Cut(s, ":")
		n, err := strconv.ParseUint(first, 16, 64)
		if err != nil {
			g.unknown(what, name, err)
		}
		return pcicfg.Hex(n)
	}
	return 0
}
