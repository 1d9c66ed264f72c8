package checks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

// parameter is one word of the kernel's command line.
type parameter struct{ name, value string }

// String returns the parameter as it stands on the command line.
func (p parameter) String() string {
	if p.value == "" {
		return p.name
	}
	return p.name + "=" + p.value
}

// options splits a value such as on,sm_on.
func (p parameter) options() []string { return strings.Split(p.value, ",") }

// parameters splits the command line. Quotes only protect spaces, which none of
// the parameters looked at has; what follows "--" is for init.
func parameters(f *facts.Facts) []parameter {
	var out []parameter
	for word := range strings.FieldsSeq(f.Kernel.CommandLine) {
		if word == "--" {
			break
		}
		name, value, _ := strings.Cut(strings.ReplaceAll(word, `"`, ""), "=")
		out = append(out, parameter{name, value})
	}
	return out
}

// placebo is something on the command line that does not do what whoever wrote
// it hoped for.
type placebo struct{ param, why, fix string }

// address is a PCI address with or without its domain.
var address = regexp.MustCompile(`^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

var commandLineDoc = Doc{
	ID:       CommandLine,
	Question: "Is there a parameter on the kernel's command line that does not do what it seems to?",
	Meaning:  "Who believes that a parameter has cleared ACS or passed addresses through looks for the cause elsewhere. What it failed to set has a finding of its own.",
	Fix:      "Replace the parameter as the finding says.",
	Outcomes: []Outcome{
		{Pass, "no such parameter is there"},
		{Warn, "at least one is"},
		{Unknown, "the command line could not be read"},
	},
	Weightless: true,
}

// commandLine looks for parameters that do nothing for peer-to-peer, or less
// than they seem to.
func commandLine(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	line := Evidence{What: "kernel command line", Where: "/proc/cmdline", Raw: f.Kernel.CommandLine}
	if why := unreadable(f, "/proc/cmdline"); why != "" {
		return []Finding{{
			ID: CommandLine, Status: Unknown, Title: "the kernel command line could not be read", Evidence: []Evidence{line},
			Meaning: "Which settings were asked for is not known: " + why + ".", Fix: "Mount procfs at /proc.",
		}}
	}
	found := Finding{ID: CommandLine, Evidence: []Evidence{line}}
	placebos := placebosOf(f)
	if placebos == nil {
		found.Status = Pass
		found.Title = "no placebo on the kernel command line"
		found.Meaning = "No parameter promises something for peer-to-peer that it does not do."
		return []Finding{found}
	}
	var names, meanings, fixes []string
	for _, p := range placebos {
		names = append(names, p.param)
		meanings = append(meanings, p.why)
		if !slices.Contains(fixes, p.fix) {
			fixes = append(fixes, p.fix)
		}
	}
	for _, l := range f.KernelLog {
		if strings.Contains(l, "PCI: Unknown option") || strings.Contains(l, "PCI: Can't parse") {
			found.Evidence = append(found.Evidence, Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: l})
		}
	}
	found.Status = Warn
	found.Title = "without the effect hoped for: " + strings.Join(names, ", ")
	found.Meaning = "These parameters do not do what they seem to: " + strings.Join(meanings, "; ") + "."
	found.Fix = strings.Join(fixes, "\n")
	return []Finding{found}
}

func placebosOf(f *facts.Facts) []placebo {
	var out []placebo
	lists := map[string]int{} // uses of the options of which the kernel keeps the last
	for _, p := range parameters(f) {
		switch p.name {
		case "pci":
			out = append(out, pciPlacebos(f, p, lists)...)
		case "pcie_acs_override":
			out = append(out, acsOverride(f, p))
		case "iommu":
			// iommu_setup in linux/arch/x86/kernel/pci-dma.c knows off, force, pt, nopt
			// and some that have nothing to do with this.
			if slices.Contains(p.options(), "on") {
				out = append(out, placebo{p.String(), "iommu has no option on",
					"Remove " + p.String() + "; intel_iommu=on switches Intel's on, AMD's is on by default."})
			}
		case "amd_iommu":
			if slices.Contains(p.options(), "on") || slices.Contains(p.options(), "pt") {
				out = append(out, placebo{p.String(), "amd_iommu has no such option; the AMD IOMMU is on by default",
					"Remove " + p.String() + "; iommu=pt is what passes addresses through."})
			}
		case "intel_iommu":
			switch {
			case slices.Contains(p.options(), "pt"):
				out = append(out, placebo{p.String(), "intel_iommu has no option pt", "Write iommu=pt."})
			case slices.Contains(p.options(), "on") && !passthrough(f):
				out = append(out, placebo{p.String(), "intel_iommu=on without iommu=pt turns translation on, which breaks peer-to-peer, and makes the kernel set ACS redirect",
					"Add iommu=pt, or remove intel_iommu=on unless virtual machines need it."})
			}
		}
	}
	out = append(out, driverPlacebos(f)...)
	for _, name := range []string{"disable_acs_redir", "config_acs"} {
		if lists[name] > 1 {
			out = append(out, placebo{fmt.Sprintf("%d times pci=%s", lists[name], name), "the kernel keeps only the last " + name + " it reads",
				"Give all addresses in one pci=" + name + "=, separated by semicolons."})
		}
	}
	return out
}

func pciPlacebos(f *facts.Facts, p parameter, lists map[string]int) []placebo {
	var out []placebo
	for _, opt := range p.options() {
		name, value, _ := strings.Cut(opt, "=")
		switch {
		case name == "noacs":
			out = append(out, placebo{"pci=noacs", "the kernel has no option noacs and ignores it",
				"Replace pci=noacs by what P2P-ACS-REDIRECT gives."})
		case name == "config_acs" || name == "disable_acs_redir":
			lists[name]++
			out = append(out, listPlacebos(f, name, value)...)
		case address.MatchString(opt):
			out = append(out, placebo{"pci=…," + opt, "a comma ends a pci= option, so the address after it is an option of its own, which the kernel does not know",
				"Separate addresses by semicolons."})
		}
	}
	return out
}

// acsOverride judges pcie_acs_override. A kernel with the patch says so in its
// log.
func acsOverride(f *facts.Facts, p parameter) placebo {
	why := "pcie_acs_override is a patch that mainline and distribution kernels do not have, and it changes only how devices are grouped, not how ports route"
	if slices.ContainsFunc(f.KernelLog, func(l string) bool { return strings.Contains(l, "PCIe ACS overrides enabled") }) {
		why = "this kernel has the patch for pcie_acs_override, which changes only how devices are grouped, not how ports route"
	}
	return placebo{p.String(), why, "Replace pcie_acs_override by what P2P-ACS-REDIRECT gives."}
}

// listPlacebos judges a list of ports whose access control is to be changed:
// "0x00xx@0000:02:00.0;…" or "0000:02:00.0;…".
func listPlacebos(f *facts.Facts, name, list string) []placebo {
	release := f.Kernel.Release
	switch {
	case !since(release, 4, 19), name == "config_acs" && !since(release, 6, 11):
		return []placebo{{"pci=" + name, fmt.Sprintf("kernel %s does not know %s yet", release, name), "Use what P2P-ACS-REDIRECT gives for this kernel."}}
	case misreadsACS(release):
		return []placebo{{"pci=" + name, fmt.Sprintf("kernel %s, as far as its version tells, gives the bits of %s back to the firmware instead of clearing them", release, name),
			"Use what P2P-ACS-REDIRECT gives for this kernel."}}
	}
	var out []placebo
	for port := range strings.SplitSeq(list, ";") {
		if _, after, ok := strings.Cut(port, "@"); ok {
			port = after
		}
		if !address.MatchString(port) {
			continue // a path of several devices, or IDs
		}
		if strings.Count(port, ":") == 1 {
			port = "0000:" + port
		}
		d := f.Device(port)
		switch {
		case d == nil:
			out = append(out, placebo{"pci=" + name + "=…" + port, "no device has the address " + port,
				"Correct the address: it changes when cards are added or moved. P2P-ACS-REDIRECT gives those of now."})
		case d.Config != nil && d.Config.ACS == nil && d.Config.ExtendedRead:
			out = append(out, placebo{"pci=" + name + "=…" + port, port + " has no access control to change",
				"Name the ports that P2P-ACS-REDIRECT gives."})
		}
	}
	return out
}

// driverPlacebos judges options of nvidia.ko. The kernel hands those on its
// command line to a module by the name in front; those that the driver's kernel
// layer reads as parameters of its own are not read from RegistryDwords
// (NV_DEFINE_REG_ENTRY in kernel-open/nvidia/nv-reg.h).
func driverPlacebos(f *facts.Facts) []placebo {
	var out []placebo
	for _, p := range parameters(f) {
		switch {
		case strings.HasPrefix(p.name, "NVreg_"):
			out = append(out, placebo{p.String(), p.name + " without the module's name in front reaches no module", "Write nvidia." + p.name + "."})
		case p.name == "nvidia.NVreg_RegistryDwords":
			for _, name := range []string{"EnableResizableBar", "GrdmaPciTopoCheckOverride"} {
				if strings.Contains(p.value, name+"=") {
					out = append(out, placebo{p.String(), name + " is a parameter of the module, which RegistryDwords does not set", "Write nvidia.NVreg_" + name + "=1."})
				}
			}
		}
	}
	return out
}
