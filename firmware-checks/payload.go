package checks

import (
	"fmt"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
)

var maxPayloadDoc = Doc{
	ID:       MaxPayload,
	Question: "Do all functions on the path of a pair accept the packets that the GPUs send?",
	Meaning:  "Max Payload Size is set in every function by itself. One that receives a larger packet than its own setting must treat it as malformed, which is a fatal error; between devices below one switch nothing splits packets on the way.",
	Fix:      "Boot with pci=pcie_bus_safe, which gives every device what all devices below its root port support, or pci=pcie_bus_peer2peer, which gives all of them 128 bytes.",
	Outcomes: []Outcome{
		{Pass, "all functions on the path have one setting"},
		{Warn, "settings differ, and the root complex stands between"},
		{Fail, "a GPU sends larger packets than a port or the peer on the path accepts"},
		{Skip, "there is one GPU, or none is PCI Express"},
		{Unknown, "a setting could not be read"},
	},
}

// payloads is the Max Payload Size along a path, in bytes.
type payloads struct {
	devices []*facts.Device
	set     []int
	// most is what all of them support.
	most int
}

func (fab *fabric) payloads(p topology.Path) (out payloads, known bool) {
	out.devices = fab.through(p)
	for _, d := range out.devices {
		e := express(d)
		if e == nil {
			return out, false
		}
		out.set = append(out.set, e.MaxPayload)
		if out.most == 0 || e.MaxPayloadSupported < out.most {
			out.most = e.MaxPayloadSupported
		}
	}
	return out, true
}

// String returns "0000:01:00.0 256, 0000:00:01.1 128 bytes".
func (p payloads) String() string {
	var out []string
	for i, d := range p.devices {
		out = append(out, fmt.Sprintf("%s %d", d.Address, p.set[i]))
	}
	return strings.Join(out, ", ") + " bytes"
}

// maxPayload asks whether the packets of GPUs are accepted all along the way.
func maxPayload(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	fab := newFabric(f)
	good := Finding{ID: MaxPayload, Status: Pass, Meaning: "Packets pass every hop as the GPUs send them."}
	refused := Finding{
		ID: MaxPayload, Status: Fail,
		Meaning: "A function on the way accepts only smaller packets than a GPU sends, and must treat them as malformed: transfers end in fatal errors.",
		Fix:     "Boot with pci=pcie_bus_safe (or pci=pcie_bus_peer2peer, which gives every device 128 bytes), and remove other pci=pcie_bus_ options.\nIf it stays, set Maximum Payload (Max Payload Size) in the firmware setup" + ofBoard(f) + " to Auto.",
	}
	differ := Finding{
		ID: MaxPayload, Status: Warn,
		Meaning: "The two sides of the root complex have different settings: it may split packets between its ports, and is not required to.",
		Fix:     "Boot with pci=pcie_bus_peer2peer, which gives every device 128 bytes, and rely on measured transfers with verified data until then.",
	}
	unread := Finding{
		ID: MaxPayload, Status: Unknown, Meaning: "Whether every hop accepts the GPUs' packets is not known.",
		Fix: "Run as root, so that sysfs shows all of configuration space.",
	}
	sizes, better := map[int]bool{}, false
	for _, p := range fab.pairs {
		if conventional(p.A) || conventional(p.B) {
			continue
		}
		sizesOf, known := fab.payloads(p)
		to := &good
		switch {
		case !known:
			to = &unread
		case p.Ancestor != "" && uneven(sizesOf.set), uneven(side(p.A, sizesOf)), uneven(side(p.B, sizesOf)):
			to = &refused
		case uneven(sizesOf.set):
			to = &differ
		default:
			sizes[sizesOf.set[0]] = true
			better = better || sizesOf.set[0] < sizesOf.most
		}
		to.affect(ends(p))
		if known {
			to.Evidence = append(to.Evidence, Evidence{
				What: fmt.Sprintf("Max Payload Size from %s to %s", p.A.Address, p.B.Address), Where: "config of each, Device Control 7:5", Raw: sizesOf.String(),
			})
		} else {
			to.Evidence = append(to.Evidence, unreadAmong(sizesOf.devices)...)
		}
	}
	good.Title = fmt.Sprintf("Max Payload Size %s on every hop", bytesOf(sizes))
	if better {
		good.Meaning += " All of them support more: pci=pcie_bus_perf would raise it, for less overhead."
	}
	refused.Title = fmt.Sprintf("Max Payload Size too small for %s", count(len(refused.Pairs), "GPU pair"))
	differ.Title = fmt.Sprintf("Max Payload Size differs across the root complex between %s", count(len(differ.Pairs), "GPU pair"))
	unread.Title = fmt.Sprintf("Max Payload Size between %s not known", count(len(unread.Pairs), "GPU pair"))
	return aboutPairs(MaxPayload, f, refused, unread, differ, good)
}

// side returns the settings of a GPU and of the ports above it up to the root
// port.
func side(gpu *facts.Device, p payloads) []int {
	var set []int
	for i, d := range p.devices {
		if d == gpu || slices.Contains(gpu.Path, d.Address) {
			set = append(set, p.set[i])
		}
	}
	return set
}

func uneven(sizes []int) bool { return len(sizes) > 0 && slices.Min(sizes) != slices.Max(sizes) }

// bytesOf words a set of sizes: "128 or 256 bytes".
func bytesOf(sizes map[int]bool) string {
	var out []int
	for n := range sizes {
		out = append(out, n)
	}
	slices.Sort(out)
	words := strings.ReplaceAll(strings.Trim(fmt.Sprint(out), "[]"), " ", " or ")
	return words + " bytes"
}

// unreadAmong returns how much of configuration space was read of each device
// whose PCI Express capability is not known.
func unreadAmong(devices []*facts.Device) []Evidence {
	var out []Evidence
	for _, d := range devices {
		if express(d) == nil {
			out = append(out, Evidence{What: "configuration space of " + d.Address, Where: sysPCI + d.Address + "/config", Raw: configLength(d) + " read"})
		}
	}
	return out
}

// aboutPairs keeps the findings that concern a pair, or says that there is none
// to judge.
func aboutPairs(id ID, f *facts.Facts, findings ...Finding) []Finding {
	var out []Finding
	for _, found := range findings {
		if found.Pairs != nil {
			out = append(out, found)
		}
	}
	if out != nil {
		return out
	}
	if gpus := f.GPUs(); len(gpus) == 1 {
		return []Finding{{
			ID: id, Status: Skip, Title: "one GPU, no path to a second one", Devices: addresses(gpus), Meaning: "Two GPUs are needed for there to be a path.",
		}}
	}
	return noLinks(id, f)
}
