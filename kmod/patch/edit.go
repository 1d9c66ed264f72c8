package patch

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

// Edit is one change to one function of the driver's source.
type Edit struct {
	// ID names the edit for good, such as "P2P-E4-CREATE".
	ID string
	// Title says in a few words what the edit does.
	Title string
	// Why says what goes wrong without it.
	Why string
	// Replaces says what the stock driver does at this place.
	Replaces string
	// Seed is the section of the original article on the P2P driver that asks for the edit,
	// or "" for an edit that is not in it.
	Seed string
	// Role says how much depends on the edit. A [Mode] chooses by it.
	Role Role
	// Families are the GPU families whose peer-to-peer the edit serves; nil stands for all of them.
	Families []Family

	// Needs must all hold, or the edit is not needed.
	Needs []Test
	// Skip, if not empty, is the reason why the edit is left out: the [Mode] or the families asked for.
	Skip string
	// OtherGPUs says that Skip is set because none of the families asked for needs the edit.
	OtherGPUs bool
	// Mode is the mode that the edit was chosen by.
	Mode Mode

	// File is the slash-separated path in the tree.
	File string
	// Func is the C function whose body holds the anchor. Empty means the whole file,
	// for definitions outside of functions.
	Func string
	// Anchor must match exactly once in the body of Func.
	Anchor *regexp.Regexp
	// New replaces the match; it is expanded as by [regexp.Regexp.Expand].
	New string
	// Proofs must all hold in the body after the edit, and not all before it.
	Proofs []Proof
}

// Proof is what must hold in a function's body once it is edited.
type Proof struct {
	// What says it in words.
	What string
	// Pattern is matched against the body with its comments blanked.
	Pattern *regexp.Regexp
	// Count is how often Pattern must match.
	Count int
}

// Test is a question about the source whose answer decides whether an edit is needed.
type Test struct {
	// In is the file system asked; nil is the driver's tree.
	In fs.FS
	// File is the slash-separated path in it. A file that does not exist matches nothing.
	File string
	// Func limits the search to one function's body. Empty means the whole file.
	Func string
	// Pattern is searched for, comments blanked.
	Pattern *regexp.Regexp
	// Absent asks for no match instead of at least one.
	Absent bool
	// Else is the reason why the edit is not needed when the test fails.
	Else string
}

// Mode chooses which of the P2P edits are wanted.
type Mode string

const (
	// Auto takes every edit that the tree needs, those that guard included, but leaves to module
	// options what an option does just as well. See [Offered].
	Auto Mode = "auto"
	// Minimal takes only what peer-to-peer can't work without: from 580 on edits of two files.
	Minimal Mode = "minimal"
	// All also writes the defaults that Auto leaves to module options into the source.
	All Mode = "all"
	// None takes no P2P edit.
	None Mode = "none"
)

// Role says how much depends on an edit.
type Role string

const (
	// Core edits are what peer-to-peer can't work without.
	Core Role = "core"
	// Guard edits keep what peer-to-peer over BAR1 would break, or turn an error that nobody sees
	// into one that is reported.
	Guard Role = "guard"
	// Default edits set a default in the source that a module option sets just as well.
	Default Role = "default"
	// Kernel edits let the driver compile against a kernel. They have no part in peer-to-peer.
	Kernel Role = "kernel"
)

// P2P returns the peer-to-peer edits of all releases in the order they are applied, each with
// Skip set if mode leaves it out. If families are named, edits that serve none of them are left
// out too. [Plan] finds out which edits a tree needs.
func P2P(mode Mode, families ...Family) []Edit {
	edits := slices.Concat(rebarEdits(), halEdits(), staticBar1Edits(), gmmuEdits(), mappingEdits(),
		capsEdits(), fallbackEdits(), linkEdits(), overrideEdits(), uvmEdits())
	for i := range edits {
		e := &edits[i]
		e.Mode = mode
		e.Skip = mode.skip(e.Role)
		if e.Skip == "" && len(families) > 0 && !slices.ContainsFunc(families, e.Serves) {
			e.Skip, e.OtherGPUs = "it serves "+list(e.Families)+" only", true
		}
		if e.Role == Guard && len(families) == 1 && families[0] == Blackwell {
			e.Needs = append(slices.Clip(e.Needs), blackwellLacksBar1)
		}
	}
	return edits
}

// skip is the reason why the mode leaves out the edits of a role, or "".
func (m Mode) skip(role Role) string {
	switch {
	case m == None:
		return "no peer-to-peer edit was asked for"
	case m == Minimal && role == Guard:
		return "the minimal set was asked for"
	case m != All && role == Default:
		return "a module option does the same, see the load options"
	}
	return ""
}

// gone is the proof that nothing matches pattern any more.
func gone(what, pattern string) Proof {
	return Proof{What: what, Pattern: regexp.MustCompile(pattern)}
}

// once is the proof that pattern matches exactly once.
func once(what, pattern string) Proof {
	return Proof{What: what, Pattern: regexp.MustCompile(pattern), Count: 1}
}

// literal is the expression that matches text whatever its line breaks and indentation.
func literal(text string) string {
	words := strings.Fields(text)
	for i := range words {
		words[i] = regexp.QuoteMeta(words[i])
	}
	return strings.Join(words, `\s+`)
}
