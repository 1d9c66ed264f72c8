package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
	"mkp2pimg/firmware-checks/topology"
)

// acsPort is one bridge on the path of at least one pair.
type acsPort struct {
	device *facts.Device
	// detours are the pairs that meet in a bridge above this port: a redirect
	// takes their traffic off the direct path. crossings meet only in the root
	// complex.
	detours, crossings [][2]string
	// translated says that the IOMMU translates for a GPU of a pair.
	translated bool
}

// pairs returns the pairs that suffer most from a redirect.
func (p acsPort) pairs() [][2]string {
	if p.detours != nil {
		return p.detours
	}
	return p.crossings
}

var acsRedirectDoc = Doc{
	ID:       ACSRedirect,
	Question: "Does an access control on the path of a pair send peer traffic to the root complex?",
	Meaning:  "A switch port that redirects takes the traffic of GPUs below one switch up to the root complex and back: about half the bandwidth, and loss where the IOMMU translates. On root ports with one GPU each it changes nothing, since their traffic crosses the root complex in any case.",
	Fix:      "Clear the redirecting controls of the ports named, with pci=config_acs= (kernel 6.12.23), pci=disable_acs_redir= (4.19, but not 6.11) or setpci; the finding has the words for its machine. " + biosPage + " says where firmware setups have ACS.",
	Outcomes: []Outcome{
		{Pass, "no port redirects, or only ports that the traffic passes through to the root complex anyway"},
		{Warn, "a switch port redirects, or a root port does in front of a translating IOMMU"},
		{Fail, "a switch port redirects into a translating IOMMU, or refuses peer requests (EC without RR)"},
		{Skip, "there is one GPU"},
		{Unknown, "the capability could not be read"},
	},
}

// acsRedirect asks whether an access control on the path of a pair redirects
// peer traffic to the root complex.
//
// Below a common switch upstream port that is a detour: up to the root complex
// and back down, where the switch alone would have done. Any redirecting
// downstream port between the two counts, as the kernel counts for its own
// peer-to-peer DMA (drivers/pci/p2pdma.c). A pair that meets only in the root
// complex takes that way in any case; then a redirect matters only when an
// IOMMU there translates.
func acsRedirect(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	switch len(gpus) {
	case 0:
		return nil
	case 1:
		return []Finding{{
			ID: ACSRedirect, Status: Skip, Title: "one GPU, no path to a second one to check", Devices: addresses(gpus),
			Meaning: "ACS redirect matters on the ports between two GPUs.",
		}}
	}
	ports := acsPorts(f)
	if ports == nil {
		return []Finding{{
			ID: ACSRedirect, Status: Pass, Title: "no port between the GPUs", Devices: addresses(gpus),
			Evidence: []Evidence{{What: "bridges above the GPUs", Where: sysPCI + " link targets", Raw: "none"}},
			Meaning:  "The GPUs sit on a root bus, with no port whose access control could redirect their traffic.",
		}}
	}
	var refusing, detours, crossing, unread, clean []acsPort
	for _, p := range ports {
		switch cfg := p.device.Config; {
		case cfg == nil || cfg.ACS == nil && !cfg.ExtendedRead:
			unread = append(unread, p)
		case cfg.ACS == nil || cfg.ACS.Control&pcicfg.Redirecting == 0:
			clean = append(clean, p)
		case p.detours != nil && refuses(cfg.ACS):
			refusing = append(refusing, p)
		case p.detours != nil:
			detours = append(detours, p)
		default:
			crossing = append(crossing, p)
		}
	}
	var out []Finding
	if refusing != nil {
		out = append(out, acsRefusing(f, refusing))
	}
	if detours != nil {
		out = append(out, acsDetours(f, detours))
	}
	if crossing != nil {
		out = append(out, acsCrossing(f, crossing))
	}
	if unread != nil {
		found := acsFinding(unread)
		found.Status = Unknown
		found.Title = fmt.Sprintf("ACS of %s could not be read", count(len(unread), "port"))
		found.Meaning = "Whether these ports redirect peer traffic to the root complex is not known."
		found.Fix = "Run as root, so that sysfs shows all of configuration space."
		out = append(out, found)
	}
	if out == nil {
		found := acsFinding(clean)
		found.Status = Pass
		found.Title = fmt.Sprintf("no ACS redirect on the %s between GPUs", count(len(clean), "port"))
		found.Meaning = "Peer traffic takes the shortest path that the fabric has."
		out = append(out, found)
	}
	return out
}

