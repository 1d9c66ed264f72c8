package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"mkp2pimg/internal/farm"
)

// Touch records a node, or that it was seen again: identities that are empty stay
// what they were, and FirstSeen is kept.
func (s *Store) Touch(ctx context.Context, n farm.Node) error {
	return s.change(ctx, "record node "+n.Name, func(ctx context.Context, tx *sql.Tx) error {
		return touch(ctx, tx, n)
	})
}

func touch(ctx context.Context, tx *sql.Tx, n farm.Node) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO nodes (name, mac, uuid, serial, first_seen, last_seen) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (name) DO UPDATE SET
			mac        = CASE WHEN excluded.mac    = '' THEN nodes.mac    ELSE excluded.mac    END,
			uuid       = CASE WHEN excluded.uuid   = '' THEN nodes.uuid   ELSE excluded.uuid   END,
			serial     = CASE WHEN excluded.serial = '' THEN nodes.serial ELSE excluded.serial END,
			first_seen = CASE WHEN nodes.first_seen = 0 THEN excluded.first_seen ELSE nodes.first_seen END,
			last_seen  = CASE WHEN excluded.last_seen > nodes.last_seen THEN excluded.last_seen ELSE nodes.last_seen END`,
		n.Name, clean(n.MAC), clean(n.UUID), clean(n.Serial), micro(n.FirstSeen), micro(n.LastSeen))
	return err
}

const nodeColumns = `n.name, n.mac, n.uuid, n.serial, n.first_seen, n.last_seen, coalesce(r.updated, 0)`

type nodeRow struct {
	n                    farm.Node
	first, last, updated int64
}

func (r *nodeRow) fields() []any {
	return []any{&r.n.Name, &r.n.MAC, &r.n.UUID, &r.n.Serial, &r.first, &r.last, &r.updated}
}

func (r *nodeRow) node() farm.Node {
	r.n.FirstSeen, r.n.LastSeen = fromMicro(r.first), fromMicro(max(r.last, r.updated))
	return r.n
}

// Nodes returns all nodes by name.
func (s *Store) Nodes(ctx context.Context) ([]farm.Node, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+nodeColumns+` FROM nodes n LEFT JOIN runs r ON r.key = n.last_run ORDER BY n.name`)
	nodes, err := collect(rows, err, func(scan func(...any) error) (farm.Node, error) {
		var r nodeRow
		err := scan(r.fields()...)
		return r.node(), err
	})
	return nodes, s.explain("read nodes", err)
}

// Node returns the node of a name, or [ErrNotFound].
func (s *Store) Node(ctx context.Context, name string) (farm.Node, error) {
	var r nodeRow
	err := s.r.QueryRowContext(ctx, `SELECT `+nodeColumns+` FROM nodes n LEFT JOIN runs r ON r.key = n.last_run WHERE n.name = $1`, name).Scan(r.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return farm.Node{}, fmt.Errorf("node %s: %w", name, ErrNotFound)
	}
	return r.node(), s.explain("read node "+name, err)
}

const baselineColumns = `node, key, pinned, unit, median, mad, runs`

func scanBaseline(scan func(...any) error) (farm.Baseline, error) {
	var b farm.Baseline
	err := scan(&b.Node, &b.Key, &b.Pinned, &b.Unit, &b.Median, &b.MAD, &b.Runs)
	return b, err
}

// Baselines returns what is normal for a node, by key: what was pinned with
// [Store.Pin], and for other keys what its last run was held against.
func (s *Store) Baselines(ctx context.Context, node string) ([]farm.Baseline, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+baselineColumns+` FROM baselines b WHERE node = $1 AND (by_hand = 1 OR NOT EXISTS (
		SELECT 1 FROM baselines hand WHERE hand.node = b.node AND hand.key = b.key AND hand.by_hand = 1)) ORDER BY key`, node)
	all, err := collect(rows, err, scanBaseline)
	return all, s.explain("read baselines of "+node, err)
}

// Pinned returns what was pinned with [Store.Pin], by key.
func (s *Store) Pinned(ctx context.Context, node string) ([]farm.Baseline, error) {
	rows, err := s.r.QueryContext(ctx, `SELECT `+baselineColumns+` FROM baselines WHERE node = $1 AND by_hand = 1 ORDER BY key`, node)
	all, err := collect(rows, err, scanBaseline)
	return all, s.explain("read pinned baselines of "+node, err)
}

// Pin sets what is normal for a quantity of a node, whatever its runs teach.
func (s *Store) Pin(ctx context.Context, b farm.Baseline) error {
	b.Pinned = true
	return s.change(ctx, "pin a baseline of "+b.Node, func(ctx context.Context, tx *sql.Tx) error {
		if err := touch(ctx, tx, farm.Node{Name: b.Node}); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM baselines WHERE node = $1 AND key = $2 AND by_hand = 1`, b.Node, cleanKey(b.Key)); err != nil {
			return err
		}
		return insertBaselines(ctx, tx, true, []farm.Baseline{b})
	})
}

