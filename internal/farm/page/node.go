package page

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
)

const (
	// shownPlots are those that a reader sees at once, the remarkable ones first;
	// the others are folded away.
	shownPlots = 12
	// shownRuns are the runs in the table of a node.
	shownRuns = 30
)

// latencyName stands for the latencies where a way is chosen.
const latencyName = "latency"

type nodeData struct {
	frame
	reportView
	Name, Group string
	Node        farm.Node
	Known       bool // the store has seen it
	State       state
	Run         *farm.Run // the last that says something, if there is one over that does; nil before the first
	Live        *farm.Run // that is under way
	Changes     []farm.Change
	Heats       []heat
	GPUs        []string

	Ways      []choice
	Plots     []series // to be seen at once
	MorePlots []series
	Baselines []baselineRow
	Settings  [][2]string
	Runs      []farm.Run // the newest first
	Older     int        // runs beyond those
}

// choice is one of several things to see.
type choice struct {
	Text, Href string
	Chosen     bool
}

// baselineRow is a baseline with what it allows.
type baselineRow struct {
	farm.Baseline
	What      string
	Low, High float64
	Last      *float64 // of the last run
}

func (h *handler) node(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("node")
	configured, inLab := h.Lab().Named(name)
	n, err := h.Store.Node(r.Context(), name)
	if err != nil && !inLab {
		h.broken(w, r, "node", err)
		return
	}
	data := nodeData{frame: h.frame(r, name, "fleet"), Name: name, Node: n, Known: err == nil, State: stateNever}
	if inLab {
		data.Group = configured.Group
	}
	runs, err := h.Store.History(r.Context(), name, judge.Depth)
	if err != nil {
		h.broken(w, r, "node", err)
		return
	}
	base, err := h.Store.Baselines(r.Context(), name)
	if err != nil {
		h.broken(w, r, "node", err)
		return
	}
	data.fill(runs, base, r.URL.Query().Get("way"))
	if data.Run != nil {
		data.reportView = h.view(r.Context(), *data.Run)
	}
	h.render(w, r, http.StatusOK, "node", data)
}

// fill makes what the page shows of runs, the oldest first.
func (d *nodeData) fill(runs []farm.Run, base []farm.Baseline, chosen string) {
	runs = slices.Clone(runs)
	slices.Reverse(runs)   // the newest first
	var measured *farm.Run // the same, with figures: the last may have hung before
	for i := range runs {
		run := &runs[i]
		if i == 0 {
			d.State = runState(run)
			if !run.State.Over() {
				d.Live, d.Every = run, 10
			}
		}
		// A run that is under way says less than the one before.
		if run.Summary != nil && (d.Run == nil || d.Run == d.Live) {
			d.Run = run
		}
		if run.Summary != nil && len(run.Summary.Pairs) > 0 && (measured == nil || measured == d.Live) {
			measured = run
		}
	}
	d.Runs, d.Older = runs[:min(len(runs), shownRuns)], max(len(runs)-shownRuns, 0)
	if d.Run == nil {
		return
	}
	sum := d.Run.Summary
	d.Changes = d.Run.Changes
	d.Heats = heats(sum.Pairs)
	if measured != nil {
		d.GPUs = gpusOf(measured.Summary.Pairs)
		d.plot(runs, measured.Summary.Pairs, base, chosen)
	}
	for name, value := range sum.Settings {
		d.Settings = append(d.Settings, [2]string{name, value})
	}
	slices.SortFunc(d.Settings, func(a, b [2]string) int { return cmp.Compare(a[0], b[0]) })
	d.baselines(base, sum.Pairs)
}

