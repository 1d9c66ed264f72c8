package page

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"slices"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/benchview"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// maxDevices bounds the drawing: a report may claim any number of PCI functions.
const maxDevices = 2048

// reportView is what pages show of a report beyond its summary.
type reportView struct {
	NoReport   string // why there is nothing of it
	Findings   []checks.Finding
	Passed     []checks.Finding // those that need no attention
	Drawing    template.HTML
	Tree       string // the same as text
	Arms       *arms.Comparison
	ArmTotals  []arms.Total
	Measured   bool // there is a page of all that was measured
	parsed     *report.Run
	unreadable string // facts that could not be read, and why
}

// maxShown is the size of the largest report that pages read, in bytes. Whole
// reports have a few MiB; anybody may ask for a page, and reading takes a
// multiple of it in memory.
const maxShown = 16 << 20

var errLarge = errors.New("too large to be shown")

// view reads the report of a run. What can't be read is said, not an error: the
// summary is shown all the same.
func (h *handler) view(ctx context.Context, run farm.Run) reportView {
	var v reportView
	parsed, err := h.parse(ctx, run)
	switch {
	case errors.Is(err, errLarge):
		v.NoReport = fmt.Sprintf("The report, %s, is too large to be shown; what is shown was kept of it.", mebi(run.Bytes))
	case errors.Is(err, store.ErrRemoved):
		v.NoReport = "The report was removed after its time of retention; what is shown was kept of it."
	case errors.Is(err, report.ErrNoReport), errors.Is(err, store.ErrNotFound):
		v.NoReport = "Nothing of the report has arrived."
	case err != nil:
		h.Log.Error("page: report", "run", run.ID, "error", err)
		v.NoReport = "The report could not be read; the log of the server says why."
	}
	if err != nil {
		if run.Summary != nil {
			v.sort(summarised(run.Summary.Findings))
		}
		return v
	}
	v.parsed = parsed
	v.sort(parsed.Findings)
	v.draw(parsed.Facts)
	if c := parsed.Comparison; c != nil {
		v.Arms, v.ArmTotals = c, c.Totals()
	}
	v.Measured = parsed.Result != nil
	return v
}

func (h *handler) parse(ctx context.Context, run farm.Run) (*report.Run, error) {
	if run.Bytes > maxShown {
		return nil, errLarge
	}
	r, err := h.Store.Report(ctx, run.ID)
	if err != nil {
		return nil, err
	}
	return report.Parse(r)
}

// summarised are findings as far as summaries have them.
func summarised(all []farm.Finding) []checks.Finding {
	var out []checks.Finding
	for _, f := range all {
		out = append(out, checks.Finding{ID: f.ID, Status: f.Status, Title: f.Title, Fix: f.Fix, Devices: f.Devices})
	}
	return out
}

// attention is the order of findings, and which of them are shown at once.
var attention = []checks.Status{checks.Fail, checks.Unknown, checks.Warn}

// sort puts findings into the order in which a reader needs them.
func (v *reportView) sort(all []checks.Finding) {
	for _, f := range all {
		if slices.Contains(attention, f.Status) {
			v.Findings = append(v.Findings, f)
		} else {
			v.Passed = append(v.Passed, f)
		}
	}
	slices.SortStableFunc(v.Findings, func(a, b checks.Finding) int {
		return cmp.Compare(slices.Index(attention, a.Status), slices.Index(attention, b.Status))
	})
}

// draw makes the drawing of the PCI tree.
func (v *reportView) draw(raw json.RawMessage) {
	if raw == nil {
		return
	}
	f, err := facts.Load(bytes.NewReader(raw))
	if err != nil {
		v.unreadable = err.Error()
		return
	}
	if len(f.GPUs()) == 0 {
		return
	}
	if len(f.Devices) > maxDevices {
		v.unreadable = fmt.Sprintf("%d PCI functions are more than are drawn", len(f.Devices))
		return
	}
	g := topology.New(f)
	var svg, tree bytes.Buffer // which take everything
	_ = g.WriteSVG(&svg)
	_ = g.WriteTree(&tree, topology.UTF8)
	v.Drawing = template.HTML(svg.String()) //nolint:gosec // the drawing escapes what it was given
	v.Tree = tree.String()
}

// NoDrawing says why there is no drawing, if it is not for want of GPUs.
func (v reportView) NoDrawing() string { return v.unreadable }

// stage is a step of a run as its page shows it.
type stage struct {
	*report.StepResult
	Status state
	Took   string
	Lines  []string
}

// The states of stages.
const (
	stageDone    state = "done"
	stageFailed  state = "error"
	stageSkipped state = "skipped"
)

