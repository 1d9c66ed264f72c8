package patch

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
)

// body finds the text that the edit of o may touch, or refuses the edit.
func body(f *file, o *Outcome) (body span, ok bool) {
	if o.Edit.Func == "" {
		return span{0, len(f.new.src)}, true
	}
	body, err := f.new.findBody(o.Edit.Func)
	if err != nil {
		*o = refuse(*o, fmt.Sprintf("%s: %v", o.Edit.File, err), nearestFuncs(f.new, o.Edit.Func))
	}
	return body, err == nil
}

// recheck proves an edit that the file says it has.
func recheck(f *file, o *Outcome) {
	body, ok := body(f, o)
	if !ok {
		return
	}
	code := f.new.withoutComments()[body.start:body.end]
	if what := unproven(code, o.Edit.Proofs); what != "" {
		*o = refuse(*o, fmt.Sprintf("%s: the edit was made, but this does not hold any more: %s", place(o.Edit), what), nil)
		return
	}
	o.Status = AlreadyApplied
}

// apply carries out the edit of o on f, or refuses it.
func (r *Result) apply(f *file, o *Outcome) {
	e := o.Edit
	body, ok := body(f, o)
	if !ok {
		return
	}
	code := f.new.withoutComments()[body.start:body.end]
	if unproven(code, e.Proofs) == "" {
		o.Status = AlreadyApplied
		return
	}
	where := place(e)
	matches := e.Anchor.FindAllSubmatchIndex(code, -1)
	if len(matches) != 1 {
		reason := fmt.Sprintf("%s: anchor %q matches %d times, want once", where, e.Anchor, len(matches))
		*o = refuse(*o, reason, candidatesFor(f.new, body, e.Anchor, matches))
		return
	}
	m := matches[0]
	src := f.new.src
	// Expanding over the text with its comments keeps the comments inside captures.
	insert := e.Anchor.Expand(nil, []byte(e.New), src[body.start:body.end], m)
	at := span{body.start + m[0], body.start + m[1]}
	edited := &cText{src: mark(slices.Concat(src[:at.start], insert, src[at.end:]), at.start, e.ID)}
	grown := len(edited.src) - len(src)
	after := edited.withoutComments()[body.start : body.end+grown]
	if what := unproven(after, e.Proofs); what != "" {
		*o = refuse(*o, fmt.Sprintf("%s: after the edit this does not hold: %s", where, what), nil)
		return
	}
	o.Status = Applied
	o.LineBefore = lineOf(f.old.src, r.originalOffset(e.File, at.start))
	r.shift(e.File, at, grown)
	o.at, o.grown = at.start, grown
	o.before, o.after = src, edited.src
	o.lines = wholeLines(src, at)
	f.new = edited
}

// wholeLines widens s to the lines it touches.
func wholeLines(src []byte, s span) span {
	start := bytes.LastIndexByte(src[:s.start], '\n') + 1
	n := bytes.IndexByte(src[s.end:], '\n')
	if n < 0 {
		return span{start, len(src)}
	}
	return span{start, s.end + n + 1}
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
	return slices.Concat(text[:end], []byte(" "+markPrefix+id), text[end:])
}

const markPrefix = "// mkp2pimg "

// marked reports whether text holds the mark of the edit.
func marked(text []byte, id string) bool {
	return regexp.MustCompile(`(?m)` + markPrefix + regexp.QuoteMeta(id) + `(?: |$)`).Match(text)
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
	return min(max(offset-shift, 0), len(f.old.src))
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
