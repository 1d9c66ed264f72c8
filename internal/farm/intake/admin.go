package intake

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
)

func (in *Intake) getReport(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, err := runID(r)
	if err != nil {
		return nil, err
	}
	return in.Store.Report(r.Context(), id)
}

// nightRuns are the runs of a night.
type nightRuns struct {
	Night string     `json:"night"`
	Runs  []farm.Run `json:"runs"`
}

func (in *Intake) getNight(_ http.ResponseWriter, r *http.Request) (any, error) {
	night, err := parseNight(r.PathValue("night"))
	if err != nil {
		return nil, err
	}
	runs, err := in.Store.Runs(r.Context(), store.Query{Night: night})
	return nightRuns{night, list(runs)}, err
}

func (in *Intake) getRuns(_ http.ResponseWriter, r *http.Request) (any, error) {
	q := store.Query{Node: r.PathValue("node")}
	if !in.Known(q.Node) {
		return nil, unknown(q.Node)
	}
	if text := r.FormValue("night"); text != "" {
		var err error
		if q.Night, err = parseNight(text); err != nil {
			return nil, err
		}
	}
	runs, err := in.Store.Runs(r.Context(), q)
	return list(runs), err
}

// list makes an empty list of none, for JSON.
func list(runs []farm.Run) []farm.Run {
	if runs == nil {
		return []farm.Run{}
	}
	return runs
}

// maxArm bounds the body of a request that arms a node.
const maxArm = 4 << 10

// maxAttempts bounds the runs that arming may ask for.
const maxAttempts = 100

func (in *Intake) arm(_ http.ResponseWriter, r *http.Request) (any, error) {
	a, err := in.armed(r)
	if err != nil {
		return nil, err
	}
	body := json.NewDecoder(io.LimitReader(r.Body, maxArm))
	body.DisallowUnknownFields()
	want := struct {
		Image    string `json:"image"`
		Plan     string `json:"plan"`
		Attempts int    `json:"attempts"`
		Deadline string `json:"deadline"`
	}{Attempts: 1}
	if err := body.Decode(&want); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body: %w", err)
	}
	if want.Attempts < 1 || want.Attempts > maxAttempts {
		return nil, refuse(http.StatusBadRequest, "attempts: %d is not within 1 and %d", want.Attempts, maxAttempts)
	}
	if want.Deadline != "" {
		if a.Deadline, err = time.ParseDuration(want.Deadline); err != nil || a.Deadline <= 0 {
			return nil, refuse(http.StatusBadRequest, `deadline: %q is not a time such as "30m"`, want.Deadline)
		}
	}
	a.Image, a.Plan, a.Attempts, a.At = want.Image, want.Plan, want.Attempts, in.Now()
	return a, in.Store.Arm(r.Context(), a)
}

func (in *Intake) disarm(_ http.ResponseWriter, r *http.Request) (any, error) {
	a, err := in.armed(r)
	if err != nil {
		return nil, err
	}
	return struct{}{}, in.Store.Disarm(r.Context(), a.Night, a.Node)
}

// armed returns the night and the node of a request's path.
func (in *Intake) armed(r *http.Request) (store.Armed, error) {
	night, err := parseNight(r.PathValue("night"))
	if err != nil {
		return store.Armed{}, err
	}
	node := r.PathValue("node")
	if !in.Known(node) {
		return store.Armed{}, unknown(node)
	}
	return store.Armed{Night: night, Node: node}, nil
}

func unknown(node string) error { return refuse(http.StatusNotFound, "there is no node %q", node) }

// parseNight takes a night as in 2006-01-02.
func parseNight(text string) (string, error) {
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return "", refuse(http.StatusBadRequest, "%q is not a night such as 2026-03-05", text)
	}
	return text, nil
}
