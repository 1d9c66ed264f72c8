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
	Fix:      "Clear the redirecting controls of the ports named, with pci=config_acs= (kernel 6.12), pci=disable_acs_redir= (4.19) or setpci; the finding has the words for its machine.",
	Outcomes: []Outcome{
		{Pass, "no port redirects, or only ports that the traffic passes through to the root complex anyway"},
		{Warn, "a switch port redirects, or a root port does in front of a translating IOMMU"},
		{Fail, "a switch port redirects into a translating IOMMU"},
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
	var detours, crossing, unread, clean []acsPort
	for _, p := range ports {
		switch cfg := p.device.Config; {
		case cfg == nil || cfg.ACS == nil && !cfg.ExtendedRead:
			unread = append(unread, p)
		case cfg.ACS == nil || cfg.ACS.Control&pcicfg.Redirecting == 0:
			clean = append(clean, p)
		case p.detours != nil:
			detours = append(detours, p)
		default:
			crossing = append(crossing, p)
		}
	}
	var out []Finding
	if detours != nil {
		out = append(out, acsDetours(f, detours))
	}
	if crossing != nil {
		out = append(out, acsCrossing(crossing))
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

func acsDetours(f *facts.Facts, ports []acsPort) Finding {
	found := acsFinding(ports)
	found.Status = Warn
	found.Title = fmt.Sprintf("ACS redirect on %s between GPUs", count(len(ports), "switch port"))
	found.Meaning = "Peer traffic goes up to the root complex and back down instead of straight through the switch: about half the bandwidth, and some root complexes do not send it back at all."
	if anyTranslated(ports) {
		found.Status = Fail
		found.Meaning = "Peer traffic is sent up to the root complex, where the IOMMU translates it: addresses of a peer's BAR fault or are lost there."
	}
	found.Fix = acsFix(f, ports)
	return found
}

func acsCrossing(ports []acsPort) Finding {
	found := acsFinding(ports)
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
		for _, pair := range p.pairs() {
			if !slices.Contains(found.Pairs, pair) {
				found.Pairs = append(found.Pairs, pair)
			}
		}
	}
	slices.SortFunc(found.Pairs, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
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
	} else {
		ev.Raw = "no ACS capability"
	}
	return ev
}

// acsFix gives the kernel parameter and the commands that clear the redirecting
// controls of ports, and only those: DT, which address translation services
// need, stays.
func acsFix(f *facts.Facts, ports []acsPort) string {
	var addresses, setpci []string
	for _, p := range ports {
		addresses = append(addresses, p.device.Address)
		setpci = append(setpci, fmt.Sprintf("setpci -s %s ECAP_ACS+0x6.w=0:%x", p.device.Address, uint16(pcicfg.Redirecting)))
	}
	list := strings.Join(addresses, ";")
	var lines []string
	// The list is separated by semicolons: a comma would end the option. 6.11, the
	// first kernel with config_acs, does not take several addresses; the series 6.12
	// has the fix (commit 9cf8a952d57b).
	if since(f.Kernel.Release, 6, 12) {
		var each []string
		for _, a := range addresses {
			each = append(each, clearRedirect+"@"+a)
		}
		lines = append(lines, fmt.Sprintf("Boot with \"pci=config_acs=%s\" (kernel 6.12 and later)", strings.Join(each, ";")))
	}
	if since(f.Kernel.Release, 4, 19) {
		word := "Boot"
		if lines != nil {
			word = "or"
		}
		lines = append(lines, fmt.Sprintf("%s with \"pci=disable_acs_redir=%s\" (kernel 4.19 and later)", word, list))
	}
	lines = append(lines, "For the running kernel, until the next reset of the port:")
	return strings.Join(append(lines, setpci...), "\n")
}

// clearRedirect is the bit string of pci=config_acs= that clears RR, CR and EC
// and keeps the rest; its last character is bit 0, SV.
const clearRedirect = "0x00xx"
