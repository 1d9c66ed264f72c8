package page

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

func TestFleetTable(t *testing.T) {
	at := func(v float64) *float64 { return &v }
	worse := []farm.Change{{Subject: "bios.version", Before: "1.7", After: "1.8", Worse: true}}
	run := func(verdict string, worst *float64, changes []farm.Change) *farm.Run {
		return &farm.Run{State: farm.Complete, Summary: &farm.Summary{Verdict: verdictOf(verdict), Reason: "because", Worst: worst}, Changes: changes}
	}
	h := handler{Config: Config{Lab: read(&lab.Lab{Nodes: []lab.Node{{Name: "n1", Group: "r1"}, {Name: "n2", Group: "r2"}, {Name: "n10", Group: "r1"}, {Name: "new", Group: "r2"}}})}}
	nodes := []store.FleetRow{
		{Node: farm.Node{Name: "n1", LastSeen: now.Add(-time.Hour)}, Last: run("P2P-READY", at(90), nil)},
		{Node: farm.Node{Name: "n10", LastSeen: now}, Last: run("P2P-READY", at(88), []farm.Change{{Subject: "driver", Before: "570", After: "580"}})},
		{Node: farm.Node{Name: "n2", LastSeen: now}, Last: run("P2P-DEGRADED", at(46), worse)},
		{Node: farm.Node{Name: "stranger", LastSeen: now}, Last: run("P2P-BLOCKED", nil, nil)},
		{Node: farm.Node{Name: "silent"}, Last: &farm.Run{State: farm.Lost, Why: "nothing arrived"}},
		{Node: farm.Node{Name: "busy"}, Last: &farm.Run{State: farm.Running, Stage: "bandwidth"}, Trend: []float64{70, 80}},
		{Node: farm.Node{Name: "odd"}, Last: run("SOMETHING-NEW", nil, nil)},
	}
	for query, want := range map[string]string{
		"":                                    "stranger silent odd n2 new busy n1 n10",
		"sort=node":                           "busy n1 n2 n10 new odd silent stranger",
		"sort=-node":                          "stranger silent odd new n10 n2 n1 busy",
		"sort=worst":                          "n2 busy n10 n1 new odd silent stranger",
		"sort=changes":                        "n2 n10 busy n1 new odd silent stranger",
		"sort=seen":                           "n2 n10 stranger n1 busy new odd silent",
		"sort=nonsense":                       "stranger silent odd n2 new busy n1 n10",
		"verdict=ready":                       "n1 n10",
		"verdict=never+seen":                  "new",
		"verdict=lost":                        "silent",
		"verdict=running":                     "busy",
		"verdict=nonsense":                    "",
		"group=r1":                            "n1 n10",
		"changed=1":                           "n2 n10",
		"changed=1&group=r1&sort=-node":       "n10",
		"q=BIOS+1.8":                          "n2",
		"q=nothing+arrived":                   "silent",
		"q=r1+580":                            "n10",
		"q=bandwidth":                         "busy",
		"q=%25":                               "",
		"q=because&sort=-worst&verdict=ready": "n1 n10",
		"page=99":                             "stranger silent odd n2 new busy n1 n10",
		"page=-1":                             "stranger silent odd n2 new busy n1 n10",
	} {
		t.Run(query, func(t *testing.T) {
			q, err := url.ParseQuery(query)
			require.NoError(t, err)
			d := fleetData{Filter: readFilter(q)}
			d.fill(h.fleetRows(nodes))
			var names []string
			for _, r := range d.Rows {
				names = append(names, r.Name)
			}
			assert.Equal(t, want, strings.Join(names, " "))
			assert.Equal(t, 8, d.Total)
			assert.Equal(t, []string{"r1", "r2"}, d.Groups)
		})
	}
}

func TestPages(t *testing.T) {
	var rows []string
	for i := range 2*pageSize + 1 {
		rows = append(rows, fmt.Sprintf("n%d", i))
	}
	same := func(_, _ string) int { return 0 }
	self := func(s string) string { return s }
	for page, want := range map[int][3]any{1: {"n0", 1, 100}, 2: {"n100", 101, 200}, 3: {"n200", 201, 201}, 4: {"n200", 201, 201}} {
		f := filter{Page: page}
		got := tableOf(&f, slices.Clone(rows), same, self)
		assert.Equal(t, want, [3]any{got.Rows[0], got.First, got.Last})
		assert.Equal(t, 3, got.Pages)
	}
	f := filter{Page: 1}
	assert.Empty(t, tableOf(&f, nil, same, self).Rows)
}

// TestFilterAddress has what a filter says in an address be what is read from it.
func TestFilterAddress(t *testing.T) {
	for _, f := range []filter{
		{Sort: defaultSort, Page: 1}, {Text: "a b&c=%/ü", State: stateNever, Group: "r&1", Changed: true, Sort: "worst", Down: true, Page: 7},
		{Sort: defaultSort, Down: true, Page: 2},
	} {
		q, err := url.ParseQuery(strings.TrimPrefix(f.Query(), "?"))
		require.NoError(t, err)
		assert.Equal(t, f, readFilter(q))
	}
	f := readFilter(url.Values{"page": {"3"}})
	assert.Equal(t, "?sort=worst", f.By("worst"))
	assert.Equal(t, "?sort=-attention", f.By(defaultSort), "the other way round, from the first page")
	assert.Equal(t, "?", readFilter(url.Values{"verdict": {"lost"}}).Only(stateLost), "the chosen one again is all")
	assert.Equal(t, "ascending", f.Column(defaultSort, "", false).Order)
	assert.Empty(t, f.Column("node", "", false).Order)
}

func TestNatural(t *testing.T) {
	want := []string{"", "9", "10", "n", "n1", "n1a", "n02", "n2", "n10", "n99999999999999999999999", "n100000000000000000000000", "nb"}
	got := slices.Sorted(slices.Values(want))
	slices.SortFunc(got, natural)
	assert.Equal(t, want, got)
}

func FuzzNatural(f *testing.F) {
	f.Add("n1", "n01", "n001")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		require.Equal(t, natural(a, b), -natural(b, a))
		require.Zero(t, natural(a, a))
		if natural(a, b) <= 0 && natural(b, c) <= 0 {
			require.LessOrEqual(t, natural(a, c), 0)
		}
	})
}

func TestLocal(t *testing.T) {
	for to, want := range map[string]string{
		"/": "/", "/nodes/n1?way=write-ce": "/nodes/n1?way=write-ce", "/nodes/a%2Fb": "/nodes/a%2Fb", "/?q=http://x": "/?q=http://x",
		"": "/", "nodes": "/", "//host": "/", "///host": "/", `/\host`: "/", `\\host`: "/", "http://host/": "/", "javascript:evil()": "/", "/\thost": "/", "/\r\nSet-Cookie: a": "/",
		"/a#b": "/a", "https:host": "/", " //host": "/", "/%zz": "/",
	} {
		assert.Equal(t, want, local(to), to)
	}
}

func FuzzLocal(f *testing.F) {
	for _, s := range []string{"/nodes/n1?a=b", "//host", `/\host`, "/\thost", "http://host", "/./ /host"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, to string) {
		got := local(to)
		require.True(t, strings.HasPrefix(got, "/") && !strings.HasPrefix(got, "//"), got)
		require.NotContains(t, got, `\`)
		u, err := url.Parse(got)
		require.NoError(t, err)
		require.Equal(t, "", cmp.Or(u.Host, u.Scheme))
	})
}
