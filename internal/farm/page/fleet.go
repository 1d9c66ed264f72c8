package page

import (
	"cmp"
	"html/template"
	"math"
	"net/http"
	"slices"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
)

// fleetRow is a node in the table of the fleet.
type fleetRow struct {
	Name, Group string
	State       state
	Live        bool // a run is under way
	Stage       string
	Reason      string
	Worst       *float64
	Changes     []farm.Change
	Worse       int // changes for the worse
	Seen        time.Time
	Spark       template.HTML
	trend       []float64
}

// fleetOrders are the orders of the table by column.
var fleetOrders = map[string]func(a, b fleetRow) int{
	"attention": func(a, b fleetRow) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), cmp.Compare(b.Worse, a.Worse))
	},
	"node":  func(_, _ fleetRow) int { return 0 },
	"worst": func(a, b fleetRow) int { return cmp.Compare(orMore(a.Worst), orMore(b.Worst)) },
	"changes": func(a, b fleetRow) int {
		return cmp.Or(cmp.Compare(b.Worse, a.Worse), cmp.Compare(len(b.Changes), len(a.Changes)))
	},
	"seen": func(a, b fleetRow) int { return b.Seen.Compare(a.Seen) },
}

// isFor tells whether a row is what a filter asks for.
func (r fleetRow) isFor(f filter) bool {
	if f.State != "" && f.State != r.State || f.Group != "" && f.Group != r.Group || f.Changed && len(r.Changes) == 0 {
		return false
	}
	texts := []string{r.Name, r.Group, string(r.State), r.Reason, r.Stage}
	for _, c := range r.Changes {
		texts = append(texts, c.Subject, c.Before, c.After)
	}
	return contains(f.words(), texts...)
}

type fleetData struct {
	frame
	table[fleetRow]
	Filter filter
	Tiles  []tile
	States []state
	Groups []string
	Total  int // nodes
}

func (h *handler) fleet(w http.ResponseWriter, r *http.Request) {
	nodes, err := h.Store.Fleet(r.Context())
	if err != nil {
		h.broken(w, r, "fleet", err)
		return
	}
	data := fleetData{frame: h.frame(r, "Fleet", "fleet"), Filter: readFilter(r.URL.Query()), States: states}
	data.fill(h.fleetRows(nodes))
	h.render(w, r, http.StatusOK, "fleet", data)
}

// fleetRows are the nodes of the store and those of the lab that it has not seen.
func (h *handler) fleetRows(nodes []store.FleetRow) []fleetRow {
	groups := map[string]string{}
	for _, n := range h.Lab().Nodes {
		groups[n.Name] = n.Group
	}
	rows := make([]fleetRow, 0, len(nodes))
	for _, n := range nodes {
		row := fleetRow{Name: n.Node.Name, Group: groups[n.Node.Name], State: runState(n.Last), Seen: n.Node.LastSeen, trend: n.Trend}
		if l := n.Last; l != nil {
			row.Live, row.Stage, row.Reason, row.Changes = !l.State.Over(), l.Stage, l.Why, l.Changes
			if l.Summary != nil {
				row.Worst = l.Summary.Worst
				row.Reason = cmp.Or(row.Reason, l.Summary.Reason)
			}
		}
		if t := len(n.Trend) - 1; row.Live && row.Worst == nil && t >= 0 && !math.IsNaN(n.Trend[t]) {
			row.Worst = &n.Trend[t] // of the night before
		}
		for _, c := range row.Changes {
			if c.Worse {
				row.Worse++
			}
		}
		rows = append(rows, row)
		delete(groups, n.Node.Name)
	}
	for _, n := range h.Lab().Nodes {
		if group, missing := groups[n.Name]; missing {
			rows = append(rows, fleetRow{Name: n.Name, Group: group, State: stateNever})
		}
	}
	return rows
}

// fill counts rows, and takes those that the filter asks for.
func (d *fleetData) fill(rows []fleetRow) {
	count, changed := map[state]int{}, 0
	for _, r := range rows {
		count[r.State]++
		if len(r.Changes) > 0 {
			changed++
		}
	}
	d.Groups = groupsOf(rows, func(r fleetRow) string { return r.Group })
	d.Tiles, d.Total = tilesOf(d.Filter, count, changed), len(rows)
	rows = slices.DeleteFunc(rows, func(r fleetRow) bool { return !r.isFor(d.Filter) })
	d.table = tableOf(&d.Filter, rows, fleetOrders[d.Filter.Sort], func(r fleetRow) string { return r.Name })
	for i := range d.Rows {
		d.Rows[i].Spark = sparkline(d.Rows[i].trend)
	}
}
