package patch

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
)

// candidates is how many of the nearest lines a refusal shows.
const candidates = 3

var (
	identifier = regexp.MustCompile(`[A-Za-z_]\w{3,}`)
	definition = regexp.MustCompile(`(?m)^(?:[A-Za-z_][\w \t*]*?[ \t*])?([A-Za-z_]\w*)[ \t\r\n]*\([^;{}]*\)[ \t\r\n]*\{`)
)

type candidate struct {
	line  int
	text  string
	score int
}

// candidatesFor returns what a refused anchor may have meant: the lines it matches if there are
// several, where it matches outside of the body if it does, and the nearest lines of the body.
func candidatesFor(t *cText, body span, anchor *regexp.Regexp, matches [][]int) []string {
	if len(matches) > 1 {
		return matchedLines(t, body.start, matches)
	}
	found := matchedLines(t, 0, anchor.FindAllSubmatchIndex(t.withoutComments(), candidates))
	return slices.Compact(append(found, nearestLines(t.src, body, anchor.String())...))
}

// matchedLines returns the first line of each match; the matches count from offset.
func matchedLines(t *cText, offset int, matches [][]int) []string {
	var out []string
	for _, m := range matches[:min(len(matches), candidates)] {
		at := offset + m[0]
		line, _, _ := bytes.Cut(t.src[at:], []byte("\n"))
		out = append(out, fmt.Sprintf("%d: %s", lineOf(t.src, at), bytes.TrimSpace(line)))
	}
	return out
}

// nearestLines returns the lines of body that share the most identifiers with the anchor.
func nearestLines(src []byte, body span, anchor string) []string {
	wanted := map[string]bool{}
	for _, word := range identifier.FindAllString(anchor, -1) {
		wanted[word] = true
	}
	var found []candidate
	line := lineOf(src, body.start)
	for text := range bytes.Lines(src[body.start:body.end]) {
		score := 0
		for _, word := range identifier.FindAllString(string(text), -1) {
			if wanted[word] {
				score++
			}
		}
		found = append(found, candidate{line, string(bytes.TrimSpace(text)), score})
		line++
	}
	return best(found)
}

// nearestFuncs returns the definitions whose names begin most like name.
func nearestFuncs(t *cText, name string) []string {
	code := t.withoutLiterals()
	var found []candidate
	for _, m := range definition.FindAllSubmatchIndex(code, -1) {
		other := string(code[m[2]:m[3]])
		found = append(found, candidate{lineOf(code, m[2]), other, commonPrefix(name, other)})
	}
	return best(found)
}

func best(found []candidate) []string {
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	var out []string
	for _, c := range found {
		if c.score == 0 || len(out) == candidates {
			break
		}
		out = append(out, fmt.Sprintf("%d: %s", c.line, c.text))
	}
	return out
}

func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