// Unpin removes what [Store.Pin] set; the node's next run learns what is normal
// anew. There being nothing is no error.
func (s *Store) Unpin(ctx context.Context, node, key string) error {
	return s.change(ctx, "unpin a baseline of "+node, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM baselines WHERE node = $1 AND key = $2 AND pinned = 1`, node, cleanKey(key))
		return err
	})
}

func insertBaselines(ctx context.Context, tx *sql.Tx, byHand bool, all []farm.Baseline) error {
	return insert(ctx, tx, "baselines (by_hand, "+baselineColumns+")", all, func(_ int, b farm.Baseline) []any {
		return []any{flag(byHand), b.Node, cleanKey(b.Key), flag(b.Pinned), clean(b.Unit), finite(b.Median), finite(b.MAD), b.Runs}
	})
}

// Armed is a node that gets an image at its next starts from the network.
type Armed struct {
	Night    string        `json:"night"`
	Node     string        `json:"node"`
	Image    string        `json:"image,omitempty"` // empty: that of lab.yaml
	Plan     string        `json:"plan,omitempty"`  // empty: that of lab.yaml
	Attempts int           `json:"attempts"`        // runs to offer, from At on, until one is complete
	Deadline time.Duration `json:"deadline"`        // of each run, from its offer; 0: that of lab.yaml
	At       time.Time     `json:"at"`
}

// Arm arms a node for a night, in place of what it was armed with before.
func (s *Store) Arm(ctx context.Context, a Armed) error {
	return s.change(ctx, "arm "+a.Node, func(ctx context.Context, tx *sql.Tx) error {
		if err := touch(ctx, tx, farm.Node{Name: a.Node}); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO armed (node, night, image, plan, attempts, deadline, at) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (node, night) DO UPDATE SET image = excluded.image, plan = excluded.plan,
				attempts = excluded.attempts, deadline = excluded.deadline, at = excluded.at`,
			a.Node, a.Night, clean(a.Image), clean(a.Plan), a.Attempts, a.Deadline.Microseconds(), micro(a.At))
		return err
	})
}

// Disarm takes [Store.Arm] back; a node that is not armed is no error.
func (s *Store) Disarm(ctx context.Context, night, node string) error {
	return s.change(ctx, "disarm "+node, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM armed WHERE node = $1 AND night = $2`, node, night)
		return err
	})
}

// Armed returns what a node is armed with for a night, or [ErrNotFound].
func (s *Store) Armed(ctx context.Context, night, node string) (Armed, error) {
	a := Armed{Night: night, Node: node}
	var deadline, at int64
	err := s.r.QueryRowContext(ctx, `SELECT image, plan, attempts, deadline, at FROM armed WHERE node = $1 AND night = $2`, node, night).
		Scan(&a.Image, &a.Plan, &a.Attempts, &deadline, &at)
	if errors.Is(err, sql.ErrNoRows) {
		return a, fmt.Errorf("node %s is not armed: %w", node, ErrNotFound)
	}
	a.Deadline, a.At = time.Duration(deadline)*time.Microsecond, fromMicro(at)
	return a, s.explain("read what "+node+" is armed with", err)
}
