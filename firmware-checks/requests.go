package checks

import (
	"fmt"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

var orderingDoc = Doc{
	ID:       Ordering,
	Question: "May the GPUs mark their requests as relaxed in order?",
	Meaning:  "A write with that attribute may pass others that wait, which helps most where traffic of several sources meets. Transfers are right either way.",
	Fix:      "The kernel takes the permission away below root ports that mishandle the attribute; then leave it. Otherwise the firmware did, and the driver can be loaded with NVreg_EnablePCIERelaxedOrderingMode=1.",
	Outcomes: []Outcome{
		{Pass, "every GPU may"},
		{Warn, "a GPU may not"},
		{Skip, "the function is not PCI Express"},
		{Unknown, "the setting could not be read"},
	},
	Weightless: true,
}

// ordering asks whether GPUs may relax the order of their requests.
func ordering(f *facts.Facts) []Finding {
	return permissions(f, Ordering, permission{
		allowed: func(e *pcicfg.Express) (bool, string) {
			return e.RelaxedOrdering, fmt.Sprintf("%s, relaxed ordering %s", e.DeviceControl, onOff(e.RelaxedOrdering))
		},
		register: "Device Control 4",
		good:     "relaxed ordering allowed", goodMeaning: "A write of these GPUs may pass others that wait.",
		bad: "relaxed ordering not allowed", badMeaning: "Writes of these GPUs wait for those before them, also where order does not matter: a loss where several streams meet.",
		fix: "Leave it if the kernel says \"Disable Relaxed Ordering Attributes\": the root port mishandles it. Otherwise set Relaxed Ordering to Enabled in the firmware setup" + ofBoard(f) + ".",
	})
}

var tagsDoc = Doc{
	ID:       Tags,
	Question: "Can the GPUs have many reads on the way at once?",
	Meaning:  "A read keeps a tag until its data is back. With the 32 tags of five bits, reads of a peer far away are slower than its link; writes need none.",
	Fix:      "The kernel switches extended tags on wherever everything above a device supports them.",
	Outcomes: []Outcome{
		{Pass, "extended tags are on, or the GPU has none"},
		{Warn, "the GPU has them and they are off"},
		{Skip, "the function is not PCI Express"},
		{Unknown, "the setting could not be read"},
	},
	Weightless: true,
}

// tags asks whether GPUs use extended tags.
func tags(f *facts.Facts) []Finding {
	return permissions(f, Tags, permission{
		allowed: func(e *pcicfg.Express) (bool, string) {
			raw := fmt.Sprintf("%s, extended tags %s", e.DeviceControl, onOff(e.ExtendedTags))
			if c := e.DeviceControl2; c != nil && c.Tag10Requester {
				raw += ", 10-bit tags on"
			}
			return e.ExtendedTags || !e.ExtendedTagsSupported, raw
		},
		register: "Device Control 8",
		good:     "as many tags as the GPU has", goodMeaning: "Reads of a peer are not bounded by the tags of five bits.",
		bad: "extended tags off", badMeaning: "These GPUs have at most 32 reads on the way at once: reads of a peer can be slower than writes to it.",
		fix: "Something above the GPU does not support extended tags, or the firmware switched them off: set Extended Tag to Enabled (or Auto) in the firmware setup" + ofBoard(f) + ".",
	})
}

// permission is a setting of a GPU's own that costs speed when it is off.
type permission struct {
	// allowed says whether it is on, and words it.
	allowed                                 func(e *pcicfg.Express) (bool, string)
	register                                string
	good, goodMeaning, bad, badMeaning, fix string
}

func permissions(f *facts.Facts, id ID, p permission) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	good := Finding{ID: id, Status: Pass, Meaning: p.goodMeaning}
	bad := Finding{ID: id, Status: Warn, Meaning: p.badMeaning, Fix: p.fix}
	unread := Finding{ID: id, Status: Unknown, Meaning: "The setting of these GPUs is not known.", Fix: "Run as root, so that sysfs shows all of configuration space."}
	for _, d := range gpus {
		if conventional(d) {
			continue
		}
		to := &unread
		ev := Evidence{What: "configuration space of " + d.Address, Where: sysPCI + d.Address + "/config", Raw: configLength(d) + " read"}
		if e := express(d); e != nil {
			ok, raw := p.allowed(e)
			if to = &bad; ok {
				to = &good
			}
			ev = Evidence{What: "device control of " + d.Address, Where: fmt.Sprintf("%s%s/config %#x (%s)", sysPCI, d.Address, e.Offset+0x08, p.register), Raw: raw}
		}
		to.Devices = append(to.Devices, d.Address)
		to.Evidence = append(to.Evidence, ev)
	}
	bad.Pairs = newFabric(f).pairsWith(bad.Devices)
	good.Title = fmt.Sprintf("%s on %s", p.good, count(len(good.Devices), "GPU"))
	bad.Title = fmt.Sprintf("%s on %s", p.bad, count(len(bad.Devices), "GPU"))
	unread.Title = fmt.Sprintf("device control of %s not known", count(len(unread.Devices), "GPU"))
	out := about(bad, unread, good)
	if out == nil {
		return noLinks(id, f)
	}
	return out
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
