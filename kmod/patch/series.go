package patch

import (
	"fmt"
	"strings"
)

// Patch is one applied edit as a patch of its own. Patches follow each other: a later one
// expects the text that those before it left.
type Patch struct {
	// Name is a file name, such as "p2p-e4-create.patch".
	Name string
	Edit Edit
	// Diff is a unified diff with a/ and b/ prefixes.
	Diff string
}

// Series returns the applied edits as patches, in order.
func (r *Result) Series() []Patch {
	var series []Patch
	for _, o := range r.Edits {
		if o.Status == Applied {
			series = append(series, Patch{
				Name: strings.ToLower(o.Edit.ID) + ".patch",
				Edit: o.Edit,
				Diff: unified(o.Edit.File, o.before, o.after),
			})
		}
	}
	return series
}

// DEP3 returns the patch with a header as Debian's DEP-3 asks for.
func (p Patch) DEP3() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Description: %s\n", p.Edit.Title)
	for line := range strings.Lines(p.about()) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			line = "."
		}
		fmt.Fprintf(&b, " %s\n", line)
	}
	fmt.Fprintf(&b, "Origin: other, mkp2pimg edit %s\nForwarded: not-needed\n---\n%s", p.Edit.ID, p.Diff)
	return b.String()
}

// about explains the edit in lines of at most 76 bytes.
func (p Patch) about() string {
	e := p.Edit
	text := wrap("Why: "+e.Why+".") + wrap("Replaces: "+e.Replaces+".")
	if e.Role != Kernel {
		text += wrap("Serves: " + list(e.serves()) + " (" + string(e.Role) + ").")
	}
	return text
}

// wrap breaks text into lines of at most 76 bytes where it has spaces.
func wrap(text string) string {
	const width = 76
	var b strings.Builder
	n := 0
	for word := range strings.FieldsSeq(text) {
		switch {
		case n == 0:
		case n+1+len(word) > width:
			b.WriteByte('\n')
			n = 0
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += len(word)
	}
	b.WriteByte('\n')
	return b.String()
}

// Mailbox returns the series as a mailbox that git am takes, one message per edit. The messages
// carry no date, so that the same edits give the same bytes: git takes the time of day.
func (r *Result) Mailbox() string {
	var b strings.Builder
	series := r.Series()
	for i, p := range series {
		fmt.Fprintf(&b, "From %040d Mon Sep 17 00:00:00 2001\n"+ // as by git format-patch
			"From: mkp2pimg <mkp2pimg@mkp2pimg.invalid>\n"+
			"Subject: [PATCH %d/%d] %s: %s\n\n%s---\n\ndiff --git a/%s b/%s\n%s-- \nmkp2pimg\n\n",
			0, i+1, len(series), p.Edit.ID, p.Edit.Title, p.about(), p.Edit.File, p.Edit.File, p.Diff)
	}
	return b.String()
}
