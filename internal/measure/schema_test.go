package measure

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda/fake"
)

// schema returns the schema in the file called name.
func schema(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(name)
	require.NoError(t, err)
	return s
}

// validate checks r against the schema and returns its JSON.
func validate(t *testing.T, s *jsonschema.Schema, r Result) []byte {
	t.Helper()
	b, err := json.Marshal(r)
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	require.NoError(t, s.Validate(v), "%s", b)
	return b
}

func TestResultsFitTheSchema(t *testing.T) {
	s := schema(t, "schema.json")
	for _, tc := range []struct {
		name   string
		damage func(*fake.System)
	}{
		{"good", func(*fake.System) {}},
		{"misplaced", func(s *fake.System) { s.Default.Write = fake.Fault{Kind: fake.Shift, Shift: 4096} }},
		{"mirror", func(s *fake.System) { s.Default.Mirror = true }},
		{"refused", func(s *fake.System) { s.Default.NoAccess = true }},
		{"no memory", func(s *fake.System) { s.GPUs[0].Info.Memory = 0 }},
		{"no GPU", func(s *fake.System) { s.GPUs = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(sys)
			inv, err := Enumerate(sys)
			require.NoError(t, err)
			r := Result{
				Version: Version, Started: time.Unix(0, 0).UTC(), Settings: quick, Inventory: &inv,
				Devices: []Device{}, Pairs: []Pair{},
			}
			if len(inv.GPUs) > 0 {
				r.Devices = append(r.Devices, ProbeDevice(t.Context(), sys, bdf0, quick, func(Device) {}))
				r.Pairs = append(r.Pairs, measurePair(t, sys, quick))
			}
			r.Verdict, r.Reason = Judge(r)
			b := validate(t, s, r)

			var back Result
			dec := json.NewDecoder(bytes.NewReader(b))
			dec.DisallowUnknownFields()
			require.NoError(t, dec.Decode(&back))
			assert.Equal(t, r, back)
		})
	}
}

// TestVersion1StillLoads reads a result as version 1 was first published. The
// file is never written again.
func TestVersion1StillLoads(t *testing.T) {
	b, err := os.ReadFile("testdata/result-v1.json")
	require.NoError(t, err)
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	require.NoError(t, err)
	require.NoError(t, schema(t, "schema-v1.json").Validate(v))

	r, err := Decode(b)
	require.NoError(t, err)
	validate(t, schema(t, "schema.json"), r)
	assert.Equal(t, Version, r.Version)
	assert.Equal(t, WrongData, r.Verdict)
	require.Len(t, r.Pairs, 1)
	assert.True(t, r.Pairs[0].Checks[0].Mirror)
	verdict, reason := Judge(r)
	assert.Equal(t, r.Verdict, verdict)
	assert.Equal(t, r.Reason, reason)
}

func TestSchemaRefusesWhatIsNoResult(t *testing.T) {
	s := schema(t, "schema.json")
	for _, text := range []string{
		`{}`,
		`{"version":2}`,
		`{"version":2,"started":"1970-01-01T00:00:00Z","settings":{},"devices":[],"pairs":[],"verdict":"ok","reason":""}`,
	} {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		assert.Error(t, s.Validate(v), text)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                 "unexpected end of JSON input",
		`[]`:               "cannot unmarshal array",
		`{}`:               "of version 0",
		`{"version":99}`:   "of version 99: this program reads versions 1 and 2",
		`{"version":"1"}`:  "cannot unmarshal string",
		`{"version":1} {}`: "invalid character",
	} {
		_, err := Decode([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}

func FuzzDecode(f *testing.F) {
	old, err := os.ReadFile("testdata/result-v1.json")
	require.NoError(f, err)
	f.Add(old)
	f.Add([]byte(`{"version":2,"pairs":[{}],"devices":[{"checks":[{}]}],"traffic":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		assert.Equal(t, Version, r.Version)
		Judge(r)
	})
}
