package checks

import (
	"fmt"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
)

var linkWidthDoc = Doc{
	ID:       LinkWidth,
	Question: "Do the links between the GPUs use all lanes that both their ends have?",
	Meaning:  "The narrowest link of a path bounds what a pair transfers. Lanes are trained once, when the machine starts: a link that lost some keeps what it has, idle or not.",
	Fix:      "Reseat the GPU and its riser and clean the contacts; look for a slot that shares its lanes with another or with an M.2 socket, and for the setting that splits it (bifurcation).",
	Outcomes: []Outcome{
		{Pass, "every link runs with the lanes that both ends have"},
		{Warn, "a link trained fewer lanes, or the slot gives a GPU four or fewer of its lanes"},
		{Skip, "there is no GPU link"},
		{Unknown, "the width of a link could not be read"},
	},
}

// fewLanes are as many as a slot of the chipset, an M.2 adapter or a mining
// riser has. Eight are what boards for two GPUs give each.
const fewLanes = 4

// linkWidth asks whether links run with all lanes of their ends.
func linkWidth(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	good := Finding{ID: LinkWidth, Status: Pass, Meaning: "No lane was lost in training."}
	narrow := Finding{
		ID: LinkWidth, Status: Warn,
		Meaning: "The link trained fewer lanes than both of its ends have, and carries that much less; it does not come back under load.",
		Fix: "Power off, reseat the GPU and its riser or cable, and clean the contacts.\n" +
			"If it stays: some slots give lanes to a second slot or an M.2 socket when that is in use, and the firmware setup" + ofBoard(f) + " can split a slot (bifurcation, x8x8).",
	}
	slot := Finding{
		ID: LinkWidth, Status: Warn,
		Meaning: "The slot has a quarter of the GPU's lanes or less, which bounds every transfer of its pairs.",
		Fix:     "Move the GPU to a slot of the CPU with 8 or 16 lanes.",
	}
	unread := Finding{
		ID: LinkWidth, Status: Unknown, Meaning: "How many lanes these links use is not known.",
		Fix: "Run as root with sysfs mounted at /sys.",
	}
	fab := newFabric(f)
	if fab.links == nil {
		return noLinks(LinkWidth, f)
	}
	for _, h := range fab.links {
		own := expressLink(h.end)
		switch {
		case h.Current.Width == 0 || h.Capable.Width == 0:
			unread.addLink(h)
		case h.Current.Width < h.Capable.Width:
			narrow.addLink(h)
			narrow.Evidence = append(narrow.Evidence, bounds(h))
		case own != nil && h.end.GPU && h.Capable.Width < own.MaxWidth && h.Capable.Width <= fewLanes:
			slot.addLink(h)
			slot.Evidence = append(slot.Evidence, Evidence{
				What: "lanes of " + h.Function, Where: fmt.Sprintf("%s%s/config %#x (LnkCap)", sysPCI, h.Function, h.end.Config.Express.Offset+0x0c),
				Raw: fmt.Sprintf("x%d", own.MaxWidth),
			})
		default:
			good.addLink(h)
		}
	}
	good.Title = fmt.Sprintf("%s with all lanes", count(len(good.Devices), "link"))
	narrow.Title = fmt.Sprintf("%s with lanes missing", count(len(narrow.Devices), "link"))
	slot.Title = fmt.Sprintf("%s in a slot of %d lanes or fewer", count(len(slot.Devices), "GPU"), fewLanes)
	unread.Title = fmt.Sprintf("width of %s not known", count(len(unread.Devices), "link"))
	return about(narrow, unread, slot, good)
}

// bounds says what lost lanes cost.
func bounds(h hop) Evidence {
	full := topology.Rate{Generation: h.Loaded.Generation, Width: h.Capable.Width}
	return Evidence{
		What: fmt.Sprintf("rate of %s to %s under load", h.Port, h.Function), Where: "computed from the above",
		Raw: fmt.Sprintf("%.1f GB/s at %s, %.1f GB/s at %s, before the overhead of packets", h.Loaded.GBps(), h.Loaded, full.GBps(), full),
	}
}

var linkSpeedDoc = Doc{
	ID:       LinkSpeed,
	Question: "Can the links between the GPUs run at the speed that both their ends support?",
	Meaning:  "Idle GPUs slow their links down and speed up under load, so a low speed at rest says nothing. A limit that was set, or a slow link between switches, stays.",
	Fix:      "Set the generation of the slot to Auto in the firmware setup. For a link between switches, reseat the cable or riser.",
	Outcomes: []Outcome{
		{Pass, "links run at full speed, or are those of idle GPUs"},
		{Warn, "software or firmware limits the speed of a link, or one that belongs to no GPU runs slower than its ends can"},
		{Skip, "there is no GPU link"},
		{Unknown, "the speed of a link could not be read"},
	},
}

