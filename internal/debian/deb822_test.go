package debian

import (
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/debian/debiantest"
)

func parse(text string, fields ...string) ([]paragraph, error) {
	var all []paragraph
	err := readParagraphs(strings.NewReader(text), fields, func(p paragraph) error {
		all = append(all, maps.Clone(p))
		return nil
	})
	return all, err
}

func TestReadParagraphs(t *testing.T) {
	tests := map[string]struct {
		text string
		want []paragraph
	}{
		"empty":         {"", nil},
		"only blank":    {"\n \n\n", nil},
		"one":           {"A: 1\nC: unwanted\nB: 2\n", []paragraph{{"A": "1", "B": "2"}}},
		"no final line": {"A: 1", []paragraph{{"A": "1"}}},
		"two":           {"\n\nA: 1\n\n\nB: 2\n\n", []paragraph{{"A": "1"}, {"B": "2"}}},
		"only unwanted": {"C: 1\n\nA: 1", []paragraph{{}, {"A": "1"}}},
		"several lines": {"A: 1\n 2\n .\n\t3\nC: x\n y\nB:\n  4\n", []paragraph{{"A": "1\n2\n.\n3", "B": "\n 4"}}},
		"spaces":        {"A:1  \r\nB: \t2\r\n", []paragraph{{"A": "1", "B": "2"}}},
		"colon":         {"A: x:y\n", []paragraph{{"A": "x:y"}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parse(tt.text, "A", "B")
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestReadParagraphsRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no field":   {"A: 1\nno field\n", `line 2: is no "Field: value": "no field"`},
		"no name":    {": x\n", "line 1"},
		"continues":  {"A: 1\n\n x\n", "line 3: continues no field"},
		"twice":      {"A: 1\nB: 2\nA: 2\n", "line 3: field A occurs twice"},
		"very long":  {"B: 1\nA: " + strings.Repeat("x", maxLine), "line 2: longer than"},
		"binary":     {"\x00\xff\x1f", "line 1"},
		"html":       {"<html>\n", "line 1"},
		"empty name": {"A: 1\n:\n", "line 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.text, "A", "B")
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func FuzzReadParagraphs(f *testing.F) {
	f.Add("A: 1\n 2\n\nB: 3\n")
	f.Add(debiantest.Stanza("x", "1"))
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parse(text, "A", "B")
		if err != nil {
			return
		}
		// What was read can be written and read again.
		var b strings.Builder
		for _, p := range all {
			b.WriteString("C: x\n")
			for name, value := range p {
				b.WriteString(name + ":" + strings.ReplaceAll(value, "\n", "\n ") + "\n")
			}
			b.WriteString("\n")
		}
		again, err := parse(b.String(), "A", "B")
		require.NoError(t, err)
		require.Len(t, again, len(all))
	})
}

func FuzzPackages(f *testing.F) {
	f.Add(debiantest.Stanza("libfoo", "1:2.0-1", "Depends: libc6 (>= 2.3) | foo, bar:any", "Provides: baz (= 1)", "Source: foo (2)"))
	f.Fuzz(func(_ *testing.T, text string) {
		x := &Index{versions: make(map[string][]*Package)}
		err := readParagraphs(strings.NewReader(text), packageFields, func(f paragraph) error {
			p, err := newPackage(f)
			if err == nil {
				p.Origin = &Origin{}
				x.versions[p.Name] = append(x.versions[p.Name], p)
			}
			return err
		})
		if err != nil || x.finish() != nil {
			return
		}
		all := x.Names(func(string) bool { return true })
		_, _ = x.Resolve(all, ResolveOptions{})
	})
}
