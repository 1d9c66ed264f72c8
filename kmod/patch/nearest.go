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

// nearestFuncs returns the definitions in src whose names begin most like name.
func nearestFuncs(src []byte, name string) []string {
	code := blankComments(src, true)
	var found []candidate
	for _, m := range definition.FindAllSubmatchIndex(code, -1) {
		other := string(code[m[2]:m[3]])
		found = append(found, candidate{lineOf(src, m[2]), other, commonPrefix(name, other)})
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