// acsPorts returns the ports on the paths of all pairs, by address.
func acsPorts(f *facts.Facts) []acsPort {
	byAddress := map[string]*acsPort{}
	for _, pair := range topology.New(f).Pairs() {
		translated := translates(f, pair.A) || translates(f, pair.B)
		for _, address := range pair.Ports {
			d := f.Device(address)
			if d == nil {
				d = &facts.Device{Address: address} // named in a path, gone from the bus
			}
			p := byAddress[address]
			if p == nil {
				p = &acsPort{device: d}
				byAddress[address] = p
			}
			ends := [2]string{pair.A.Address, pair.B.Address}
			if pair.Ancestor != "" {
				p.detours = append(p.detours, ends)
			} else {
				p.crossings = append(p.crossings, ends)
			}
			p.translated = p.translated || translated
		}
	}
	var ports []acsPort
	for _, d := range f.Devices {
		if p := byAddress[d.Address]; p != nil {
			ports = append(ports, *p)
			delete(byAddress, d.Address)
		}
	}
	for _, address := range slices.Sorted(maps.Keys(byAddress)) {
		ports = append(ports, *byAddress[address])
	}
	return ports
}

// refuses reports whether a port answers peer requests with ACS violations:
// egress control acts on requests to the ports in its vector, and without
// redirect it blocks them (PCIe 6.0 table 6-11).
func refuses(a *pcicfg.ACS) bool {
	return a.Control&(pcicfg.EgressControl|pcicfg.RequestRedirect) == pcicfg.EgressControl && (len(a.Egress) > 0 || a.EgressBits == 0)
}

func acsRefusing(f *facts.Facts, ports []acsPort) Finding {
	found := acsFinding(ports)
	found.Status = Fail
	found.Title = fmt.Sprintf("ACS egress control refuses peer requests on %s", count(len(ports), "switch port"))
	found.Meaning = "Egress control without redirect (EC without RR) answers requests to the ports in its vector with an ACS violation: transfers between GPUs below these ports fail."
	found.Fix = acsFix(f, ports)
	return found
}

func acsDetours(f *facts.Facts, ports []acsPort) Finding {
	found := acsFinding(ports)
	found.Status = Warn
	found.Title = fmt.Sprintf("ACS redirect on %s between GPUs", count(len(ports), "switch port"))
	found.Meaning = "Peer traffic goes up to the root complex and back down instead of straight through the switch: about half the bandwidth, and some root complexes do not send it back at all."
	if anyTranslated(ports) {
		found.Status = Fail
		found.Meaning = "Peer traffic is sent up to the root complex, where the IOMMU translates it: addresses of a peer's BAR fault or are lost there."
	}
	found.Evidence = append(found.Evidence, acsOrigin(f))
	found.Fix = acsFix(f, ports)
	return found
}

func acsCrossing(f *facts.Facts, ports []acsPort) Finding {
	found := acsFinding(ports)
	found.Evidence = append(found.Evidence, acsOrigin(f))
	found.Status = Pass
	found.Title = fmt.Sprintf("ACS redirect on %s, without effect on the path", count(len(ports), "port"))
	found.Meaning = "These GPUs meet only in the root complex, which their traffic crosses with or without redirect."
	if anyTranslated(ports) {
		found.Status = Warn
		found.Title = fmt.Sprintf("ACS redirect on %s in front of a translating IOMMU", count(len(ports), "port"))
		found.Meaning = "Redirected peer requests are translated by the IOMMU, which drops them or faults."
		found.Fix = "Stop the IOMMU from translating as P2P-IOMMU says; after that the redirect is harmless here."
	}
	return found
}

func anyTranslated(ports []acsPort) bool {
	return slices.ContainsFunc(ports, func(p acsPort) bool { return p.translated })
}

// acsFinding fills in what the findings of the family share.
func acsFinding(ports []acsPort) Finding {
	found := Finding{ID: ACSRedirect}
	for _, p := range ports {
		found.Devices = append(found.Devices, p.device.Address)
		found.Evidence = append(found.Evidence, acsEvidence(p.device))
		found.affect(p.pairs()...)
	}
	return found
}

func acsEvidence(d *facts.Device) Evidence {
	ev := Evidence{
		What:  "ACS control of " + d.Address,
		Where: sysPCI + d.Address + "/config, extended capability 0xd",
		Raw:   configLength(d) + " read",
	}
	if d.Config == nil || d.Config.ACS == nil && !d.Config.ExtendedRead {
		return ev
	}
	port := "port"
	if d.Config.Express != nil {
		port = d.Config.Express.Port.String()
	}
	ev.What = fmt.Sprintf("ACS control of %s %s", port, d.Address)
	if acs := d.Config.ACS; acs != nil {
		ev.Where = fmt.Sprintf("%s%s/config %#x", sysPCI, d.Address, acs.Offset+6)
		ev.Raw = fmt.Sprintf("%#04x (%s)", uint16(acs.Control), acs.Control)
		if acs.Control&pcicfg.EgressControl != 0 && acs.EgressBits > 0 {
			ev.Raw += fmt.Sprintf(", ports in the egress control vector: %v", acs.Egress)
		}
	} else {
		ev.Raw = "no ACS capability"
	}
	return ev
}

