package store

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

// Policy says how long what is kept, from the end of a run; zero is for ever.
type Policy struct {
	Reports   time.Duration // the reports as they arrived
	Summaries time.Duration // the runs with their summaries and changes, and what is left of their reports
}

// Removed counts what [Store.Retain] removed.
type Removed struct {
	Reports, Runs int
}

// retainBatch is the number of runs that one transaction removes something of, so
// that chunks that arrive meanwhile don't wait for long.
const retainBatch = 100

// armedFor is how long nodes stay armed: the night that they are armed for is over.
const armedFor = 7 * 24 * time.Hour

// Retain removes what a policy does not keep. Runs that are not over, and reports
// that no summary was made of, stay.
func (s *Store) Retain(ctx context.Context, p Policy, at time.Time) (Removed, error) {
	var n Removed
	var err error
	if p.Summaries > 0 {
		n.Runs, err = s.remove(ctx, `SELECT key FROM runs WHERE state IN ('complete', 'lost') AND ended < $1`, at.Add(-p.Summaries),
			`DELETE FROM runs WHERE key IN (%s)`,
			// SQLite may give the largest key again, to a run of another node.
			`UPDATE nodes SET last_run = coalesce((SELECT key FROM runs WHERE node = nodes.name ORDER BY night DESC, offered DESC LIMIT 1), 0)
				WHERE last_run IN (%s)`)
	}
	if p.Reports > 0 && err == nil {
		n.Reports, err = s.remove(ctx, `SELECT key FROM runs WHERE state IN ('complete', 'lost') AND ended < $1 AND removed = 0 AND judged >= chunks`, at.Add(-p.Reports),
			`DELETE FROM chunks WHERE run IN (%s)`, fmt.Sprintf(`UPDATE runs SET removed = %d WHERE key IN (%%s)`, micro(at)))
	}
	if err != nil {
		return n, err
	}
	return n, s.change(ctx, "disarm nodes of nights that are over", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM armed WHERE at < $1`, micro(at.Add(-armedFor)))
		return err
	})
}

// remove runs statements, with the keys of runs in them, for all runs that a
// query selects, some at a time.
func (s *Store) remove(ctx context.Context, query string, before time.Time, statements ...string) (int, error) {
	total := 0
	for {
		n := 0
		err := s.change(ctx, "retention", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, query+fmt.Sprintf(` LIMIT %d`, retainBatch), micro(before))
			keys, err := collect(rows, err, func(scan func(...any) error) (key string, err error) {
				err = scan(&key)
				return key, err
			})
			if n = len(keys); err != nil || n == 0 {
				return err
			}
			for _, statement := range statements {
				if _, err := tx.ExecContext(ctx, fmt.Sprintf(statement, strings.Join(keys, ", "))); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || n == 0 {
			return total, err
		}
		total += n
		if _, err := s.w.ExecContext(ctx, s.dialect.compact); err != nil {
			return total, s.explain("give space back", err)
		}
	}
}
