package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
)

// Query selects runs. Its zero value selects all.
type Query struct {
	Node  string // empty: any
	Night string // empty: any
	Since string // nights from this one on
	State farm.State
	Limit int // of the newest; 0: all
	// Whole wants Settings, Pairs and Findings of the summaries as well. Without,
	// a summary has its other fields.
	Whole bool
}

// where returns the condition of the query, and its arguments.
func (q Query) where() (string, []any) {
	var conds []string
	var args []any
	add := func(cond string, arg any) {
		args = append(args, arg)
		conds = append(conds, fmt.Sprintf("%s $%d", cond, len(args)))
	}
	if q.Node != "" {
		add("node =", q.Node)
	}
	if q.Night != "" {
		add("night =", q.Night)
	}
	if q.Since != "" {
		add("night >=", q.Since)
	}
	if q.State != "" {
		add("state =", string(q.State))
	}
	if len(conds) == 0 {
		return "1 = 1", nil
	}
	return strings.Join(conds, " AND "), args
}

// Runs returns the runs that a query selects, with their changes: newest night
// first, in a night by node, and of a node the newest first.
func (s *Store) Runs(ctx context.Context, q Query) ([]farm.Run, error) {
	where, args := q.where()
	where += " ORDER BY night DESC, node, offered DESC"
	if q.Limit > 0 {
		where += fmt.Sprintf(" LIMIT %d", q.Limit)
	}
	return s.runs(ctx, "read runs", q.Whole, where, args...)
}

// Run returns a run with all that is known about it, or [ErrNotFound].
func (s *Store) Run(ctx context.Context, id string) (farm.Run, error) {
	return one(s.runs(ctx, "read run "+id, true, "id = $1", id))("run " + id)
}

// History returns the last n runs of a node with all that is known about them,
// oldest first.
func (s *Store) History(ctx context.Context, node string, n int) ([]farm.Run, error) {
	runs, err := s.Runs(ctx, Query{Node: node, Limit: n, Whole: true})
	slices.Reverse(runs)
	return runs, err
}

// Overdue returns the runs that are not over, whose deadline has passed, and of
// which nothing has arrived for the time quiet.
func (s *Store) Overdue(ctx context.Context, at time.Time, quiet time.Duration) ([]farm.Run, error) {
	return s.runs(ctx, "read overdue runs", false, "state IN ('offered', 'running') AND deadline > 0 AND deadline < $1 AND updated < $2 ORDER BY deadline",
		micro(at), micro(at.Add(-quiet)))
}

// Unjudged returns runs of which something has arrived, or that were lost, since
// they were judged: n at most, first those that are over, then those under way
// that were not judged after a time.
func (s *Store) Unjudged(ctx context.Context, n int, after time.Time) ([]farm.Run, error) {
	return s.runs(ctx, "read runs to judge", false, `judged < chunks AND (state IN ('complete', 'lost') OR state = 'running' AND judged_at <= $1)
		ORDER BY state = 'running', updated LIMIT $2`, micro(after), n)
}

// one returns a function that takes the only one of some values.
func one[T any](all []T, err error) func(what string) (T, error) {
	return func(what string) (T, error) {
		var none T
		switch {
		case err != nil:
			return none, err
		case len(all) == 0:
			return none, fmt.Errorf("%s: %w", what, ErrNotFound)
		}
		return all[0], nil
	}
}

