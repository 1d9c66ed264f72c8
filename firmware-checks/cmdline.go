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
			out = append(out, placebo{p.String(), "pcie_acs_override is a patch that mainline and distribution kernels do not have, and it changes only how devices are grouped, not how ports route",
				"Replace pcie_acs_override by what P2P-ACS-REDIRECT gives."})
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
		name, _, _ := strings.Cut(opt, "=")
		switch {
		case name == "noacs":
			out = append(out, placebo{"pci=noacs", "the kernel has no option noacs and ignores it",
				"Replace pci=noacs by what P2P-ACS-REDIRECT gives."})
		case name == "config_acs" || name == "disable_acs_redir":
			lists[name]++
			if name == "config_acs" && !since(f.Kernel.Release, 6, 11) || !since(f.Kernel.Release, 4, 19) {
				out = append(out, placebo{"pci=" + name, fmt.Sprintf("kernel %s does not know %s yet", f.Kernel.Release, name),
					"Use what P2P-ACS-REDIRECT gives for this kernel."})
			}
		case address.MatchString(opt):
			out = append(out, placebo{"pci=…," + opt, "a comma ends a pci= option, so the address after it is an option of its own, which the kernel does not know",
				"Separate addresses by semicolons."})
		}
	}
	return out
}
