package images

import (
	"slices"
	"strings"
)

// Plan is an entry of a boot menu: what the init is asked to do, by kernel
// parameters in place of some of the image's.
type Plan struct {
	ID         string // letters only: the name of a file in some menus
	Title      string
	Parameters []string // docs/parameters.md
}

// Plans are the entries of a boot menu in their order; the first is the one that
// is booted when nobody chooses.
var Plans = []Plan{
	{"full", "Full diagnosis: check, load the driver, measure", nil},
	{"check", "Checks only: no driver, no measurement", []string{"p2p.plan=check"}},
	{"ab", "Full diagnosis of the driver as published and with the edits, to compare", []string{"p2p.driver=ab"}},
	{"shell", "Shell", []string{"p2p.plan=shell"}},
}

// CommandLine are the kernel parameters of an image whose own are base.
func (p Plan) CommandLine(base []string) []string {
	name := func(parameter string) string {
		before, _, _ := strings.Cut(parameter, "=")
		return before
	}
	replaced := func(b string) bool {
		return slices.ContainsFunc(p.Parameters, func(a string) bool { return name(a) == name(b) })
	}
	return append(slices.DeleteFunc(slices.Clone(base), replaced), p.Parameters...)
}

// MenuSeconds is how long a boot menu waits for a person.
const MenuSeconds = 5
