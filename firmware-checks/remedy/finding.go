package remedy

import (
	"fmt"
	"slices"
	"strings"

	checks "mkp2pimg/firmware-checks"
)

// Finding is [checks.ACSChanged]: what came of clearing the ports of a plan.
// before are the findings about the machine as it was: where the redirect did
// harm, that it is gone holds only until the machine starts anew, which is a
// warning.
func Finding(before []checks.Finding, plan Plan, done []Change, failure error) checks.Finding {
	found := checks.Finding{ID: checks.ACSChanged, Status: checks.Skip, Title: "no ACS redirect between GPUs to clear",
		Meaning: "Nothing was changed: the other findings are about the machine as it started."}
	var harm []checks.Finding
	for _, b := range before {
		found.StandIn = found.StandIn || b.StandIn
		if b.ID == checks.ACSRedirect && (b.Status == checks.Warn || b.Status == checks.Fail) {
			harm = append(harm, b)
		}
	}
	for _, p := range plan.Ports {
		found.Devices = append(found.Devices, p.Address)
		found.Evidence = append(found.Evidence, p.evidence(done))
	}
	switch changes := plan.Changes(); {
	case failure != nil:
		found.Status = checks.Warn
		found.Title = "the ACS redirect could not be cleared"
		found.Evidence = append([]checks.Evidence{{What: "clearing ACS", Raw: failure.Error()}}, found.Evidence...)
		found.Meaning = "The other findings are about the machine as it is now, which is as it started unless a port says otherwise."
		found.Fix = fixes(harm)
	case len(changes) > 0 && harm != nil:
		found.Status = checks.Warn
		found.Title = fmt.Sprintf("the ACS redirect of %d ports was cleared for this run", len(changes))
		found.Meaning = "The other findings hold with the redirect cleared. The machine starts with it, and has: " + titles(harm) + "."
		found.Fix = fixes(harm)
	case len(changes) > 0:
		found.Status = checks.Pass
		found.Title = fmt.Sprintf("the ACS redirect of %d ports was cleared for this run, where it did no harm", len(changes))
		found.Meaning = "The machine starts with the redirect on, without effect on the path between these GPUs."
	}
	return found
}

func titles(findings []checks.Finding) string {
	var out []string
	for _, f := range findings {
		out = append(out, f.Title)
	}
	return strings.Join(out, "; ")
}

func fixes(findings []checks.Finding) string {
	var out []string
	for _, f := range findings {
		if f.Fix != "" {
			out = append(out, f.Fix)
		}
	}
	return strings.Join(out, "\n")
}

// evidence is the state of a port before and, if it was changed, after.
func (p Port) evidence(done []Change) checks.Evidence {
	e := checks.Evidence{
		What:  strings.TrimSpace("ACS control of " + p.Kind + " " + p.Address),
		Where: fmt.Sprintf("/sys/bus/pci/devices/%s/config", p.Address),
		Raw:   p.Left,
	}
	if p.Register != 0 {
		e.Where = fmt.Sprintf("%s %#x", e.Where, p.Register)
		e.Raw = p.Before.String()
		if p.Left != "" {
			e.Raw += " left, " + p.Left
		}
	}
	if i := slices.IndexFunc(done, func(c Change) bool { return c.Port == p.Address }); i >= 0 {
		e.Raw = fmt.Sprintf("%s before, %s now", done[i].From, done[i].To)
	}
	return e
}
