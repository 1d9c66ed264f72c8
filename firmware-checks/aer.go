package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/pcicfg"
)

var linkErrorsDoc = Doc{
	ID:       LinkErrors,
	Question: "Have the GPUs or the ports above them reported PCIe errors?",
	Meaning:  "Correctable errors are packets sent again: many of them cost bandwidth and announce worse. Errors that cannot be corrected lose data or the link.",
	Fix:      "Reseat the card, replace the riser or cable, or lower the generation of the slot. Malformed packets point to P2P-MAX-PAYLOAD, ACS violations to P2P-ACS-REDIRECT and P2P-ATS.",
	Outcomes: []Outcome{
		{Pass, "none, or a few corrected ones"},
		{Warn, "many corrected errors of the link, or any that was not corrected"},
		{Skip, "none of the functions reports errors"},
		{Unknown, "neither the kernel's counts nor configuration space could be read"},
	},
}

// manyErrors are more corrected errors than a link in order gathers while a
// machine is up.
const manyErrors = 100

// linkKinds are the corrected errors of a bad link, as the kernel abbreviates
// them (aer_correctable_error_string in linux/drivers/pci/pcie/aer.c). Others,
// such as NonFatalErr for a request that nobody claimed, say nothing about it.
var linkKinds = []string{"RxErr", "BadTLP", "BadDLLP", "Rollover", "Timeout"}

// linkErrors asks whether functions above GPUs, and GPUs, reported errors.
func linkErrors(f *facts.Facts) []Finding {
	gpus := f.GPUs()
	if len(gpus) == 0 {
		return nil
	}
	good := Finding{ID: LinkErrors, Status: Pass, Meaning: "The links between these GPUs carried their packets without trouble so far."}
	storm := Finding{
		ID: LinkErrors, Status: Warn,
		Meaning: "Packets were corrupted on the link and sent again, which costs bandwidth and grows with load; such a link may drop to a lower speed or fail.",
		Fix:     "Power off, reseat the card and clean its contacts, replace the riser or cable.\nIf that does not help, lower the PCIe generation of the slot by one in the firmware setup" + ofBoard(f) + ".",
	}
	lost := Finding{
		ID: LinkErrors, Status: Warn,
		Meaning: "Errors that the hardware could not correct were counted since the machine started: requests were lost or refused.",
		Fix:     "Note the counts, run a transfer, and compare: growing counts have to do with the transfer.",
	}
	unread := Finding{
		ID: LinkErrors, Status: Unknown, Meaning: "Whether the links had errors is not known.",
		Fix: "Run as root, so that sysfs shows all of configuration space; boot without pci=noaer.",
	}
	for _, d := range above(f) {
		to := errorsOf(d)
		if to == "" {
			continue // does not report errors
		}
		found := map[errorState]*Finding{errorsNone: &good, errorsStorm: &storm, errorsLost: &lost, errorsUnread: &unread}[to]
		found.Devices = append(found.Devices, d.Address)
		found.Evidence = append(found.Evidence, errorEvidence(d))
		if to == errorsLost {
			for _, see := range causesOf(d) {
				found.Fix = addLine(found.Fix, see)
			}
		}
		if to == errorsLost || to == errorsStorm {
			found.Evidence = append(found.Evidence, errorLog(f, d)...)
		}
	}
	fab := newFabric(f)
	for _, found := range []*Finding{&storm, &lost} {
		for _, p := range fab.pairs {
			if slices.ContainsFunc(fab.through(p), func(d *facts.Device) bool { return slices.Contains(found.Devices, d.Address) }) {
				found.affect(ends(p))
			}
		}
	}
	good.Title = fmt.Sprintf("no PCIe errors to speak of on %s", count(len(good.Devices), "function"))
	storm.Title = fmt.Sprintf("many corrected PCIe errors on %s", count(len(storm.Devices), "function"))
	lost.Title = fmt.Sprintf("uncorrected PCIe errors on %s", count(len(lost.Devices), "function"))
	unread.Title = fmt.Sprintf("PCIe errors of %s not known", count(len(unread.Devices), "function"))
	out := about(lost, storm, unread, good)
	if out == nil {
		return []Finding{{
			ID: LinkErrors, Status: Skip, Title: "no function reports PCIe errors", Devices: addresses(gpus),
			Meaning: "Neither the GPUs nor the ports above them have Advanced Error Reporting.",
		}}
	}
	return out
}

