package checks

import (
	"fmt"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

var atomicsDoc = Doc{
	ID:       Atomics,
	Question: "Would the ports between two GPUs carry atomic operations?",
	Meaning:  "Native atomics on a peer's memory need every switch port on the path to route AtomicOps. The driver offers none over PCIe BAR1 in any case.",
	Fix:      "Nothing is needed for copies and for code that asks for the atomics attribute of a pair.",
	Outcomes: []Outcome{
		{Pass, "every switch port on the path routes AtomicOps, or there is none"},
		{Warn, "a switch port does not route them, or blocks them"},
		{Skip, "there is one GPU, or none is PCI Express"},
		{Unknown, "a capability could not be read"},
	},
	Weightless: true,
}

// atomics asks whether the switches between GPUs route AtomicOps. Root ports are
// left out: the driver's BAR1 path sends none through them either.
func atomics(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	fab := newFabric(f)
	good := Finding{ID: Atomics, Status: Pass, Meaning: "The switches in between would carry AtomicOps. The driver offers no native atomics over PCIe BAR1 all the same."}
	blocked := Finding{
		ID: Atomics, Status: Warn,
		Meaning: "AtomicOps between these GPUs end at a port in between. Copies, loads and stores are not affected, and the driver offers no native atomics over PCIe BAR1 in any case.",
		Fix:     "Nothing, unless a program insists on native atomics between peers: then use GPUs with NVLink.",
	}
	unread := Finding{ID: Atomics, Status: Unknown, Meaning: "Whether AtomicOps pass between these GPUs is not known.", Fix: "Run as root, so that sysfs shows all of configuration space."}
	for _, p := range fab.pairs {
		if conventional(p.A) || conventional(p.B) {
			continue
		}
		to, state := &good, []string{}
		for _, d := range fab.through(p) {
			e := express(d)
			switch {
			case d.GPU:
			case e == nil, e.Version > 1 && (e.DeviceCapabilities2 == nil || e.DeviceControl2 == nil):
				to = &unread
				to.Evidence = append(to.Evidence, Evidence{What: "configuration space of " + d.Address, Where: sysPCI + d.Address + "/config", Raw: configLength(d) + " read"})
			case e.Port == pcicfg.RootPort:
			case e.DeviceCapabilities2 == nil: // version 1 knows no AtomicOps
				state = append(state, d.Address+" does not route them")
			case e.DeviceControl2.AtomicEgressBlock:
				state = append(state, d.Address+" blocks them")
			case !e.DeviceCapabilities2.AtomicRouting:
				state = append(state, d.Address+" does not route them")
			}
		}
		if to != &unread {
			raw := "every switch port routes them, or there is none"
			if len(state) > 0 {
				to, raw = &blocked, strings.Join(state, ", ")
			}
			to.Evidence = append(to.Evidence, Evidence{
				What:  fmt.Sprintf("AtomicOps from %s to %s", p.A.Address, p.B.Address),
				Where: "config of each switch port, Device Capabilities 2 bit 6 and Device Control 2 bit 7", Raw: raw,
			})
		}
		to.affect(ends(p))
	}
	good.Title = fmt.Sprintf("AtomicOps pass the switches between %s", count(len(good.Pairs), "GPU pair"))
	blocked.Title = fmt.Sprintf("AtomicOps do not pass between %s", count(len(blocked.Pairs), "GPU pair"))
	unread.Title = fmt.Sprintf("routing of AtomicOps between %s not known", count(len(unread.Pairs), "GPU pair"))
	return aboutPairs(Atomics, f, blocked, unread, good)
}