// collect returns what scan makes of each row.
func collect[T any](rows *sql.Rows, err error, scan func(scan func(...any) error) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

const runColumns = `key, id, node, night, source, state, why, image, plan, offered, started, updated, ended, deadline,
	chunks, bytes, stage, judged >= chunks, said, verdict, reason, driver, kernel, product, worst`

// runRow is a row of runs.
type runRow struct {
	farm.Run
	key                                        int64
	offered, started, updated, ended, deadline int64
	said                                       bool
	summary                                    farm.Summary
	settings                                   string
}

func (r *runRow) fields() []any {
	return []any{&r.key, &r.ID, &r.Node, &r.Night, &r.Source, &r.State, &r.Why, &r.Image, &r.Plan, &r.offered, &r.started,
		&r.updated, &r.ended, &r.deadline, &r.Chunks, &r.Bytes, &r.Stage, &r.Judged, &r.said, &r.summary.Verdict, &r.summary.Reason,
		&r.summary.Driver, &r.summary.Kernel, &r.summary.Product, &r.summary.Worst}
}

// run returns the run of the row.
func (r *runRow) run() (farm.Run, error) {
	r.Offered, r.Started, r.Updated = fromMicro(r.offered), fromMicro(r.started), fromMicro(r.updated)
	r.Ended, r.Deadline = fromMicro(r.ended), fromMicro(r.deadline)
	if r.said {
		r.Summary = &r.summary
	}
	if r.settings == "" {
		return r.Run, nil
	}
	return r.Run, json.Unmarshal([]byte(r.settings), &r.summary.Settings)
}

// runs returns the runs that a condition selects, in its order. The condition
// names columns of runs.
func (s *Store) runs(ctx context.Context, what string, whole bool, where string, args ...any) ([]farm.Run, error) {
	var runs []farm.Run
	err := s.read(ctx, what, func(tx *sql.Tx) error {
		columns := runColumns
		if whole {
			columns += ", settings"
		}
		at := map[int64]int{} // by key, place in runs
		rows, err := tx.QueryContext(ctx, `SELECT `+columns+` FROM runs WHERE `+where, args...)
		runs, err = collect(rows, err, func(scan func(...any) error) (farm.Run, error) {
			r := new(runRow) // of its own: run keeps its summary
			fields := r.fields()
			if whole {
				fields = append(fields, &r.settings)
			}
			if err := scan(fields...); err != nil {
				return farm.Run{}, err
			}
			at[r.key] = len(at)
			return r.run()
		})
		if err != nil || len(runs) == 0 {
			return err
		}
		return details(ctx, tx, whole, `SELECT key FROM runs WHERE `+where, args, func(key int64) *farm.Run {
			if i, ok := at[key]; ok {
				return &runs[i]
			}
			return nil
		})
	})
	return runs, err
}

// details reads the changes of the runs with the keys that a statement selects,
// and with whole their pairs and findings as well.
func details(ctx context.Context, tx *sql.Tx, whole bool, keys string, args []any, run func(key int64) *farm.Run) error {
	read := func(table, columns string, row func(scan func(...any) error) error) error {
		rows, err := tx.QueryContext(ctx, `SELECT run, `+columns+` FROM `+table+` WHERE run IN (`+keys+`) ORDER BY run, n`, args...)
		_, err = collect(rows, err, func(scan func(...any) error) (struct{}, error) { return struct{}{}, row(scan) })
		return err
	}
	var key int64
	err := read("changes", "kind, subject, before, after, worse, fix", func(scan func(...any) error) error {
		var c farm.Change
		err := scan(&key, &c.Kind, &c.Subject, &c.Before, &c.After, &c.Worse, &c.Fix)
		if r := run(key); r != nil {
			r.Changes = append(r.Changes, c)
		}
		return err
	})
	if err != nil || !whole {
		return err
	}
	err = read("pairs", "initiator, peer, direction, method, gbps, ceiling, latency_ns, verdict", func(scan func(...any) error) error {
		var p farm.Pair
		err := scan(&key, &p.Initiator, &p.Peer, &p.Direction, &p.Method, &p.GBps, &p.Ceiling, &p.LatencyNS, &p.Verdict)
		if r := run(key); r != nil && r.Summary != nil {
			r.Summary.Pairs = append(r.Summary.Pairs, p)
		}
		return err
	})
	if err != nil {
		return err
	}
	return read("findings", "id, status, title, fix, devices", func(scan func(...any) error) error {
		var f farm.Finding
		var devices string
		if err := scan(&key, &f.ID, &f.Status, &f.Title, &f.Fix, &devices); err != nil {
			return err
		}
		if r := run(key); r != nil && r.Summary != nil {
			if err := json.Unmarshal([]byte(devices), &f.Devices); err != nil {
				return err
			}
			r.Summary.Findings = append(r.Summary.Findings, f)
		}
		return nil
	})
}

// FleetRow is a node with what the table of all nodes shows of it.
type FleetRow struct {
	Node farm.Node
	// Last is the newest run with its changes, nil where the node has none. Its
	// summary is without Settings, Pairs and Findings.
	Last *farm.Run
	// Trend is [farm.Summary.Worst] of the node's last nights that ended, [TrendNights]
	// at most, oldest first; NaN where a night's run has none.
	Trend []float64
}

// TrendNights is the number of nights that a [FleetRow] looks back.
const TrendNights = 30

// Fleet returns all nodes by name.
func (s *Store) Fleet(ctx context.Context) ([]FleetRow, error) {
	var fleet []FleetRow
	err := s.read(ctx, "read the fleet", func(tx *sql.Tx) error {
		nodes, err := fleetNodes(ctx, tx)
		if err != nil {
			return err
		}
		last := map[int64]*farm.Run{}
		rows, err := tx.QueryContext(ctx, `SELECT `+runColumns+` FROM runs WHERE key IN (SELECT last_run FROM nodes)`)
		_, err = collect(rows, err, func(scan func(...any) error) (struct{}, error) {
			r := new(runRow)
			if err := scan(r.fields()...); err != nil {
				return struct{}{}, err
			}
			run, err := r.run()
			last[r.key] = &run
			return struct{}{}, err
		})
		if err != nil {
			return err
		}
		if err := details(ctx, tx, false, `SELECT last_run FROM nodes`, nil, func(key int64) *farm.Run { return last[key] }); err != nil {
			return err
		}
		fleet = make([]FleetRow, len(nodes))
		for i, n := range nodes {
			fleet[i] = FleetRow{Node: n.n, Last: last[n.lastRun], Trend: parseTrend(n.trend)}
			if r := fleet[i].Last; r != nil && r.Updated.After(n.n.LastSeen) {
				fleet[i].Node.LastSeen = r.Updated
			}
		}
		return nil
	})
	return fleet, err
}

type fleetNode struct {
	n       farm.Node
	lastRun int64
	trend   string
}

func fleetNodes(ctx context.Context, tx *sql.Tx) ([]fleetNode, error) {
	rows, err := tx.QueryContext(ctx, `SELECT name, mac, uuid, serial, first_seen, last_seen, last_run, trend FROM nodes ORDER BY name`)
	return collect(rows, err, func(scan func(...any) error) (fleetNode, error) {
		var f fleetNode
		var first, seen int64
		err := scan(&f.n.Name, &f.n.MAC, &f.n.UUID, &f.n.Serial, &first, &seen, &f.lastRun, &f.trend)
		f.n.FirstSeen, f.n.LastSeen = fromMicro(first), fromMicro(seen)
		return f, err
	})
}

// NightRow counts the runs of a night.
type NightRow struct {
	Night    string
	States   map[farm.State]int
	Verdicts map[checks.Verdict]int // of runs that have one
	Worse    int                    // runs with a change for the worse
}

// Nights returns the last n nights that have runs, newest first.
func (s *Store) Nights(ctx context.Context, n int) ([]NightRow, error) {
	var nights []NightRow
	err := s.read(ctx, "read nights", func(tx *sql.Tx) error {
		// A step of the recursion looks the next older night up in the index
		// runs_of_night, instead of reading all runs; the counts are from it as well.
		rows, err := tx.QueryContext(ctx, `WITH RECURSIVE nights (night) AS (
				SELECT max(night) FROM runs
				UNION ALL
				SELECT (SELECT max(night) FROM runs WHERE night < nights.night) FROM nights WHERE night IS NOT NULL
			), last (night) AS (SELECT night FROM nights WHERE night IS NOT NULL LIMIT $1)
			SELECT night, state, verdict, worse, count(*) FROM runs WHERE night IN (SELECT night FROM last)
			GROUP BY night, state, verdict, worse ORDER BY night DESC`, n)
		_, err = collect(rows, err, func(scan func(...any) error) (struct{}, error) {
			var night string
			var state farm.State
			var verdict checks.Verdict
			var worse, count int
			err := scan(&night, &state, &verdict, &worse, &count)
			if len(nights) == 0 || nights[len(nights)-1].Night != night {
				nights = append(nights, NightRow{night, map[farm.State]int{}, map[checks.Verdict]int{}, 0})
			}
			last := &nights[len(nights)-1]
			last.States[state] += count
			if verdict != "" {
				last.Verdicts[verdict] += count
			}
			if worse > 0 {
				last.Worse += count
			}
			return struct{}{}, err
		})
		return err
	})
	return nights, err
}
