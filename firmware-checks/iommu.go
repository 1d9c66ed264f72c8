package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

// Types of an IOMMU group's default domain, as
// /sys/kernel/iommu_groups/*/type words them.
const (
	domainIdentity = "identity"
	domainDMA      = "DMA"
	domainDMAFlush = "DMA-FQ" // DMA with a flush queue
)

// translates reports whether the IOMMU translates the DMA of d.
func translates(f *facts.Facts, d *facts.Device) bool {
	g := f.Group(d)
	return g != nil && (g.Type == domainDMA || g.Type == domainDMAFlush)
}

var iommuDoc = Doc{
	ID:       IOMMU,
	Question: "Does an IOMMU translate the DMA of a GPU?",
	Meaning:  "The address of a peer's BAR is not an address that a translating IOMMU knows: transfers end in faults, zeros or silently wrong data.",
	Fix:      "Boot with iommu=pt, or turn the IOMMU off; " + biosPage + " says where firmware setups have VT-d or AMD-Vi.",
	Outcomes: []Outcome{
		{Pass, "no IOMMU is in use, or it passes addresses through"},
		{Fail, "the default domain of a GPU's group translates"},
		{Unknown, "the kernel does not tell the type of the group"},
	},
}

// iommu asks whether an IOMMU translates the DMA of a GPU. The kernel's log is
// no witness: "Default domain type: Translated" is printed even when the IOMMU
// is off.
func iommu(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	units := Evidence{What: "IOMMU units", Where: "/sys/class/iommu", Raw: orNone(f.IOMMU.Units)}
	if !f.IOMMU.Known {
		return []Finding{{
			ID: IOMMU, Status: Unknown, Title: "the state of the IOMMU could not be read", Evidence: []Evidence{units},
			Meaning: "Whether the IOMMU translates the DMA of the GPUs is not known.",
			Fix:     "Mount sysfs at /sys and run as root.", Devices: addresses(gpus),
		}}
	}
	if len(f.IOMMU.Units) == 0 && len(f.IOMMU.Groups) == 0 {
		return []Finding{{
			ID: IOMMU, Status: Pass, Title: "no IOMMU in use", Devices: addresses(gpus),
			Evidence: append([]Evidence{units}, iommuOrigin(f)...),
			Meaning:  "A GPU's address for a peer is the address on the bus.",
		}}
	}
	translating := Finding{
		ID: IOMMU, Status: Fail, Evidence: []Evidence{units},
		Meaning: "A peer's BAR address is not a DMA address of the GPU: with translation on, peer-to-peer over PCIe ends in faults, zeros or silently wrong data.",
	}
	identity := Finding{
		ID: IOMMU, Status: Pass, Evidence: []Evidence{units},
		Meaning: "The IOMMU is on but passes the GPUs' addresses through. That does not clear ACS redirect, which the kernel requests whenever an IOMMU is present.",
	}
	unclear := Finding{
		ID: IOMMU, Status: Unknown, Evidence: []Evidence{units},
		Meaning: "Whether the IOMMU translates the DMA of these GPUs is not known.",
		Fix:     "Run a kernel of 5.11 or later, which tells the type of an IOMMU group, or boot with iommu=pt.",
	}
	for _, d := range gpus {
		g := f.Group(d)
		to := &unclear
		switch {
		case g == nil:
			to = &identity
			to.Evidence = append(to.Evidence, Evidence{What: "IOMMU group of " + d.Address, Where: sysPCI + d.Address + "/iommu_group", Raw: "none"})
		case g.Type == domainIdentity:
			to = &identity
		case translates(f, d):
			to = &translating
		}
		if g != nil {
			to.Evidence = append(to.Evidence, Evidence{
				What:  fmt.Sprintf("type of IOMMU group %s with %s", g.ID, d.Address),
				Where: "/sys/kernel/iommu_groups/" + g.ID + "/type",
				Raw:   orNone(strings.Fields(g.Type)),
			})
		}
		to.Devices = append(to.Devices, d.Address)
	}
	translating.Title = fmt.Sprintf("the IOMMU translates the DMA of %s", count(len(translating.Devices), "GPU"))
	translating.Fix = iommuFix(f)
	translating.affect(newFabric(f).pairsWith(translating.Devices)...)
	identity.Title = fmt.Sprintf("the IOMMU passes the DMA of %s through", count(len(identity.Devices), "GPU"))
	unclear.Title = fmt.Sprintf("the IOMMU group of %s does not tell its type", count(len(unclear.Devices), "GPU"))
	out := about(translating, unclear, identity)
	for i := range out {
		out[i].Evidence = append(out[i].Evidence, iommuOrigin(f)...)
	}
	return out
}

// iommuOrigin says who decided: parameters on the command line, the kernel's
// configuration, or the firmware with its tables.
func iommuOrigin(f *facts.Facts) []Evidence {
	var params []string
	for _, p := range parameters(f) {
		switch p.name {
		case "iommu", "iommu.passthrough", "iommu.strict", "intel_iommu", "amd_iommu":
			params = append(params, p.String())
		}
	}
	raw := strings.Join(params, " ")
	if params == nil {
		raw = "no IOMMU parameter, the kernel's default holds"
	}
	var tables []string
	for _, t := range []string{"DMAR", "IVRS"} {
		if slices.Contains(f.Firmware.ACPITables, t) {
			tables = append(tables, t)
		}
	}
	return []Evidence{
		{What: "IOMMU parameters", Where: "/proc/cmdline", Raw: raw},
		{What: "ACPI tables of an IOMMU", Where: "/sys/firmware/acpi/tables", Raw: orNone(tables)},
		{What: "who decides about the IOMMU", Where: "parameters, tables and the kernel's configuration", Raw: whoDecides(f, tables)},
	}
}