// stages are the steps of a report; one that has not ended is running or, if the
// run is over, where it hung.
func stages(parsed *report.Run, over bool) []stage {
	var all []stage
	for _, s := range parsed.Steps {
		st := stage{StepResult: s, Status: stateRunning}
		switch s.Status {
		case report.StatusComplete:
			st.Status = stageDone
		case report.StatusError:
			st.Status = stageFailed
		case report.StatusSkip:
			st.Status = stageSkipped
		default:
			if over {
				st.Status = stateLost
			}
		}
		if !s.Started.IsZero() && !s.Ended.IsZero() {
			st.Took = fmt.Sprintf("%.1f s", s.Ended.Sub(s.Started).Seconds())
		}
		for _, l := range s.Logs {
			st.Lines = append(st.Lines, string(l.Severity)+" "+l.Message)
		}
		for _, e := range s.Errors {
			st.Lines = append(st.Lines, "ERROR "+e.Symptom+": "+e.Message)
		}
		all = append(all, st)
	}
	return all
}

type runData struct {
	frame
	reportView
	Run    farm.Run
	State  state
	Heats  []heat
	GPUs   []string
	Stages []stage
	Log    []string // of the run itself
	Gaps   []string // what of the report is missing or was not used
	Took   string
}

func (h *handler) run(w http.ResponseWriter, r *http.Request) {
	run, err := h.Store.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		h.broken(w, r, "run", err)
		return
	}
	data := runData{frame: h.frame(r, run.Node+", night "+run.Night, "nights"), Run: run, State: runState(&run)}
	if !run.State.Over() {
		data.Every = 3
	}
	if s := run.Summary; s != nil {
		data.Heats, data.GPUs = heats(s.Pairs), gpusOf(s.Pairs)
	}
	if !run.Started.IsZero() {
		data.Took = took(cmp.Or(run.Ended, run.Updated).Sub(run.Started))
	}
	data.reportView = h.view(r.Context(), run)
	if p := data.parsed; p != nil {
		data.Stages = stages(p, run.State.Over())
		data.rest(p)
	}
	h.render(w, r, http.StatusOK, "run", data)
}

// maxGaps bounds what is said of lines that were not used.
const maxGaps = 20

// rest is what else the report says, and what of it is missing.
func (d *runData) rest(p *report.Run) {
	for _, l := range p.Logs {
		d.Log = append(d.Log, string(l.Severity)+" "+l.Message)
	}
	for _, e := range p.Errors {
		if e.Step == "" {
			d.Log = append(d.Log, "ERROR "+e.Symptom+": "+e.Message)
		}
	}
	if p.Missing > 0 {
		d.Gaps = append(d.Gaps, fmt.Sprintf("%d lines of the report are missing.", p.Missing))
	}
	for i, s := range p.Skipped {
		if i == maxGaps {
			d.Gaps = append(d.Gaps, fmt.Sprintf("And %d lines more.", len(p.Skipped)-maxGaps))
			break
		}
		d.Gaps = append(d.Gaps, fmt.Sprintf("Line %d was not used, %s: %s", s.Line, s.Why, s.Text))
	}
}

// report answers with the report as it arrived, as a file to keep: nothing of it
// is to be shown by the browser.
func (h *handler) report(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("run")
	run, err := h.Store.Run(r.Context(), id)
	if err != nil {
		h.broken(w, r, "run", err)
		return
	}
	body, err := h.Store.Report(r.Context(), id)
	if err != nil {
		h.broken(w, r, "report", err)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "application/x-ndjson")
	head.Set("Content-Disposition", fmt.Sprintf(`attachment; filename="%s-%s.jsonl"`, plain(run.Node), plain(run.Night)))
	head.Set("Cache-Control", "no-cache, private")
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.Copy(w, body); err != nil && r.Context().Err() == nil {
		h.Log.Error("page: report", "run", id, "error", err)
	}
}

// plain keeps of a name what is safe in the name of a file.
func plain(s string) string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' {
			return c
		}
		return '_'
	}, s)
}

// measurements answers with the page that p2pbw's results have on their own. It
// brings its style in itself; it has no script, and none would run.
func (h *handler) measurements(w http.ResponseWriter, r *http.Request) {
	run, err := h.Store.Run(r.Context(), r.PathValue("run"))
	if err != nil {
		h.broken(w, r, "run", err)
		return
	}
	v := h.view(r.Context(), run)
	if !v.Measured {
		h.fail(w, r, http.StatusNotFound, "Nothing was measured in this run.")
		return
	}
	page := benchview.Report{Machine: [][2]string{{"node", run.Node}, {"night", run.Night}}, Findings: v.Findings, Result: v.parsed.Result, Comparison: v.Arms}
	if answer := v.parsed.Verdict; answer != nil {
		page.Verdict, page.Reason = answer.Verdict, answer.Reason
	} else {
		page.Verdict, page.Reason = checks.VerdictUnknown, "no verdict was reached"
	}
	var b bytes.Buffer
	if err := page.WriteHTML(&b); err != nil {
		h.broken(w, r, "measurements", err)
		return
	}
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(b.Bytes()) // to a browser that may have gone
}

// verified tells whether the data of a pair arrived as sent.
func verified(p farm.Pair) bool {
	_, bad := spoilt[measure.Verdict(p.Verdict)]
	return !bad
}
