package measure

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func flows(pairs ...string) []Flow {
	var fs []Flow
	for _, p := range pairs {
		fs = append(fs, Flow{Initiator: p[:1], Peer: p[1:]})
	}
	return fs
}

func TestShapes(t *testing.T) {
	gpus := []string{"a", "b", "c"}
	for shape, want := range map[Shape][]Flow{
		Ring:     flows("ab", "bc", "ca"),
		AllToOne: flows("ba", "ca"),
		OneToAll: flows("ab", "ac"),
		AllToAll: flows("ab", "ac", "ba", "bc", "ca", "cb"),
	} {
		assert.Equal(t, want, shape.flows(gpus), shape)
	}
}

func TestPlan(t *testing.T) {
	names := func(plan []Traffic) []string {
		all := []string{}
		for _, p := range plan {
			all = append(all, p.Name())
		}
		return all
	}
	under := func(root, sw string, gpus ...string) []Place {
		var places []Place
		for _, g := range gpus {
			places = append(places, Place{BDF: g, Root: root, Switch: sw})
		}
		return places
	}
	shapes := []string{"ring write by ce", "all-to-one write by ce", "one-to-all write by ce", "all-to-all write by ce"}
	probe := []string{"collapse write by ce with 1 sources", "collapse write by ce with 2 sources", "collapse write by ce with 3 sources"}
	for _, tc := range []struct {
		name   string
		gpus   []string
		places []Place
		set    Settings
		want   []string
	}{
		{"one GPU", []string{"a"}, nil, Settings{}, []string{}},
		{"two GPUs are one pair", []string{"a", "b"}, nil, Settings{}, []string{}},
		{"three GPUs", []string{"a", "b", "c"}, nil, Settings{}, shapes},
		{"reads as well", []string{"a", "b", "c"}, nil, Settings{Profile: Complete},
			append(shapes[:4:4], "ring read by ce", "all-to-one read by ce", "one-to-all read by ce", "all-to-all read by ce")},
		{"no switch", []string{"a", "b", "c", "d"}, append(under("0", "", "a", "b"), append(under("1", "", "c"), under("2", "", "d")...)...), Settings{}, shapes},
		{"one other root", []string{"a", "b", "c", "d"}, append(under("0", "s", "a", "b"), under("1", "", "c", "d")...), Settings{}, shapes},
		{"a switch and two other roots", []string{"a", "b", "c", "d", "e"},
			append(under("0", "s", "a", "b", "c"), append(under("1", "", "d"), under("2", "", "e")...)...), Settings{}, append(shapes[:4:4], probe...)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := Plan(tc.gpus, Fabric{Places: tc.places}, tc.set)
			assert.Equal(t, tc.want, names(plan))
			for _, p := range plan {
				b, err := json.Marshal(p)
				require.NoError(t, err)
				var back Traffic
				require.NoError(t, json.Unmarshal(b, &back))
				assert.Equal(t, p, back)
			}
		})
	}
}

func TestCollapseProbeWritesToTwoRoots(t *testing.T) {
	f := Fabric{Places: []Place{{BDF: "a", Root: "0", Switch: "s"}, {BDF: "b", Root: "0", Switch: "s"}, {BDF: "c", Root: "1"}, {BDF: "d", Root: "2"}, {BDF: "e", Root: "2"}}}
	assert.Equal(t, [][]Flow{flows("ac"), flows("ac", "bd")}, collapseFlows([]string{"a", "b", "c", "d", "e"}, f))
}

func TestUnfit(t *testing.T) {
	r := Result{Pairs: []Pair{{Initiator: "a", Peer: "b", Verdict: OK}, {Initiator: "b", Peer: "a", Verdict: Slow}, {Initiator: "a", Peer: "c", Verdict: Hang}}}
	assert.Empty(t, r.Unfit(Traffic{Flows: flows("ab", "ba")}))
	assert.Equal(t, "a to c: hang", r.Unfit(Traffic{Flows: flows("ab", "ac")}))
	assert.Equal(t, "c to a was not measured", r.Unfit(Traffic{Flows: flows("ca")}))
}
