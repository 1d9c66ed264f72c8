package patch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Status is how an edit ended.
type Status string

const (
	// Applied means that the edit changed the text and its proofs hold.
	Applied Status = "applied"
	// AlreadyApplied means that the proofs held before anything was changed.
	AlreadyApplied Status = "already-applied"
	// NotNeeded means that a test of the edit fails in this tree; the reason says which.
	NotNeeded Status = "not-needed"
	// Refused means that the tree does not look as the edit expects.
	Refused Status = "refused"
)

// Result is the outcome of planning edits over a tree.
type Result struct {
	// Driver is the release that the tree's version.mk names, such as "535.261.03".
	Driver string
	// Edits are the outcomes in the order of the edits.
	Edits []Outcome

	src            *source
	knowsBlackwell bool
}

// Outcome is what became of one edit.
type Outcome struct {
	Edit   Edit
	Status Status
	// Reason says why the edit is not needed or refused.
	Reason string
	// LeftOut says that the tree needs the edit and [Edit.Skip] leaves it out.
	LeftOut bool
	// Evidence are the answers to the edit's tests, with the lines that gave them.
	Evidence []string
	// LineBefore is the 1-based line of the anchor in the file as it was.
	// Zero if there is none.
	LineBefore int
	// LineAfter is the 1-based line of the changed text in the file as it will be.
	LineAfter int
	// Candidates are the lines nearest to what was looked for ("12: text"), if refused.
	Candidates []string

	at    int // offset of the changed text in the edited file
	grown int // bytes that the edit added

	before, after []byte // the file, in the row of its edits
	lines         span   // the lines of before that the edit changed
}

// RefusedError reports the edits that do not fit the tree.
type RefusedError struct {
	Driver string
	Edits  []Outcome
}

func (e *RefusedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d edits do not fit the source of driver %s; nothing was changed", len(e.Edits), e.Driver)
	for _, o := range e.Edits {
		fmt.Fprintf(&b, "\n%s: %s", o.Edit.ID, o.Reason)
		for _, c := range o.Candidates {
			fmt.Fprintf(&b, "\n\tnearest: %s", c)
		}
	}
	return b.String()
}

// Plan works out the edits over tree without writing anything. If any edit is refused, the
// error is a [*RefusedError] and the result says what became of the others. There is no result
// if the error is a [*TreeError], or a [*ForkError]: peer-to-peer edits are not made on top of those
// of one of the [Forks].
func Plan(tree fs.FS, edits []Edit) (*Result, error) {
	driver, err := TreeVersion(tree)
	if err != nil {
		return nil, err
	}
	r := &Result{Driver: driver, src: newSource(tree)}
	if slices.ContainsFunc(edits, func(e Edit) bool { return e.Mode != "" && e.Mode != None }) {
		if err := r.recogniseFork(); err != nil {
			return nil, err
		}
	}
	if r.knowsBlackwell, _, err = r.src.ask(knowsBlackwell); err != nil {
		return nil, err
	}
	for _, e := range edits {
		o, err := r.plan(e)
		if err != nil {
			return nil, fmt.Errorf("edit %s: %w", e.ID, err)
		}
		r.Edits = append(r.Edits, o)
	}
	r.numberLines()
	return r, r.refused()
}

func (r *Result) plan(e Edit) (Outcome, error) {
	o := Outcome{Edit: e}
	f, err := r.src.file(e.File)
	if err != nil {
		return o, err
	}
	if marked(f.new.src, e.ID) {
		recheck(f, &o)
		return o, nil
	}
	for _, t := range e.Needs {
		holds, evidence, err := r.src.ask(t)
		if err != nil {
			return o, err
		}
		o.Evidence = append(o.Evidence, evidence)
		if !holds {
			o.Status, o.Reason = NotNeeded, t.Else
			return o, nil
		}
	}
	if e.Skip != "" {
		o.Status, o.Reason, o.LeftOut = NotNeeded, e.Skip, true
		return o, nil
	}
	if f.missing {
		return refuse(o, fmt.Sprintf("%s is not in the tree", e.File), nil), nil
	}
	r.apply(f, &o)
	return o, nil
}

func (r *Result) numberLines() {
	for i := range r.Edits {
		o := &r.Edits[i]
		if o.Status == Applied {
			o.LineAfter = lineOf(r.src.files[o.Edit.File].new.src, o.at)
		}
	}
}

func (r *Result) refused() error {
	var refused []Outcome
	for _, o := range r.Edits {
		if o.Status == Refused {
			refused = append(refused, o)
		}
	}
	if refused == nil {
		return nil
	}
	return &RefusedError{Driver: r.Driver, Edits: refused}
}

// Changed returns the paths that the edits change, sorted.
func (r *Result) Changed() []string {
	var names []string
	for name, f := range r.src.files {
		if !bytes.Equal(f.old.src, f.new.src) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
