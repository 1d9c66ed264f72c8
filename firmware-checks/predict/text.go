package predict

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteText writes predictions for a person: each with what is not known, the
// gate that refuses, what opens it, and what is known to go wrong. Pairs that
// differ in their addresses only share an entry.
func WriteText(w io.Writer, predictions []Prediction) error {
	var texts []string
	pairs := map[string][]Prediction{}
	for _, p := range predictions {
		text := p.text()
		if pairs[text] == nil {
			texts = append(texts, text)
		}
		pairs[text] = append(pairs[text], p)
	}
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "%s\n%s", names(pairs[text]), text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// names lists pairs, or their GPUs where they are all the pairs of those.
func names(predictions []Prediction) string {
	var gpus, pairs []string
	for _, p := range predictions {
		pairs = append(pairs, p.A+" to "+p.B)
		if !slices.Contains(gpus, p.A) {
			gpus = append(gpus, p.A)
		}
	}
	if n := len(gpus); len(pairs) == n*(n-1) {
		return "between " + strings.Join(gpus, ", ")
	}
	return strings.Join(pairs, ", ")
}

// text describes p without its addresses.
func (p Prediction) text() string {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "  %-8s %s\n", key, fmt.Sprintf(format, args...))
	}
	line("path", "%v (read %v, write %v)", p, p.Read, p.Write)
	if len(p.Possible) > 1 {
		var others []string
		for _, path := range p.Possible[1:] {
			others = append(others, string(path))
		}
		line("else", "%s", strings.Join(others, " or "))
	}
	for _, a := range p.Gates {
		if a.Verdict == Unknown && a.Gate != p.Gate && slices.Contains(p.If, a.condition()) {
			line("unknown", "%s: %s %s", a.ID, a.Gate.Question, a.Reason)
		}
	}
	if p.Gate != nil {
		i := slices.IndexFunc(p.Gates, func(a Answer) bool { return a.Gate == p.Gate })
		line("refused", "%s: %s %s, %s", p.Gate.ID, p.Gate.Question, p.Gates[i].Verdict, p.Gates[i].Reason)
		line("opens", "%s", p.Gate.Opens)
	}
	if p.Works != "" {
		line("works", "%s", p.Works)
	}
	for _, a := range p.Checks {
		if a.Verdict != Yes {
			line("check", "%s: %s %s, %s", a.ID, a.Gate.Question, a.Verdict, a.Reason)
		}
	}
	for _, n := range p.Notes {
		line("note", "%s", n)
	}
	return b.String()
}
