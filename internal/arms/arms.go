// Package arms plans and compares the arms of an A/B run: the same measurement
// of the same GPUs in one boot, with one thing different between two arms: the
// driver's modules, the way that they choose over PCIe, or the access controls of
// the ports between the GPUs.
//
// [Choose] says which arms to run, [Compare] sets what came of them side by side.
// Both are pure; who runs the arms is package node of the init.
package arms

import (
	"fmt"
	"regexp"
	"slices"
)

// Module sets of the image.
const (
	P2P   = "p2p"   // with the peer-to-peer edits
	Stock = "stock" // as published
)

// Arm is one state of driver and ports in which the GPUs are measured.
type Arm struct {
	Set string `json:"set"` // of kernel modules: "p2p" or "stock"
	// Mailbox chooses the PCIe mailbox in place of what the set is loaded for.
	Mailbox bool `json:"mailbox,omitempty"`
	// NoACS clears the ACS redirect between GPUs while the arm is measured.
	NoACS bool `json:"no_acs,omitempty"`
}

// The parts of an arm's name behind the set.
const (
	mailbox = "-mailbox"
	noACS   = "-noacs"
)

var syntax = regexp.MustCompile(`^(p2p|stock)(` + mailbox + `)?(` + noACS + `)?$`)

// Parse reads an arm's name: a set, then -mailbox, then -noacs, both optional.
func Parse(name string) (Arm, error) {
	m := syntax.FindStringSubmatch(name)
	if m == nil {
		return Arm{}, fmt.Errorf("no arm %q: want p2p or stock, with %s or %s behind it, or both", name, mailbox, noACS)
	}
	return Arm{m[1], m[2] != "", m[3] != ""}, nil
}

// String returns the arm's name, as in "p2p-mailbox".
func (a Arm) String() string {
	name := a.Set
	if a.Mailbox {
		name += mailbox
	}
	if a.NoACS {
		name += noACS
	}
	return name
}

// SameDriver reports whether b needs no other modules or options than a.
func (a Arm) SameDriver(b Arm) bool { return a.Set == b.Set && a.Mailbox == b.Mailbox }

// Wish is what a run is asked to compare. With Set alone it compares nothing.
type Wish struct {
	// Arms are the arms by name. Without them they follow from the rest.
	Arms []Arm
	// Set is the set of the arm that the verdict is about.
	Set string
	// Drivers compares the module sets, and mailbox and BAR1 where that may work.
	Drivers bool
	// ACS compares redirect and no redirect.
	ACS bool
}

// Compares reports whether there is anything to compare.
func (w Wish) Compares() bool { return w.Arms != nil || w.Drivers || w.ACS }

// Machine is what the choice depends on.
type Machine struct {
	Sets []string // of the image
	// NoMailbox says why no pair of GPUs can have a working mailbox, empty if one
	// may.
	NoMailbox string
	// NoRedirect says why there is no ACS redirect between GPUs to clear, empty
	// if there is.
	NoRedirect string
}

// Left is an arm that is not run.
type Left struct {
	Arm string `json:"arm"`
	Why string `json:"why"`
}

// Choose returns the arms of a run in their order, and those that were asked for
// or would serve and are left out. The last arm is the one that the verdict is
// about: of those that follow from the machine, the one with the ports as they
// are. Arms with the same driver are neighbours, so that it is loaded once. If no
// arm is left to compare, what remains is one of w.Set, as if w were zero.
func Choose(w Wish, m Machine) (run []Arm, left []Left) {
	subject := Arm{Set: w.Set}
	if !w.Compares() {
		return []Arm{subject}, nil
	}
	wanted := w.Arms
	if wanted == nil {
		wanted = follow(w)
	}
	for i, a := range wanted {
		why := ""
		switch {
		case slices.Contains(wanted[:i], a):
			continue
		case !slices.Contains(m.Sets, a.Set):
			why = fmt.Sprintf("the image has no module set %s", a.Set)
		case a.Mailbox && w.Arms == nil && m.NoMailbox != "":
			why = m.NoMailbox // asked for by name, it is tried all the same
		case a.NoACS && m.NoRedirect != "":
			why = m.NoRedirect
		}
		if why != "" {
			left = append(left, Left{a.String(), why})
			continue
		}
		run = append(run, a)
	}
	if run == nil {
		run = []Arm{subject}
	}
	return run, left
}

// follow returns the arms that a wish without names stands for.
func follow(w Wish) []Arm {
	var all []Arm
	if w.Drivers {
		all = append(all, Arm{Set: Stock}, Arm{Set: P2P, Mailbox: true})
	}
	subject := Arm{Set: w.Set}
	if w.ACS {
		without := subject
		without.NoACS = true
		all = append(all, without)
	}
	return append(all, subject)
}
