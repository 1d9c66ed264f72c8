package facts

import (
	"fmt"
	"strconv"
	"strings"
)

func (g *gatherer) kernel() {
	k := &g.facts.Kernel
	k.Release = g.want("kernel release", "proc/sys/kernel/osrelease")
	k.CommandLine = redact(g.want("kernel command line", "proc/cmdline"))
	k.Lockdown = selected(g.may("lockdown state", "sys/kernel/security/lockdown"))
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
	f.Product = g.may("product name", dmi+"product_name")
	f.BIOSVendor = g.may("BIOS vendor", dmi+"bios_vendor")
	f.BIOSVersion = g.may("BIOS version", dmi+"bios_version")
	f.BIOSDate = g.may("BIOS date", dmi+"bios_date")

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

func (g *gatherer) nvidia() {
	version := g.may("NVIDIA driver version", "proc/driver/nvidia/version")
	if version == "" {
		return
	}
	first, _, _ := strings.Cut(version, "\n")
	g.facts.NVIDIA = &NVIDIA{
		Version: first,
		Params:  g.may("NVIDIA driver parameters", "proc/driver/nvidia/params"),
	}
}
