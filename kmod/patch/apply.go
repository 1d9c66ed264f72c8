package patch

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
)

// body finds the text that the edit of o may touch, or refuses the edit.
func (r *Result) body(f *file, o *Outcome) (body span, ok bool) {
	if o.Edit.Func == "" {
		return span{0, len(f.new)}, true
	}
	body, err := findBody(f.new, o.Edit.Func)
	if err != nil {
		*o = refuse(*o, fmt.Sprintf("%s: %v", o.Edit.File, err), nearestFuncs(f.new, o.Edit.Func))
	}
	return body, err == nil
}

// recheck proves an edit that the file says it has.
func (r *Result) recheck(f *file, o *Outcome) {
	body, ok := r.body(f, o)
	if !ok {
		return
	}
	code := blankComments(f.new, false)[body.start:body.end]
	if what := unproven(code, o.Edit.Proofs); what != "" {
		*o = refuse(*o, fmt.Sprintf("%s: the edit was made, but this does not hold any more: %s", place(o.Edit), what), nil)
		return
	}
	o.Status = AlreadyApplied
}

// apply carries out the edit of o on f, or refuses it.
func (r *Result) apply(f *file, o *Outcome) {
	e := o.Edit
	body, ok := r.body(f, o)
	if !ok {
		return
	}
	code := blankComments(f.new, false)[body.start:body.end]
	if unproven(code, e.Proofs) == "" {
		o.Status = AlreadyApplied
		return
	}
	where := place(e)
	matches := e.Anchor.FindAllSubmatchIndex(code, -1)
	if len(matches) != 1 {
		reason := fmt.Sprintf("%s: anchor %q matches %d times, want once", where, e.Anchor, len(matches))
		*o = refuse(*o, reason, nearestLines(f.new, body, e.Anchor.String()))
		return
	}
	m := matches[0]
	// Expanding over the text with its comments keeps the comments inside captures.
	text := f.new[body.start:body.end]
	insert := e.Anchor.Expand(nil, []byte(e.New), text, m)
	at := span{body.start + m[0], body.start + m[1]}
	edited := mark(slices.Concat(f.new[:at.start], insert, f.new[at.end:]), at.start, e.ID)
	grown := len(edited) - len(f.new)
	after := blankComments(edited, false)[body.start : body.end+grown]
	if what := unproven(after, e.Proofs); what != "" {
		*o = refuse(*o, fmt.Sprintf("%s: after the edit this does not hold: %s", where, what), nil)
		return
	}
	o.Status = Applied
	o.LineBefore = lineOf(f.old, r.originalOffset(e.File, at.start))
	r.shift(e.File, at, grown)
	o.at, o.grown = at.start, grown
	f.new = edited
}

// place names where an edit belongs.
func place(e Edit) string {
	if e.Func == "" {
		return e.File
	}
	return e.File + ": function " + e.Func
}

// mark ends the line at offset with a comment that names the edit.
func mark(text []byte, offset int, id string) []byte {
	end := len(text)
	if n := bytes.IndexByte(text[offset:], '\n'); n >= 0 {
		end = offset + n
	}
	return slices.Concat(text[:end], []byte(" // mkp2pimg "+id), text[end:])
}

// marked reports whether text holds the mark of the edit.
func marked(text []byte, id string) bool {
	return regexp.MustCompile(`(?m)// mkp2pimg ` + regexp.QuoteMeta(id) + `(?: |$)`).Match(text)
}

// unproven returns what of the first proof that does not hold in code, or "".
func unproven(code []byte, proofs []Proof) string {
	for _, p := range proofs {
		if len(p.Pattern.FindAllIndex(code, -1)) != p.Count {
			return p.What
		}
	}
	return ""
}

func refuse(o Outcome, reason string, candidates []string) Outcome {
	o.Status, o.Reason, o.Candidates = Refused, reason, candidates
	return o
}

// originalOffset translates an offset of the edited file into one of the file as it was.
func (r *Result) originalOffset(name string, offset int) int {
	f := r.src.files[name]
	shift := 0
	for _, o := range r.Edits {
		if o.Edit.File == name && o.Status == Applied && o.at <= offset {
			shift += o.grown
		}
	}
	return min(max(offset-shift, 0), len(f.old))
}

// shift moves the places of earlier edits that lie behind a new one.
func (r *Result) shift(name string, at span, grown int) {
	for i := range r.Edits {
		o := &r.Edits[i]
		if o.Edit.File == name && o.Status == Applied && o.at >= at.end {
			o.at += grown
		}
	}
}
