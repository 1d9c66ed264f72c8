package checks_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/golden"
)

// findingsFile is the page about all findings, made from their descriptions.
const findingsFile = "../docs/findings.md"

func TestFindingsPage(t *testing.T) {
	golden.Equal(t, findingsFile, findingsPage(checks.Docs()))
}

// findingsPage writes descriptions as Markdown.
func findingsPage(docs []checks.Doc) string {
	var b strings.Builder
	b.WriteString(`# Findings

<!-- Made from the descriptions in firmware-checks: go test ./firmware-checks -run TestFindingsPage -update -->

What the checks look for, in the order of the report. A finding on a machine has besides what was
read and where, what follows, and the steps for that machine; ` + "`mkp2pimg check --explain ID`" + ` prints what
is said here.

`)
	for _, d := range docs {
		fmt.Fprintf(&b, "- [%s](#%s): %s\n", d.ID, strings.ToLower(string(d.ID)), d.Question)
	}
	for _, d := range docs {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s\n\n| status | when |\n| --- | --- |\n", d.ID, d.Question, d.Meaning)
		for _, o := range d.Outcomes {
			fmt.Fprintf(&b, "| %s | %s |\n", o.Status, o.When)
		}
		if d.Weightless {
			b.WriteString("\nFor information: it does not change the verdict.\n")
		}
		fmt.Fprintf(&b, "\nFix: %s\n", d.Fix)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	seen := map[checks.ID]bool{}
	for _, want := range checks.Docs() {
		assert.False(t, seen[want.ID], "%s is described twice", want.ID)
		seen[want.ID] = true
		got, ok := checks.Explain(want.ID)
		assert.True(t, ok)
		assert.Equal(t, want, got)
		assert.True(t, strings.HasSuffix(want.Question, "?"), "%s: %s", want.ID, want.Question)
		assert.NotEmpty(t, want.Meaning, want.ID)
		assert.NotEmpty(t, want.Fix, want.ID)
		assert.NotEmpty(t, want.Outcomes, want.ID)
		for _, text := range []string{want.Question, want.Meaning, want.Fix} {
			assert.NotContains(t, text, "\n", want.ID)
		}
	}
	for _, id := range checks.IDs() {
		assert.True(t, seen[id], "%s has no description", id)
	}
	_, ok := checks.Explain("P2P-NONE")
	assert.False(t, ok)
}
