package catalog

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

func TestLookup(t *testing.T) {
	for asked, want := range map[string]string{
		"":           "535.261.03",
		"535.261.03": "535.261.03",
		"535":        "535.288.01",
		"570.148.08": "570.148.08",
		"580":        "580.142",
		"595":        "595.71.05",
		"latest":     "610.43.02",
	} {
		t.Run(asked, func(t *testing.T) {
			r, err := Lookup(asked)
			require.NoError(t, err)
			assert.Equal(t, want, r.Version)
		})
	}
}

func TestLookupUnknown(t *testing.T) {
	branches := []string{"535", "545", "550", "555", "560", "565", "570", "575", "580", "590", "595", "610"}
	for asked, near := range map[string][]string{
		"535.261.04": {"535.247.01", "535.261.03", "535.274.02", "535.288.01"},
		"535.999":    {"535.247.01", "535.261.03", "535.274.02", "535.288.01"},
		"595.1":      {"595.44.02", "595.44.03"},
		"530":        branches,
		"510.1.2":    branches,
		"newest":     branches,
		"535.":       branches,
	} {
		t.Run(asked, func(t *testing.T) {
			_, err := Lookup(asked)
			var unknown *UnknownError
			require.ErrorAs(t, err, &unknown)
			assert.Equal(t, near, unknown.Near)
			assert.ErrorContains(t, err, strconv.Quote(asked))
		})
	}
}

func TestDefaultIsWholeInDebian(t *testing.T) {
	r, err := Lookup("")
	require.NoError(t, err)
	require.NotNil(t, r.Debian)
	assert.Equal(t, "Debian bookworm: source package nvidia-open-gpu-kernel-modules 535.261.03-1, "+
		"firmware-nvidia-gsp, libcuda1, libnvidia-ml1, libnvidia-ptxjitcompiler1, nvidia-smi in version 535.261.03-1",
		Load().Origin(r))
}

func TestOriginUpstream(t *testing.T) {
	r, err := Lookup("595.45.04")
	require.NoError(t, err)
	assert.Equal(t, "source: commit df1c9a3de2be4b130f4fc7680f7198193d8ac6ad (tag 595.45.04) of "+
		"https://github.com/NVIDIA/open-gpu-kernel-modules; firmware and user space: "+
		"https://download.nvidia.com/XFree86/Linux-x86_64/595.45.04/NVIDIA-Linux-x86_64-595.45.04.run", Load().Origin(r))
}

func TestOriginElsewhere(t *testing.T) {
	r, err := Lookup("555.58.02")
	require.NoError(t, err)
	assert.Nil(t, r.Debian, "the suite of builds does not have it")
	assert.Contains(t, Load().Origin(r), "; all of it to fetch by hand: Debian experimental: source package "+
		"nvidia-open-gpu-kernel-modules 555.58.02-2, firmware-nvidia-gsp, libcuda1, ")
}

// TestCatalogIsConsistent checks what the schema can't say.
func TestCatalogIsConsistent(t *testing.T) {
	c := Load()
	assert.True(t, slices.IsSortedFunc(c.Releases, func(a, b Release) int { return compare(a.Version, b.Version) }))
	seen := map[string]string{}
	for i := range c.Releases {
		r := &c.Releases[i]
		g, err := c.Generation(r)
		require.NoError(t, err)
		assert.NotEmpty(t, g.Needs)
		for _, hash := range []string{r.Commit, r.Tree} {
			assert.Empty(t, seen[hash], "%s has a hash of another release", r.Version)
			seen[hash] = r.Version
		}
	}
	families := map[string]bool{}
	for _, f := range c.Families {
		families[f.Name] = true
		for _, branch := range []int{f.First, f.Recommended} {
			r, err := c.Lookup(strconv.Itoa(branch))
			require.NoError(t, err)
			g, err := c.Generation(r)
			require.NoError(t, err)
			assert.Contains(t, g.Needs, f.Name, "branch %d", branch)
		}
	}
	for _, g := range c.Generations {
		for name := range g.Needs {
			assert.True(t, families[name], "generation %s names family %s", g.Name, name)
		}
	}
}

func TestCatalogFollowsItsSchema(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("catalog.json", doc))
	schema, err := compiler.Compile("catalog.json")
	require.NoError(t, err)

	validate := func(text []byte) error {
		var tree any
		require.NoError(t, yaml.Unmarshal(text, &tree))
		asJSON, err := json.Marshal(tree)
		require.NoError(t, err)
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		require.NoError(t, err)
		return schema.Validate(doc)
	}
	assert.NoError(t, validate(data))
	assert.Error(t, validate(bytes.Replace(data, []byte("version: 1\n"), []byte("version: 2\n"), 1)))
	assert.Error(t, validate(bytes.Replace(data, []byte("commit: "), []byte("comit: "), 1)))
	assert.Error(t, validate(bytes.Replace(data, []byte("tree: "), []byte("tree: 0"), 1)))
}

func TestParseRefusesUnknownFields(t *testing.T) {
	_, err := parse([]byte("version: 1\nsurprise: 2\n"))
	assert.ErrorContains(t, err, "surprise")
}