// above returns the GPUs and the bridges above them, in the order of the facts.
func above(f *facts.Facts) []*facts.Device {
	var out []*facts.Device
	for i := range f.Devices {
		d := &f.Devices[i]
		if d.GPU || slices.ContainsFunc(f.GPUs(), func(g *facts.Device) bool { return slices.Contains(g.Path, d.Address) }) {
			out = append(out, d)
		}
	}
	return out
}

// errorState is what a function's errors amount to, "" when it reports none at
// all.
type errorState string

const (
	errorsNone   errorState = "none"
	errorsStorm  errorState = "storm"
	errorsLost   errorState = "lost"
	errorsUnread errorState = "unread"
)

// noise is an error that every scan of the bus for absent functions can leave.
const noise = pcicfg.UncorrectableUnsupportedRequest

func errorsOf(d *facts.Device) errorState {
	if c := d.AER; c != nil {
		corrected := uint64(0)
		for _, kind := range linkKinds {
			corrected += c.Correctable.Kinds[kind]
		}
		switch {
		case c.NonFatal.Total > 0 || c.Fatal.Total > 0:
			return errorsLost
		case corrected >= manyErrors:
			return errorsStorm
		}
		return errorsNone
	}
	switch c := d.Config; {
	case c == nil || c.AER == nil && !c.ExtendedRead:
		return errorsUnread
	case c.AER == nil:
		return ""
	case c.AER.UncorrectableStatus&^noise != 0:
		return errorsLost
	}
	return errorsNone
}

// errorEvidence returns the kernel's counts, or else the status registers, which
// hold what was not yet cleared.
func errorEvidence(d *facts.Device) Evidence {
	if c := d.AER; c != nil {
		return Evidence{
			What: "PCIe errors counted at " + d.Address, Where: sysPCI + d.Address + "/aer_dev_{correctable,nonfatal,fatal}",
			Raw: fmt.Sprintf("%s corrected, %s non-fatal, %s fatal", counted(c.Correctable), counted(c.NonFatal), counted(c.Fatal)),
		}
	}
	ev := Evidence{What: "PCIe error status of " + d.Address, Where: sysPCI + d.Address + "/config, extended capability 0x1", Raw: configLength(d) + " read"}
	if d.Config != nil && d.Config.AER != nil {
		a := d.Config.AER
		ev.Where = fmt.Sprintf("%s%s/config %#x and %#x", sysPCI, d.Address, a.Offset+0x04, a.Offset+0x10)
		ev.Raw = fmt.Sprintf("uncorrectable %s, correctable %s", a.UncorrectableStatus, a.CorrectableStatus)
	}
	return ev
}

// counted writes "1204 (BadTLP 1200, Timeout 4)".
func counted(c facts.AERCounter) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(c.Kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, c.Kinds[kind]))
	}
	if kinds == nil {
		return fmt.Sprint(c.Total)
	}
	return fmt.Sprintf("%d (%s)", c.Total, strings.Join(kinds, ", "))
}

// uncorrected are the errors that point to another finding, with their bit in
// the status register and the kernel's abbreviation.
var uncorrected = []struct {
	bit  pcicfg.Hex
	kind string
	see  string
}{
	{pcicfg.UncorrectableACSViolation, "ACSViol", "ACS violations: a port refused requests, see P2P-ACS-REDIRECT and P2P-ATS."},
	{pcicfg.UncorrectableMalformed, "MalfTLP", "Malformed packets: see P2P-MAX-PAYLOAD."},
	{pcicfg.UncorrectableCompletionTimeout, "CmpltTO", "Completion timeouts: reads were not answered, as when the IOMMU drops them, see P2P-IOMMU, or a link is down."},
}

// causesOf says what the kinds of errors at d point to.
func causesOf(d *facts.Device) []string {
	var out []string
	for _, u := range uncorrected {
		switch {
		case d.AER != nil && d.AER.NonFatal.Kinds[u.kind]+d.AER.Fatal.Kinds[u.kind] > 0,
			d.AER == nil && d.Config.AER.UncorrectableStatus&u.bit != 0:
			out = append(out, u.see)
		}
	}
	return out
}

// mostLines of the log are quoted for one device.
const mostLines = 3

// errorLog returns the first lines that the kernel logged about errors of d.
func errorLog(f *facts.Facts, d *facts.Device) []Evidence {
	var out []Evidence
	for _, line := range f.KernelLog {
		if len(out) < mostLines && strings.Contains(line, d.Address) && (strings.Contains(line, "AER") || strings.Contains(line, "PCIe Bus Error")) {
			out = append(out, Evidence{What: "kernel log", Where: "/dev/kmsg", Raw: line})
		}
	}
	return out
}
