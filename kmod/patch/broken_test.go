package patch

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBrokenTreesAreRefused(t *testing.T) {
	for _, name := range []string{"a1", "c"} {
		t.Run(name, func(t *testing.T) { assertRefusesBroken(t, loadTree(t, name)) })
	}
}

// assertRefusesBroken breaks the anchor of P2P-E4-CREATE by hand in three ways.
func assertRefusesBroken(t *testing.T, tree fs.FS) {
	const from, to = "kbusCreateP2PMapping_GP100", "kbusRemoveP2PMapping_GP100"
	const line = "    if (FLD_TEST_DRF(_P2PAPI, _ATTRIBUTES, _CONNECTION_TYPE, _PCIE, attributes))\n"
	text, err := fs.ReadFile(tree, busGP100)
	require.NoError(t, err)
	for name, broken := range breakAnchor(t, string(text), from, to, line) {
		result, err := Plan(fileOver{tree, busGP100, broken}, P2P(Auto))
		var refused *RefusedError
		require.ErrorAs(t, err, &refused, name)
		at := map[string]bool{}
		for _, o := range refused.Edits {
			at[o.Edit.ID] = true
			assert.Equal(t, busGP100, o.Edit.File, "%s: an edit of another file is refused", name)
		}
		require.True(t, at["P2P-E4-CREATE"], name)
		assert.Equal(t, name == "moved", at["P2P-E4-REMOVE"], "%s: the line now stands twice in the other function", name)
		times := map[string]string{"moved": "0", "duplicated": "2", "removed": "0"}[name]
		assert.ErrorContains(t, err, busGP100+": function "+from+": anchor", name)
		assert.ErrorContains(t, err, "matches "+times+" times, want once", name)
		assert.Contains(t, strings.Join(refused.Edits[0].Candidates, "\n"), "_CONNECTION_TYPE", name)
		if name == "moved" {
			assert.Contains(t, refused.Edits[0].Candidates[0], strings.TrimSpace(line), "where it stands now comes first")
		}
		assert.ErrorAs(t, result.Write(t.TempDir()), &refused, "nothing is written")
	}
}

// breakAnchor returns text with a line of one function moved to another, duplicated, and removed.
func breakAnchor(t *testing.T, text, from, to, line string) map[string]string {
	src := &cText{src: []byte(text)}
	f, err := src.findBody(from)
	require.NoError(t, err)
	g, err := src.findBody(to)
	require.NoError(t, err)
	require.Less(t, f.end, g.start)
	body := text[f.start:f.end]
	require.Equal(t, 1, strings.Count(body, line))
	without := text[:f.start] + strings.Replace(body, line, "", 1)
	end := strings.LastIndex(text[:g.end], "}")
	return map[string]string{
		"removed":    without + text[f.end:],
		"duplicated": text[:f.start] + strings.Replace(body, line, line+line, 1) + text[f.end:],
		"moved":      without + text[f.end:end] + line + text[end:],
	}
}