// linkSpeed asks whether links can run at the speed of their ends.
func linkSpeed(f *facts.Facts) []Finding {
	if len(f.GPUs()) == 0 {
		return nil
	}
	good := Finding{ID: LinkSpeed, Status: Pass, Meaning: "The links run as fast as both of their ends can."}
	idle := Finding{
		ID: LinkSpeed, Status: Pass,
		Meaning: "Idle GPUs slow their links down to save power and speed up under load: only the speed during a transfer counts, which the measurement samples.",
	}
	held := Finding{
		ID: LinkSpeed, Status: Warn,
		Meaning: "The target speed of the link is below what both ends can do: firmware or software limits it, and it does not speed up under load.",
		Fix:     "Set the PCIe generation (link speed) of the slot to Auto in the firmware setup" + ofBoard(f) + "; if it was lowered because of a riser, use one made for the higher generation.",
	}
	slow := Finding{
		ID: LinkSpeed, Status: Warn,
		Meaning: "This link belongs to no GPU that could have slowed it down to rest; it trained below what both ends can do and bounds every pair across it.",
		Fix:     "Power off and reseat the card, cable or riser between the two; a link that trains low again has a bad contact or is too long for its speed.",
	}
	unread := Finding{
		ID: LinkSpeed, Status: Unknown, Meaning: "How fast these links run is not known.",
		Fix: "Run as root with sysfs mounted at /sys.",
	}
	fab := newFabric(f)
	if fab.links == nil {
		return noLinks(LinkSpeed, f)
	}
	for _, h := range fab.links {
		target := target(h)
		to := &good
		switch {
		case h.Current.Generation == 0 || h.Capable.Generation == 0:
			to = &unread
		case target != nil && target.generation < h.Capable.Generation:
			to = &held
		case h.Current.Generation >= h.Capable.Generation:
		case h.end != nil && h.end.GPU:
			to = &idle
		default:
			to = &slow
		}
		to.addLink(h)
		if to == &held {
			held.Evidence = append(held.Evidence, target.evidence())
		}
		if to == &slow || to == &idle {
			to.Evidence = append(to.Evidence, changed(h)...)
		}
	}
	good.Title = fmt.Sprintf("%s at full speed", count(len(good.Devices), "link"))
	idle.Title = fmt.Sprintf("%s below full speed, as those of idle GPUs are", count(len(idle.Devices), "link"))
	held.Title = fmt.Sprintf("%s limited to a lower speed", count(len(held.Devices), "link"))
	slow.Title = fmt.Sprintf("%s between ports below full speed", count(len(slow.Devices), "link"))
	unread.Title = fmt.Sprintf("speed of %s not known", count(len(unread.Devices), "link"))
	return about(held, slow, unread, idle, good)
}

// speedLimit is the Target Link Speed of one end.
type speedLimit struct {
	device     *facts.Device
	generation int
}

// target returns the lower target speed of a link's ends; nil when neither
// tells one.
func target(h hop) *speedLimit {
	var lowest *speedLimit
	for _, d := range []*facts.Device{h.port, h.end} {
		e := express(d)
		if e == nil || e.Link2 == nil || e.Link2.TargetSpeed == 0 {
			continue
		}
		if lowest == nil || e.Link2.TargetSpeed < lowest.generation {
			lowest = &speedLimit{d, e.Link2.TargetSpeed}
		}
	}
	return lowest
}

func (s *speedLimit) evidence() Evidence {
	return Evidence{
		What:  "target link speed of " + s.device.Address,
		Where: fmt.Sprintf("%s%s/config %#x (LnkCtl2)", sysPCI, s.device.Address, s.device.Config.Express.Offset+0x30),
		Raw:   fmt.Sprintf("Gen%d", s.generation),
	}
}

// changed returns what the port above a link says about changes of its speed
// or width.
func changed(h hop) []Evidence {
	l := expressLink(h.port)
	if l == nil || !l.BandwidthChanged && !l.AutonomousChange {
		return nil
	}
	raw := "hardware changed speed or width by itself, as to save power"
	if l.BandwidthChanged {
		raw = "speed or width was changed by software, or by hardware because the link was unreliable"
	}
	return []Evidence{{
		What: "link changes seen by " + h.Port, Where: fmt.Sprintf("%s%s/config %#x (LnkSta)", sysPCI, h.Port, h.port.Config.Express.Offset+0x12), Raw: raw,
	}}
}
