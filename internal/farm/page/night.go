package page

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// shownNights are as many as the store's figures of a node go back.
const shownNights = 120

type nightsData struct {
	frame
	Nights  []nightCount
	Tonight string
}

func (h *handler) nights(w http.ResponseWriter, r *http.Request) {
	nights, err := h.Store.Nights(r.Context(), shownNights)
	if err != nil {
		h.broken(w, r, "nights", err)
		return
	}
	h.render(w, r, http.StatusOK, "nights", nightsData{h.frame(r, "Nights", "nights"), counts(nights), h.Lab().Night(h.now())})
}

// nightCount is what came of a night, in runs.
type nightCount struct {
	Night                                  string
	Runs, Complete, Lost, Live             int
	Ready, Degraded, Blocked, Other, Worse int
}

// counts sums up what the store counted.
func counts(nights []store.NightRow) []nightCount {
	var all []nightCount
	for _, n := range nights {
		c := nightCount{Night: n.Night, Complete: n.States[farm.Complete], Lost: n.States[farm.Lost], Live: n.States[farm.Offered] + n.States[farm.Running], Worse: n.Worse}
		c.Runs = c.Complete + c.Lost + c.Live
		for v, count := range n.Verdicts {
			switch verdictState(v) {
			case stateReady:
				c.Ready += count
			case stateDegraded:
				c.Degraded += count
			case stateBlocked:
				c.Blocked += count
			default:
				c.Other += count
			}
		}
		all = append(all, c)
	}
	return all
}

// nightRow is a node in the table of a night: its newest run of the night, or
// none yet.
type nightRow struct {
	Node, Group string
	State       state
	Run         *farm.Run
	Attempts    int
	Took        string
	Worse       int
}

// progress is how far a night is, in nodes.
type progress struct{ Total, Complete, Running, Lost, Waiting int }

// Over are the nodes of which nothing more is expected.
func (p progress) Over() int { return p.Complete + p.Lost }

type nightData struct {
	frame
	table[nightRow]
	Groups   []string
	Night    string
	Tonight  bool
	Progress progress
	Filter   filter
	Tiles    []tile
	States   []state
}

func (h *handler) night(w http.ResponseWriter, r *http.Request) {
	night := r.PathValue("night")
	if _, err := time.Parse(time.DateOnly, night); err != nil {
		h.fail(w, r, http.StatusNotFound, "A night is a date such as 2026-01-31.")
		return
	}
	runs, err := h.Store.Runs(r.Context(), store.Query{Night: night})
	if err != nil {
		h.broken(w, r, "night", err)
		return
	}
	data := nightData{frame: h.frame(r, "Night "+night, "nights"), Night: night, Tonight: night == h.Lab().Night(h.now()), Filter: readFilter(r.URL.Query()), States: states}
	if len(runs) == 0 && !data.Tonight {
		h.fail(w, r, http.StatusNotFound, "Nothing ran in this night.")
		return
	}
	data.fill(h.nightRows(runs, data.Tonight))
	h.render(w, r, http.StatusOK, "night", data)
}

// nightRows are the nodes that ran, and tonight those of the lab that are to.
// Runs are in the order of [store.Store.Runs].
func (h *handler) nightRows(runs []farm.Run, tonight bool) []nightRow {
	groups := map[string]string{}
	for _, n := range h.Lab().Nodes {
		groups[n.Name] = n.Group
	}
	var rows []nightRow
	for i := range runs {
		run := &runs[i]
		if n := len(rows); n > 0 && rows[n-1].Node == run.Node {
			rows[n-1].Attempts++
			continue
		}
		row := nightRow{Node: run.Node, Group: groups[run.Node], State: runState(run), Run: run, Attempts: 1}
		if !run.Started.IsZero() {
			row.Took = took(run.Updated.Sub(run.Started))
		}
		for _, c := range run.Changes {
			if c.Worse {
				row.Worse++
			}
		}
		rows = append(rows, row)
		delete(groups, run.Node)
	}
	if tonight {
		for _, n := range h.Lab().Nodes {
			if group, missing := groups[n.Name]; missing && n.Boot != lab.Never {
				rows = append(rows, nightRow{Node: n.Name, Group: group, State: stateNever})
			}
		}
	}
	return rows
}

// nightOrders are the orders of the table by column.
var nightOrders = map[string]func(a, b nightRow) int{
	"attention": func(a, b nightRow) int {
		return cmp.Or(cmp.Compare(slices.Index(states, a.State), slices.Index(states, b.State)), cmp.Compare(b.Worse, a.Worse))
	},
	"node":    func(_, _ nightRow) int { return 0 },
	"worst":   func(a, b nightRow) int { return cmp.Compare(orMore(a.worst()), orMore(b.worst())) },
	"changes": func(a, b nightRow) int { return cmp.Compare(b.Worse, a.Worse) },
	"seen":    func(a, b nightRow) int { return b.Heard().Compare(a.Heard()) },
}

func (r nightRow) worst() *float64 {
	if r.Run == nil || r.Run.Summary == nil {
		return nil
	}
	return r.Run.Summary.Worst
}

// Heard is when the node was last heard of in the night.
func (r nightRow) Heard() time.Time {
	if r.Run == nil {
		return time.Time{}
	}
	return cmp.Or(r.Run.Updated, r.Run.Offered)
}

// isFor tells whether a row is what a filter asks for.
func (r nightRow) isFor(f filter) bool {
	if f.State != "" && f.State != r.State || f.Group != "" && f.Group != r.Group || f.Changed && (r.Run == nil || len(r.Run.Changes) == 0) {
		return false
	}
	texts := []string{r.Node, r.Group, string(r.State)}
	if r.Run != nil {
		texts = append(texts, r.Run.Stage, r.Run.Why)
		if r.Run.Summary != nil {
			texts = append(texts, r.Run.Summary.Reason)
		}
	}
	return contains(f.words(), texts...)
}

// fill counts rows, and takes those that the filter asks for.
func (d *nightData) fill(rows []nightRow) {
	count, changed := map[state]int{}, 0
	p := &d.Progress
	for _, r := range rows {
		count[r.State]++
		p.Total++
		switch {
		case r.Run == nil, r.Run.State == farm.Offered:
			p.Waiting++
		case r.Run.State == farm.Running:
			p.Running++
		case r.Run.State == farm.Lost:
			p.Lost++
		default:
			p.Complete++
		}
		if r.Run != nil && len(r.Run.Changes) > 0 {
			changed++
		}
	}
	switch {
	case p.Running > 0 || p.Waiting > 0 && !d.Tonight:
		d.Every = 3
	case d.Tonight:
		d.Every = 10
	}
	d.Groups = groupsOf(rows, func(r nightRow) string { return r.Group })
	d.Tiles = tilesOf(d.Filter, count, changed)
	rows = slices.DeleteFunc(rows, func(r nightRow) bool { return !r.isFor(d.Filter) })
	d.table = tableOf(&d.Filter, rows, nightOrders[d.Filter.Sort], func(r nightRow) string { return r.Node })
}