// whoDecides says why the IOMMU is on or off, and why its domains are what they
// are by default.
func whoDecides(f *facts.Facts, tables []string) string {
	amd := slices.ContainsFunc(f.IOMMU.Units, isAMD)
	switch {
	case len(f.IOMMU.Units) == 0 && tables == nil:
		return "off: the firmware has no table of one, so it is disabled in the setup or not there"
	case len(f.IOMMU.Units) == 0 && hasOption(f, "iommu", "off"):
		return "off: iommu=off"
	case len(f.IOMMU.Units) == 0 && (hasOption(f, "intel_iommu", "off") || hasOption(f, "amd_iommu", "off")):
		return "off: by its parameter"
	case len(f.IOMMU.Units) == 0:
		return "off: the firmware has one, which this kernel does not switch on by itself"
	}
	on := "on: this kernel's default could not be read"
	switch config := f.Kernel.Config; {
	case amd:
		on = "on: the kernel always uses an AMD IOMMU that the firmware has"
	case hasOption(f, "intel_iommu", "on"):
		on = "on: intel_iommu=on"
	case config["CONFIG_INTEL_IOMMU_DEFAULT_ON"] == "y":
		on = "on: the kernel's configuration (INTEL_IOMMU_DEFAULT_ON)"
	case config["CONFIG_INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF"] == "y":
		on = "on: the kernel's configuration (INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF)"
	case f.ACPI != nil && f.ACPI.DMAR != nil && f.ACPI.DMAR.DMAOptIn:
		on = "on: the firmware asks for it (DMA_CTRL_PLATFORM_OPT_IN_FLAG in DMAR)"
	case config != nil:
		on = "on: neither a parameter nor the kernel's configuration asks for it"
	}
	switch config := f.Kernel.Config; {
	case passthrough(f):
		return on + "; addresses pass through: iommu=pt"
	case config["CONFIG_IOMMU_DEFAULT_PASSTHROUGH"] == "y":
		return on + "; addresses pass through: the kernel's configuration (IOMMU_DEFAULT_PASSTHROUGH)"
	}
	return on + "; nothing asks for addresses to pass through"
}

// isAMD reports whether an IOMMU unit is one of AMD's.
func isAMD(unit string) bool { return strings.HasPrefix(unit, "ivhd") }

// iommuSwitch names the kernel parameter that turns the IOMMU in use off, and
// what firmware setups call it. Its units tell, not the CPU: an emulator pairs
// each with CPUs of the other vendor.
func iommuSwitch(f *facts.Facts) (parameter, setup string) {
	if slices.ContainsFunc(f.IOMMU.Units, isAMD) {
		return "amd_iommu=off", "IOMMU (AMD-Vi)"
	}
	return "intel_iommu=off", "VT-d"
}

// x2APIC is how many logical CPUs take interrupts without an IOMMU to remap them
// (8-bit APIC IDs, of which 255 is the broadcast).
const x2APIC = 255

func iommuFix(f *facts.Facts) string {
	off, setup := iommuSwitch(f)
	var lines []string
	for _, p := range parameters(f) {
		if p.name == "amd_iommu" && slices.Contains(p.options(), "force_isolation") {
			lines = append(lines, "Remove amd_iommu=force_isolation, which forces translation whatever else is set.")
		}
		if p.name == "iommu" && slices.Contains(p.options(), "nopt") || p.String() == "iommu.passthrough=0" {
			lines = append(lines, "Remove "+p.String()+", which asks for translation.")
		}
	}
	switch {
	case f.CPU.Logical > x2APIC:
		lines = append(lines, fmt.Sprintf("Boot with iommu=pt. Do not turn the IOMMU off: with %d logical CPUs interrupts need it.", f.CPU.Logical))
	case passthrough(f):
		lines = append(lines, fmt.Sprintf("iommu=pt is on the command line without effect on these GPUs; boot with %s, or disable %s in the firmware setup%s.", off, setup, ofBoard(f)))
	default:
		lines = append(lines, fmt.Sprintf("Boot with iommu=pt, or with %s, or disable %s in the firmware setup%s.", off, setup, ofBoard(f)))
	}
	if f.CPU.Logical <= x2APIC {
		lines = append(lines, whereInSetup(f, iommuItem))
	}
	lines = append(lines, "iommu=pt does not clear ACS redirect: see P2P-ACS-REDIRECT.")
	return strings.Join(lines, "\n")
}

// passthrough reports whether the command line asks for identity domains.
func passthrough(f *facts.Facts) bool {
	asked := false
	for _, p := range parameters(f) {
		switch {
		case p.name == "iommu" && slices.Contains(p.options(), "pt"),
			p.name == "iommu.passthrough" && slices.Contains([]string{"1", "y", "Y", "on"}, p.value):
			asked = true
		case p.name == "iommu" && slices.Contains(p.options(), "nopt"),
			p.name == "iommu.passthrough":
			asked = false
		}
	}
	return asked
}

// orNone joins names, or says that there are none.
func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " ")
}
