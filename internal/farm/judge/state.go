package judge

import (
	"fmt"
	"strings"

	"mkp2pimg/internal/farm"
)

// state is something of a run that is one way or another, as a word or a few.
type state struct {
	kind    farm.ChangeKind
	subject string
	// get returns the state in a run; false if the run does not tell.
	get func(r farm.Run) (string, bool)
	// worse tells whether after is worse than before; nil: no state is.
	worse func(before, after string) bool
	// fix says what to do about a state for the worse.
	fix func() string
	// word words the state for a person; nil: as it is.
	word func(value string) string
}

// normal is the state that is normal for a node.
type normal struct {
	value string
	runs  int      // how many had it
	last  farm.Run // of them
}

// normal returns the normal state after runs, the oldest first; false if none of
// them tells.
func (s state) normal(past []farm.Run) (n normal, ok bool) {
	count := map[string]int{}
	last := map[string]farm.Run{}
	streak := 0
	for _, r := range past {
		v, known := s.get(r)
		if !known {
			continue
		}
		count[v]++
		last[v] = r
		switch {
		case !ok || v == n.value:
			streak = 0
		case s.worse != nil && s.worse(n.value, v):
			if streak++; streak < Accept {
				continue
			}
			streak = 0
		default:
			streak = 0
		}
		n.value, ok = v, true
	}
	n.runs, n.last = count[n.value], last[n.value]
	return n, ok
}

// changed returns what of the state of a run differs from what is normal.
func (s state) changed(run farm.Run, past []farm.Run) (farm.Change, bool) {
	after, known := s.get(run)
	n, ok := s.normal(past)
	if !known || !ok || after == n.value {
		return farm.Change{}, false
	}
	word := s.word
	if word == nil {
		word = func(v string) string { return v }
	}
	c := farm.Change{Kind: s.kind, Subject: s.subject, Before: fmt.Sprintf("%s (%s)", word(n.value), count(n.runs, "run")), After: word(after)}
	if s.worse != nil && s.worse(n.value, after) {
		c.Worse = true
		c.Fix = lines(s.fix(), since(n.last, run, s.subject))
	}
	return c, true
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// lines joins what is not empty.
func lines(texts ...string) string {
	var out []string
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			out = append(out, t)
		}
	}
	return strings.Join(out, "\n")
}
