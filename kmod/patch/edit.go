package patch

import (
	"io/fs"
	"regexp"
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

	// Needs must all hold, or the edit is not needed.
	Needs []Test
	// Skip, if not empty, is the reason why the chosen [Mode] leaves the edit out.
	Skip string

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
	// Auto takes every edit that the tree needs, but leaves to module options what
	// an option does just as well. See [Offered].
	Auto Mode = "auto"
	// Minimal takes only what peer-to-peer can't work without.
	Minimal Mode = "minimal"
	// All also writes the defaults that Auto leaves to module options into the source.
	All Mode = "all"
	// None takes no P2P edit.
	None Mode = "none"
)

// P2P returns the peer-to-peer edits of all releases in the order they are applied.
// [Plan] finds out which of them a tree needs.
func P2P(mode Mode) []Edit {
	if mode == None {
		return nil
	}
	var edits []Edit
	edits = append(edits, leaveToOption(mode, rebarEdits())...)
	edits = append(edits, halEdits()...)
	edits = append(edits, staticBar1Edits()...)
	edits = append(edits, gmmuEdits()...)
	edits = append(edits, mappingEdits()...)
	edits = append(edits, capsEdits()...)
	edits = append(edits, leaveOut(mode, fallbackEdits())...)
	edits = append(edits, leaveOut(mode, linkEdits())...)
	edits = append(edits, leaveToOption(mode, overrideEdits())...)
	edits = append(edits, leaveOut(mode, uvmEdits())...)
	return edits
}

func leaveToOption(mode Mode, edits []Edit) []Edit {
	if mode == All {
		return edits
	}
	for i := range edits {
		edits[i].Skip = "a module option does the same, see the load options"
	}
	return edits
}

func leaveOut(mode Mode, edits []Edit) []Edit {
	if mode != Minimal {
		return edits
	}
	for i := range edits {
		edits[i].Skip = "the minimal set was asked for"
	}
	return edits
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
