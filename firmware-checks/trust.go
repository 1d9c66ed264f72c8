package checks

import (
	"fmt"
	"regexp"
	"strings"

	"mkp2pimg/firmware-checks/facts"
)

var moduleTrustDoc = Doc{
	ID:       ModuleTrust,
	Question: "Will the kernel refuse the driver's modules for want of a signature it trusts?",
	Meaning:  "With lockdown, which distributions switch on together with Secure Boot, or with enforced module signatures the kernel loads modules only that its maker or the machine's owner signed; edited ones are not. Lockdown also forbids writes to configuration space, so ACS cannot be changed at run time.",
	Fix:      "Turn Secure Boot off in the firmware setup, or sign the modules with a key of your own and enroll that (mokutil --import).",
	Outcomes: []Outcome{
		{Pass, "the kernel takes unsigned modules, or has loaded the driver already"},
		{Warn, "Secure Boot is on, and whether this kernel enforces signatures is not known"},
		{Fail, "lockdown or enforced signatures are on, or the kernel has refused a module"},
		{Unknown, "neither Secure Boot nor lockdown could be read"},
	},
}

// refused are the kernel's words about a module that it did not take
// (kernel/module/signing.c, security/lockdown/lockdown.c).
var refused = regexp.MustCompile(`Key was rejected by service|Loading of (unsigned module|module with unsupported crypto|module with unavailable key) is rejected|Lockdown: .*unsigned module loading is restricted`)

// moduleTrust asks whether the kernel would refuse modules without a signature.
func moduleTrust(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	secure, known := "not known", true
	switch sb := f.Firmware.SecureBoot; {
	case sb != nil && *sb:
		secure = "on"
	case sb != nil:
		secure = "off"
	case !f.Firmware.UEFI:
		secure = "no UEFI"
	default:
		known = false
	}
	found := Finding{ID: ModuleTrust, Evidence: []Evidence{
		{What: "Secure Boot", Where: "/sys/firmware/efi/efivars", Raw: secure},
		{What: "lockdown", Where: "/sys/kernel/security/lockdown", Raw: orNone(strings.Fields(f.Kernel.Lockdown))},
	}}
	var enforced []string
	if l := f.Kernel.Lockdown; l != "" && l != "none" {
		enforced = append(enforced, "lockdown="+l)
	}
	if f.Kernel.Config["CONFIG_MODULE_SIG_FORCE"] == "y" {
		enforced = append(enforced, "CONFIG_MODULE_SIG_FORCE")
		found.Evidence = append(found.Evidence, Evidence{What: "kernel configuration", Where: "/boot/config-" + f.Kernel.Release, Raw: "CONFIG_MODULE_SIG_FORCE=y"})
	}
	for _, p := range parameters(f) {
		if p.name == "module.sig_enforce" && p.value != "0" && p.value != "N" {
			enforced = append(enforced, p.String())
			found.Evidence = append(found.Evidence, Evidence{What: "kernel command line", Where: "/proc/cmdline", Raw: p.String()})
		}
	}
	rejected := false
	for _, line := range f.KernelLog {
		if refused.MatchString(line) {
			rejected = true
			found.Evidence = append(found.Evidence, logEvidence(line))
		}
	}
	const sign = "Turn Secure Boot off in the firmware setup%s, or sign the modules with a key of your own and enroll it:\n" +
		"openssl req -new -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=modules/ -outform DER -keyout mok.key -out mok.der\n" +
		"mokutil --import mok.der"
	found.Fix = fmt.Sprintf(sign, ofBoard(f))
	switch {
	case f.NVIDIA != nil:
		found.Status, found.Title, found.Fix = Pass, "the kernel has taken the driver's modules", ""
		found.Meaning = "Whatever it asks of modules, the loaded driver has it. Other modules, such as edited ones, may not."
	case rejected:
		found.Status, found.Title = Fail, "the kernel has refused a module for want of a signature"
		found.Meaning = "The driver's modules need a signature that the kernel trusts."
	case enforced != nil:
		found.Status, found.Title = Fail, "the kernel takes signed modules only: "+strings.Join(enforced, ", ")
		found.Meaning = "Modules built elsewhere, edited ones among them, are refused; under lockdown so are writes to configuration space, with which ACS could be changed at run time."
	case f.Kernel.Lockdown == "none" || known && secure != "on":
		found.Status, found.Title, found.Fix = Pass, "the kernel takes unsigned modules", ""
		found.Meaning = "Neither Secure Boot nor lockdown stands in the way of the driver's modules."
	case known:
		found.Status, found.Title = Warn, "Secure Boot is on"
		found.Meaning = "The kernels of most distributions then refuse modules without a signature they trust; whether this one does is not to be seen."
	default:
		found.Status, found.Title = Unknown, "whether the kernel takes unsigned modules is not known"
		found.Meaning = "Neither the Secure Boot variable nor the state of lockdown could be read."
		found.Fix = "Run as root with efivarfs mounted at /sys/firmware/efi/efivars and securityfs at /sys/kernel/security."
	}
	return []Finding{found}
}