// plot chooses the way whose history is drawn: the one that was asked for, else
// the first that pairs have.
func (d *nodeData) plot(runs []farm.Run, pairs []farm.Pair, base []farm.Baseline, chosen string) {
	have := waysOf(pairs)
	if len(have) == 0 {
		return
	}
	var names []string
	words := map[string]string{}
	for _, w := range have {
		names = append(names, w.String())
		words[w.String()] = w.Direction + ", " + w.Method
	}
	if slices.ContainsFunc(pairs, func(p farm.Pair) bool { return p.LatencyNS > 0 }) {
		names = append(names, latencyName)
		words[latencyName] = latencyName
	}
	if !slices.Contains(names, chosen) {
		chosen = names[0]
	}
	for _, name := range names {
		d.Ways = append(d.Ways, choice{words[name], "?way=" + name + "#history", name == chosen})
	}
	var w way // of latencies
	if i := slices.Index(names, chosen); i < len(have) {
		w = have[i]
	}
	all := allSeries(runs, base, w)
	for i := range all {
		all[i].Name = d.gpu(all[i].Pair.Initiator) + " → " + d.gpu(all[i].Pair.Peer)
	}
	slices.SortStableFunc(all, func(a, b series) int {
		if a.IsOut != b.IsOut {
			if a.IsOut {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.Pair.Initiator, b.Pair.Initiator), cmp.Compare(a.Pair.Peer, b.Pair.Peer))
	})
	d.Plots = all[:min(len(all), shownPlots)]
	d.MorePlots = all[len(d.Plots):min(len(all), maxGPUs*maxGPUs)]
}

// gpu is what the page calls a GPU.
func (d *nodeData) gpu(bdf string) string {
	if i, ok := slices.BinarySearch(d.GPUs, bdf); ok {
		return fmt.Sprintf("GPU %d", i)
	}
	return bdf
}

// baselines sets what is normal beside what the last run had.
func (d *nodeData) baselines(base []farm.Baseline, pairs []farm.Pair) {
	type named struct {
		what string
		last float64
	}
	known := map[judge.Key]named{}
	for _, p := range pairs {
		between := d.gpu(p.Initiator) + " → " + d.gpu(p.Peer)
		known[judge.Bandwidth(p)] = named{between + " " + p.Direction + ", " + p.Method, p.GBps}
		if p.LatencyNS > 0 {
			known[judge.Latency(p)] = named{between + " latency", p.LatencyNS}
		}
	}
	for _, b := range base {
		row := baselineRow{Baseline: b, What: b.Key}
		row.Low, row.High = judge.Limits(b)
		if n, ok := known[judge.Key(b.Key)]; ok {
			row.What = n.what
			if n.last > 0 {
				row.Last = &n.last
			}
		}
		d.Baselines = append(d.Baselines, row)
	}
}

// pin pins what is normal now, or the figure of the last run, or lets the node be
// learned about again.
func (h *handler) pin(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("node")
	if !h.admin(r) {
		h.fail(w, r, http.StatusForbidden, "Changing a baseline needs the administrator's token: log in first.")
		return
	}
	ctx, key := r.Context(), r.PostFormValue("key")
	base, err := h.Store.Baselines(ctx, name)
	if err != nil {
		h.broken(w, r, "node", err)
		return
	}
	i := slices.IndexFunc(base, func(b farm.Baseline) bool { return b.Key == key })
	if i < 0 {
		h.fail(w, r, http.StatusNotFound, "The node has no such baseline.")
		return
	}
	b := base[i]
	b.Node, b.Pinned = name, true
	switch r.PostFormValue("do") {
	case "pin":
		err = h.Store.Pin(ctx, b)
	case "pin-last":
		var runs []farm.Run
		if runs, err = h.Store.History(ctx, name, 1); err != nil {
			break
		}
		v, ok := lastFigure(runs, key)
		if !ok {
			h.fail(w, r, http.StatusConflict, "The last run has no verified figure to pin.")
			return
		}
		b.Median, b.Runs = v, 1
		err = h.Store.Pin(ctx, b)
	case "unpin":
		err = h.Store.Unpin(ctx, name, key)
	default:
		h.fail(w, r, http.StatusBadRequest, "A baseline can be pinned or unpinned.")
		return
	}
	if err != nil {
		h.broken(w, r, "baseline", err)
		return
	}
	http.Redirect(w, r, nodePath(name)+"#baselines", http.StatusSeeOther)
}

// lastFigure is the figure of a key in the last of runs, if it was verified.
func lastFigure(runs []farm.Run, key string) (float64, bool) {
	if len(runs) == 0 || runs[len(runs)-1].Summary == nil {
		return 0, false
	}
	for _, p := range runs[len(runs)-1].Summary.Pairs {
		switch {
		case !verified(p):
		case judge.Key(key) == judge.Bandwidth(p) && p.GBps > 0:
			return p.GBps, true
		case judge.Key(key) == judge.Latency(p) && p.LatencyNS > 0:
			return p.LatencyNS, true
		}
	}
	return 0, false
}
