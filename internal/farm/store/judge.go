package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mkp2pimg/internal/farm"
)

// Judgement is what a report says, held against the node's earlier runs.
type Judgement struct {
	At      time.Time
	Chunks  int           // of the report, that were read
	Live    bool          // the run was under way, and compared with nothing
	Summary *farm.Summary // nil where they say nothing
	Changes []farm.Change
	// Baselines are what the run was held against, one of a key; nil leaves those that
	// are known.
	Baselines []farm.Baseline
}

// Judge records what a report says. One about more chunks that is there already
// stays, and one of a run under way comes too late for a run that is over meanwhile.
func (s *Store) Judge(ctx context.Context, id string, j Judgement) error {
	return s.change(ctx, "record the summary of run "+id, func(ctx context.Context, tx *sql.Tx) error {
		var key int64
		var judged int
		var node string
		var state farm.State
		err := tx.QueryRowContext(ctx, `SELECT key, judged, node, state FROM runs WHERE id = $1`, id).Scan(&key, &judged, &node, &state)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return refusal{fmt.Errorf("run %s: %w", id, ErrNotFound)}
		case err != nil || judged > j.Chunks || j.Live && state.Over():
			return err
		}
		return writeJudgement(ctx, tx, key, node, j)
	})
}

func writeJudgement(ctx context.Context, tx *sql.Tx, run int64, node string, j Judgement) error {
	if err := writeSummary(ctx, tx, run, j); err != nil {
		return err
	}
	if err := writeTrend(ctx, tx, node); err != nil || j.Baselines == nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM baselines WHERE node = $1 AND by_hand = 0`, node); err != nil {
		return err
	}
	base := slices.Clone(j.Baselines)
	for i := range base {
		base[i].Node = node
	}
	return insertBaselines(ctx, tx, false, base)
}

// writeSummary writes the summary of a run and its changes in place of those that
// are there.
func writeSummary(ctx context.Context, tx *sql.Tx, run int64, j Judgement) error {
	for _, table := range []string{"pairs", "findings", "changes"} {
		if _, err := tx.ExecContext(ctx, `DELETE FROM `+table+` WHERE run = $1`, run); err != nil {
			return err
		}
	}
	sum, settings := farm.Summary{}, ""
	if j.Summary != nil {
		sum = *j.Summary
	}
	if len(sum.Settings) > 0 {
		settings = toJSON(sum.Settings)
	}
	var worst sql.NullFloat64
	if sum.Worst != nil {
		worst = sql.NullFloat64{Float64: finite(*sum.Worst), Valid: true}
	}
	worse := 0
	for _, c := range j.Changes {
		worse += flag(c.Worse)
	}
	_, err := tx.ExecContext(ctx, `UPDATE runs SET judged = $2, judged_at = $3, said = $4, verdict = $5, reason = $6, driver = $7,
		kernel = $8, product = $9, settings = $10, worst = $11, worse = $12 WHERE key = $1`,
		run, j.Chunks, micro(j.At), flag(j.Summary != nil), cleanKey(string(sum.Verdict)), clean(sum.Reason), clean(sum.Driver), clean(sum.Kernel),
		clean(sum.Product), clean(settings), worst, worse)
	if err != nil {
		return err
	}
	err = insert(ctx, tx, "pairs (run, n, initiator, peer, direction, method, gbps, ceiling, latency_ns, verdict)", sum.Pairs, func(n int, p farm.Pair) []any {
		return []any{run, n, clean(p.Initiator), clean(p.Peer), clean(p.Direction), clean(p.Method),
			finite(p.GBps), finite(p.Ceiling), finite(p.LatencyNS), clean(p.Verdict)}
	})
	if err != nil {
		return err
	}
	err = insert(ctx, tx, "findings (run, n, id, status, title, fix, devices)", sum.Findings, func(n int, f farm.Finding) []any {
		return []any{run, n, clean(string(f.ID)), clean(string(f.Status)), clean(f.Title), clean(f.Fix), clean(toJSON(f.Devices))}
	})
	if err != nil {
		return err
	}
	return insert(ctx, tx, "changes (run, n, kind, subject, before, after, worse, fix)", j.Changes, func(n int, c farm.Change) []any {
		return []any{run, n, clean(string(c.Kind)), clean(c.Subject), clean(c.Before), clean(c.After), flag(c.Worse), clean(c.Fix)}
	})
}

// writeTrend brings the trend of a node up to date: of each of its last nights,
// the newest run that is over.
func writeTrend(ctx context.Context, tx *sql.Tx, node string) error {
	rows, err := tx.QueryContext(ctx, `SELECT worst FROM runs r WHERE node = $1 AND state IN ('complete', 'lost')
		AND NOT EXISTS (SELECT 1 FROM runs later WHERE later.node = r.node AND later.night = r.night
			AND later.state IN ('complete', 'lost') AND later.offered > r.offered)
		ORDER BY night DESC LIMIT $2`, node, TrendNights)
	trend, err := collect(rows, err, func(scan func(...any) error) (float64, error) {
		var worst sql.NullFloat64
		err := scan(&worst)
		if !worst.Valid {
			return math.NaN(), err
		}
		return worst.Float64, err
	})
	if err != nil {
		return err
	}
	slices.Reverse(trend)
	_, err = tx.ExecContext(ctx, `UPDATE nodes SET trend = $2 WHERE name = $1`, node, formatTrend(trend))
	return err
}

// formatTrend is the form in which a trend is kept: "97.2,NaN,88.1".
func formatTrend(trend []float64) string {
	texts := make([]string, len(trend))
	for i, v := range trend {
		texts[i] = strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strings.Join(texts, ",")
}

// parseTrend reads what formatTrend wrote.
func parseTrend(text string) []float64 {
	var trend []float64
	for v := range strings.SplitSeq(text, ",") {
		if f, err := strconv.ParseFloat(v, 64); err == nil {
			trend = append(trend, f)
		}
	}
	return trend
}

// maxRows bounds the rows of one INSERT. SQLite looks for each $n of a statement
// among all before it: with 224 rows, 25 at a time took half the time of 10 or 100.
const maxRows = 25

// insert adds a row for each of some values. The table is given with its columns.
func insert[T any](ctx context.Context, tx *sql.Tx, table string, values []T, row func(n int, v T) []any) error {
	n := 0
	for part := range slices.Chunk(values, maxRows) {
		var rows []string
		var args []any
		for _, v := range part {
			var places []string
			for _, arg := range row(n, v) {
				args = append(args, arg)
				places = append(places, "$"+strconv.Itoa(len(args)))
			}
			rows = append(rows, "("+strings.Join(places, ", ")+")")
			n++
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO `+table+` VALUES `+strings.Join(rows, ", "), args...); err != nil {
			return err
		}
	}
	return nil
}
