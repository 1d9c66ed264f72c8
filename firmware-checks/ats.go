package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

var atsDoc = Doc{
	ID:       ATS,
	Question: "Do GPUs translate addresses themselves (ATS), and do the ports above let that through?",
	Meaning:  "A GPU with ATS asks the IOMMU once and then sends translated addresses. Ports may block such requests (TB), or redirect them unless DT exempts them: where ATS is in use, DT has to stay on.",
	Fix:      "Clear TB on the ports above, and set DT on those that redirect.",
	Outcomes: []Outcome{
		{Pass, "no GPU uses ATS, or the ports let translated requests pass"},
		{Warn, "a switch port redirects translated requests too"},
		{Fail, "a port blocks translated requests"},
		{Unknown, "the capability could not be read"},
	},
}

// ats asks whether GPUs use address translation services, and whether ports are
// set up for that. PCIe 6.0 §6.12.1.1: TB makes a port refuse requests that are
// already translated, DT exempts them from RR and EC.
func ats(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	unused := Finding{ID: ATS, Status: Pass, Meaning: "These GPUs send addresses as they are; TB and DT of the ports do not matter to them."}
	used := Finding{ID: ATS, Status: Pass, Meaning: "These GPUs send translated addresses, which the ports above let pass. Leave DT and the IOMMU on when you clear ACS redirect."}
	blocked := Finding{ID: ATS, Status: Fail, Meaning: "A port above refuses requests that are already translated (TB): with ATS on, DMA of these GPUs ends in ACS violations.",
		Fix: "Take pci=noats off the command line, with which the kernel sets TB. Until the next reset of the ports, clear TB:"}
	redirected := Finding{ID: ATS, Status: Warn, Meaning: "A switch port redirects all requests of these GPUs to the root complex, translated ones included, because DT is off.",
		Fix: "Clear the redirect as P2P-ACS-REDIRECT says or, until the next reset of the ports, set DT:"}
	unread := Finding{ID: ATS, Status: Unknown, Meaning: "Whether these GPUs use ATS is not known.", Fix: "Run as root, so that sysfs shows all of configuration space."}
	fab := newFabric(f)
	for _, d := range gpus {
		to, ports := &unused, []*facts.Device(nil)
		switch {
		case d.Config == nil || d.Config.ATS == nil && !d.Config.ExtendedRead:
			to = &unread
		case d.Config.ATS == nil || !d.Config.ATS.Enabled:
		default:
			to = &used
			if ports = fab.controlled(d, pcicfg.TranslationBlocking, 0, d.Path); ports != nil {
				to = &blocked
			} else if ports = fab.controlled(d, pcicfg.RequestRedirect|pcicfg.EgressControl, pcicfg.DirectTranslated, fab.detours(d)); ports != nil {
				to = &redirected
			}
		}
		to.Devices = append(to.Devices, d.Address)
		to.Evidence = append(to.Evidence, atsEvidence(d))
		for _, p := range ports {
			to.Evidence = append(to.Evidence, acsEvidence(p))
			set := "0:2" // clear TB
			if to == &redirected {
				set = "40:40" // set DT
			}
			to.Fix = addLine(to.Fix, fmt.Sprintf("setpci -s %s ECAP_ACS+0x6.w=%s", p.Address, set))
		}
	}
	blocked.affect(fab.pairsWith(blocked.Devices)...)
	redirected.affect(fab.pairsWith(redirected.Devices)...)
	unused.Title = fmt.Sprintf("ATS not in use on %s", count(len(unused.Devices), "GPU"))
	used.Title = fmt.Sprintf("ATS in use on %s, and the ports let it pass", count(len(used.Devices), "GPU"))
	blocked.Title = fmt.Sprintf("ATS in use on %s behind a port that blocks it", count(len(blocked.Devices), "GPU"))
	redirected.Title = fmt.Sprintf("ATS in use on %s, and a port redirects it", count(len(redirected.Devices), "GPU"))
	unread.Title = fmt.Sprintf("ATS of %s could not be read", count(len(unread.Devices), "GPU"))
	return about(blocked, unread, redirected, used, unused)
}

// controlled returns those ports above d that have any of the controls on and
// none of the exempting ones.
func (fab *fabric) controlled(d *facts.Device, on, exempt pcicfg.ACSBits, ports []string) []*facts.Device {
	var out []*facts.Device
	for _, address := range d.Path {
		p := fab.Device(address)
		if p == nil || p.Config == nil || p.Config.ACS == nil || !slices.Contains(ports, address) {
			continue
		}
		if c := p.Config.ACS.Control; c&on != 0 && c&exempt == 0 {
			out = append(out, p)
		}
	}
	return out
}

// detours returns the ports on paths of d that meet below the root complex.
func (fab *fabric) detours(d *facts.Device) []string {
	var out []string
	for _, p := range fab.pairs {
		if p.Ancestor != "" && (p.A == d || p.B == d) {
			out = append(out, p.Ports...)
		}
	}
	return out
}

func atsEvidence(d *facts.Device) Evidence {
	ev := Evidence{What: "ATS capability of " + d.Address, Where: sysPCI + d.Address + "/config, extended capability 0xf", Raw: configLength(d) + " read"}
	switch c := d.Config; {
	case c == nil:
	case c.ATS != nil:
		ev.Where = fmt.Sprintf("%s%s/config %#x", sysPCI, d.Address, c.ATS.Offset+6)
		ev.Raw = onOff(c.ATS.Enabled)
	case c.ExtendedRead:
		ev.Raw = "absent"
	}
	return ev
}

// addLine adds a line to a fix that does not have it yet.
func addLine(fix, line string) string {
	switch {
	case fix == "":
		return line
	case slices.Contains(strings.Split(fix, "\n"), line):
		return fix
	}
	return fix + "\n" + line
}
