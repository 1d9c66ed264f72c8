package patch

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

func reportSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(ReportSchema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("report.json", doc))
	schema, err := c.Compile("report.json")
	require.NoError(t, err)
	return schema
}

func TestReportFollowsItsSchema(t *testing.T) {
	schema := reportSchema(t)
	fresh, err := Plan(loadTree(t, "a1"), P2P(Auto))
	require.NoError(t, err)
	already, err := Plan(overlay{loadTree(t, "a1"), fresh}, P2P(Auto))
	require.NoError(t, err)
	refused, err := Plan(smallTree("int f(int a)\n{\n}\n"), []Edit{smallEdit()})
	require.Error(t, err)
	seen := map[Status]bool{}
	for _, r := range []*Result{fresh, already, refused} {
		text, err := json.Marshal(r.Report())
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		assert.NoError(t, schema.Validate(doc))
		for _, e := range r.Report().Edits {
			seen[e.Status] = true
		}
	}
	assert.Len(t, seen, 4, "not every status was tried")
}

func TestReport(t *testing.T) {
	result, err := Plan(loadTree(t, "c"), P2P(Minimal))
	require.NoError(t, err)
	text, err := json.MarshalIndent(result.Report(), "", "  ")
	require.NoError(t, err)
	golden.Equal(t, "testdata/c.report.json", string(text)+"\n")
}

func TestSchemaRefuses(t *testing.T) {
	schema := reportSchema(t)
	for name, text := range map[string]string{
		"other version":  `{"version":2,"driver":"1.2","edits":[],"files":[]}`,
		"no reason":      `{"version":1,"driver":"1.2","edits":[{"id":"A-B","title":"t","why":"w","replaces":"r","status":"refused","file":"f","anchor":"a"}],"files":[]}`,
		"unknown status": `{"version":1,"driver":"1.2","edits":[{"id":"A-B","title":"t","why":"w","replaces":"r","status":"maybe","reason":"r","proofs":[],"file":"f","anchor":"a"}],"files":[]}`,
	} {
		t.Run(name, func(t *testing.T) {
			doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
			require.NoError(t, err)
			assert.Error(t, schema.Validate(doc))
		})
	}
}