// acsFix gives the kernel parameter and the commands that clear the redirecting
// controls of ports, and only those: DT, which address translation services
// need, stays.
func acsFix(f *facts.Facts, ports []acsPort) string {
	var addresses, each, setpci []string
	for _, p := range ports {
		a := p.device.Address
		addresses = append(addresses, a)
		each = append(each, clearRedirect+"@"+a)
		setpci = append(setpci, fmt.Sprintf("setpci -s %s ECAP_ACS+0x6.w=0:%x", a, uint16(pcicfg.Redirecting)))
	}
	var out []string
	const quotes = "Keep the quotes in the boot loader's file: to GRUB a semicolon ends the command."
	// The lists are separated by semicolons: a comma would end the option.
	redir := fmt.Sprintf("\"pci=disable_acs_redir=%s\"", strings.Join(addresses, ";"))
	switch release := f.Kernel.Release; {
	case !since(release, 4, 19):
		out = append(out, fmt.Sprintf("Kernel %s has no parameter for this; 4.19 is the first that has.", release))
	case misreadsACS(release):
		out = append(out, fmt.Sprintf("As far as its version tells, kernel %s misreads the parameters for this and gives the bits back to the firmware: take 6.12.23, 6.13.11, 6.14.2, 6.15 or a later one of their series.", release))
	case since(release, 6, 12):
		out = append(out, fmt.Sprintf("Boot with \"pci=config_acs=%s\" (kernel 6.12.23 and later)", strings.Join(each, ";")),
			"or with "+redir+" (kernels 4.19 to 6.10 too)", quotes)
	default:
		out = append(out, "Boot with "+redir+" (kernels 4.19 to 6.10, and from 6.12.23 on)", quotes)
	}
	if len(f.IOMMU.Units) == 0 {
		out = append(out, "Or switch ACS off in the firmware setup"+ofBoard(f)+", where it has such an item: no IOMMU is in use, so the kernel did not switch it on.", whereInSetup(f, acsItem))
	}
	out = append(out, "For the running kernel, until the next reset of the port (mkp2pimg acs --clear does the same, --restore takes it back):")
	return strings.Join(append(out, setpci...), "\n")
}

// clearRedirect is the bit string of pci=config_acs= that clears RR, CR and EC
// and leaves the rest as the firmware set it; its last character is bit 0, SV.
const clearRedirect = "0x00xx"

// misreadsACS reports whether a kernel has config_acs and disable_acs_redir as
// 6.11 introduced and changed them: it takes one device only, and restores what
// the firmware set instead of clearing. Commit 9cf8a952d57b, in 6.15 and in the
// stable series as below, put that right.
func misreadsACS(release string) bool {
	for _, fixed := range []struct{ major, minor, patch int }{{6, 12, 23}, {6, 13, 11}, {6, 14, 2}} {
		if since(release, fixed.major, fixed.minor) && !since(release, fixed.major, fixed.minor+1) {
			return !sincePatch(release, fixed.major, fixed.minor, fixed.patch)
		}
	}
	return since(release, 6, 11) && !since(release, 6, 12)
}

// acsOrigin says who switched the redirect on. The kernel asks for SV, RR, CR
// and UF on every port as soon as it finds an IOMMU that it will use
// (pci_request_acs in drivers/iommu); the type of the domains, and so iommu=pt,
// comes later and changes nothing about it. The AMD driver asks before it looks
// at amd_iommu=off.
func acsOrigin(f *facts.Facts) Evidence {
	raw := "the firmware or a tool: no IOMMU is in use, for which the kernel would"
	switch {
	case !f.IOMMU.Known:
		raw = "not known: the state of the IOMMU could not be read"
	case len(f.IOMMU.Units) > 0:
		raw = "the kernel, on every port that can, because an IOMMU is in use; iommu=pt does not change that"
	case slices.Contains(f.Firmware.ACPITables, "IVRS") && hasOption(f, "amd_iommu", "off") && !hasOption(f, "iommu", "off"):
		raw = "the kernel, because the firmware has an AMD IOMMU: amd_iommu=off comes too late to stop that, iommu=off does not"
	}
	return Evidence{What: "who switches ACS on", Where: "/sys/class/iommu, /proc/cmdline", Raw: raw}
}

// hasOption reports whether a parameter is on the command line with an option.
func hasOption(f *facts.Facts, name, option string) bool {
	return slices.ContainsFunc(parameters(f), func(p parameter) bool {
		return p.name == name && slices.Contains(p.options(), option)
	})
}
