package patch

import (
	"regexp"
	"slices"
	"strings"
)

// Family is a family of GPUs, by the name of its architecture.
type Family string

// The families that the open modules drive, oldest first.
const (
	Turing    Family = "turing"
	Ampere    Family = "ampere"
	Ada       Family = "ada"
	Hopper    Family = "hopper"
	Blackwell Family = "blackwell" // GeForce RTX 50 and RTX PRO: GB20x
)

// Families returns all families, oldest first.
func Families() []Family { return []Family{Turing, Ampere, Ada, Hopper, Blackwell} }

// beforeHopper are the families whose functions for BAR1 are stubs in the stock driver.
var beforeHopper = []Family{Turing, Ampere, Ada}

// blackwellLacksBar1 fails in the releases (from 590 on) in which BAR1 peer-to-peer is whole for
// Blackwell: edits that only guard others are then no reason to change the source.
var blackwellLacksBar1 = Test{
	File:    busHeader,
	Pattern: regexp.MustCompile(`\bPDB_PROP_KBUS_SUPPORT_BAR1_P2P_BY_DEFAULT\b`),
	Absent:  true,
	Else:    "BAR1 peer-to-peer is part of this release for Blackwell, module options are enough",
}

// knowsBlackwell holds in the releases (from 570 on) that drive GB20x.
var knowsBlackwell = Test{
	File:    "src/nvidia/generated/g_rmconfig_private.h",
	Pattern: regexp.MustCompile(`(?m)^#define IsGB20X\(pGpu\)`),
}

// Serves reports whether the peer-to-peer of a family gains by the edit.
func (e Edit) Serves(f Family) bool {
	return e.Families == nil || slices.Contains(e.Families, f)
}

// FamilyNeeds are the edits that matter for a GPU family. Which families a machine has is known
// only where the driver is loaded, hence a tree holds the edits for all.
type FamilyNeeds struct {
	Family Family `json:"family"`
	// Core are the edits in the tree that its peer-to-peer can't work without. Where there are none
	// and none is left out, the stock source has what it takes, and module options are enough.
	Core []string `json:"core"`
	// Guards are the edits in the tree that protect it or others.
	Guards []string `json:"guards"`
	// LeftOut are the core edits that the tree needs and the mode leaves out.
	LeftOut []string `json:"left_out,omitempty"`
}

// families tells for each family that the tree knows which edits matter.
func (r *Result) families() []FamilyNeeds {
	var all []FamilyNeeds
	for _, f := range Families() {
		if f == Blackwell && !r.knowsBlackwell {
			continue
		}
		n := FamilyNeeds{Family: f, Core: []string{}, Guards: []string{}}
		for _, o := range r.Edits {
			switch {
			case !o.Edit.Serves(f):
			case o.Edit.Role == Core && o.In():
				n.Core = append(n.Core, o.Edit.ID)
			case o.Edit.Role == Guard && o.In():
				n.Guards = append(n.Guards, o.Edit.ID)
			case o.Edit.Role == Core && o.LeftOut:
				n.LeftOut = append(n.LeftOut, o.Edit.ID)
			}
		}
		all = append(all, n)
	}
	return all
}

// list joins names for a sentence: "a, b and c".
func list[S ~string](names []S) string {
	var b strings.Builder
	for i, n := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			b.WriteString(" and ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(n))
	}
	return b.String()
}
