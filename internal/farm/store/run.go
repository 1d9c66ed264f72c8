package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"mkp2pimg/internal/farm"
)

// Chunk is a part of a report.
type Chunk struct {
	Seq  int    // 0, 1, 2 …
	Data []byte // whole lines, unpacked
	// Stage is the last stage that begins in these lines, empty where none does.
	Stage string
	End   bool // the report ends in these lines
	At    time.Time
}

// Progress is how far the delivery of a report is.
type Progress struct {
	Next     int  `json:"next"`     // sequence number of the chunk that is expected
	Complete bool `json:"complete"` // the end of the report has arrived
}

// SequenceError is returned for a chunk that does not fit behind the last one.
type SequenceError struct {
	Next int // sequence number of the chunk that is expected
	// Conflict is true where a chunk of that number, but with other bytes, arrived
	// before.
	Conflict bool
}

func (e *SequenceError) Error() string {
	if e.Conflict {
		return "a chunk of that number arrived before, with other bytes"
	}
	return fmt.Sprintf("chunk %d is expected first", e.Next)
}

// repeatable is how long after its end a run still answers the node that did not
// hear that its last chunk had arrived.
const repeatable = 10 * time.Minute

// revivable is how long after it was given up a run still takes what its node could
// not deliver before: a switch that was off for a night loses no report.
const revivable = 7 * 24 * time.Hour

// Offer records a run that is offered to a node, and makes the node if it is not
// known. Of the run, ID, Node, Night, Image, Plan, Offered and Deadline are used.
func (s *Store) Offer(ctx context.Context, r farm.Run, t Token) error {
	r.Source, r.State = farm.Network, farm.Offered
	return s.change(ctx, "offer run "+r.ID, func(ctx context.Context, tx *sql.Tx) error {
		_, err := insertRun(ctx, tx, r, t[:])
		return err
	})
}

// insertRun adds a run, and its node if it is not known; it returns the run's key.
func insertRun(ctx context.Context, tx *sql.Tx, r farm.Run, token []byte) (key int64, err error) {
	at := micro(r.Offered)
	if err := touch(ctx, tx, farm.Node{Name: r.Node, FirstSeen: r.Offered, LastSeen: r.Offered}); err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, `INSERT INTO runs
		(id, node, night, source, state, why, image, plan, offered, started, updated, ended, deadline, chunks, bytes, stage, token)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17) RETURNING key`,
		r.ID, r.Node, r.Night, string(r.Source), string(r.State), clean(r.Why), r.Image, r.Plan, at, micro(r.Started),
		micro(r.Updated), micro(r.Ended), micro(r.Deadline), r.Chunks, r.Bytes, clean(r.Stage), token).Scan(&key)
	if err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, `UPDATE nodes SET last_run = $1 WHERE name = $2 AND NOT EXISTS (
		SELECT 1 FROM runs WHERE key = nodes.last_run AND (night > $3 OR night = $3 AND offered > $4))`,
		key, r.Node, r.Night, at)
	return key, err
}

// Append adds a chunk to a report. One of a run that was lost brings it back, to be
// judged again. A chunk that arrived before, with the same bytes, is no error. The errors are [ErrNotFound], [ErrOver], [ErrTooLarge], a
// [*SequenceError] or one of the database.
func (s *Store) Append(ctx context.Context, id string, c Chunk) (Progress, error) {
	sum := sha256.Sum256(c.Data)
	data := pack(c.Data)
	var p Progress
	err := s.change(ctx, "append to run "+id, func(ctx context.Context, tx *sql.Tx) error {
		key, err := expect(ctx, tx, id, c)
		if errors.Is(err, sql.ErrNoRows) {
			p, err = unexpected(ctx, tx, id, c, sum)
			return err
		}
		if err != nil {
			return err
		}
		p = Progress{Next: c.Seq + 1, Complete: c.End}
		_, err = tx.ExecContext(ctx, `INSERT INTO chunks (run, seq, sum, data) VALUES ($1, $2, $3, $4)`, key, c.Seq, sum[:], data)
		return err
	})
	return p, err
}

// expect makes a run one with the chunk, and returns its key; the error is
// sql.ErrNoRows if it is not the chunk that the run expects.
func expect(ctx context.Context, tx *sql.Tx, id string, c Chunk) (key int64, err error) {
	state, ended := farm.Running, int64(0)
	if c.End {
		state, ended = farm.Complete, micro(c.At)
	}
	err = tx.QueryRowContext(ctx, `UPDATE runs SET state = $4, ended = $5, updated = $6, chunks = chunks + 1, bytes = bytes + $7,
		started = CASE WHEN started = 0 THEN $6 ELSE started END,
		stage = CASE WHEN $8 = '' THEN stage ELSE $8 END,
		judged = CASE WHEN state = 'lost' THEN -1 ELSE judged END, why = ''
		WHERE id = $1 AND chunks = $2 AND bytes + $7 <= $3
			AND (state IN ('offered', 'running') OR state = 'lost' AND ended >= $9 AND removed = 0) RETURNING key`,
		id, c.Seq, MaxReport, string(state), ended, micro(c.At), len(c.Data), clean(c.Stage), micro(c.At.Add(-revivable))).Scan(&key)
	return key, err
}

// unexpected answers a chunk that expect did not take.
func unexpected(ctx context.Context, tx *sql.Tx, id string, c Chunk, sum [sha256.Size]byte) (Progress, error) {
	r, err := readProgress(ctx, tx, id)
	switch {
	case err != nil:
		return Progress{}, err
	case c.Seq < r.Next && c.Seq >= 0:
		return r.Progress, repeated(ctx, tx, r, c, sum)
	case r.state == farm.Complete || r.answers(c.At) != nil:
		return r.Progress, refusal{ErrOver}
	case c.Seq == r.Next:
		return r.Progress, refusal{ErrTooLarge}
	}
	return r.Progress, refusal{&SequenceError{Next: r.Next}}
}

// repeated answers a chunk of a number that arrived before.
func repeated(ctx context.Context, tx *sql.Tx, r progress, c Chunk, sum [sha256.Size]byte) error {
	if err := r.answers(c.At); err != nil {
		return err
	}
	var had []byte
	if err := tx.QueryRowContext(ctx, `SELECT sum FROM chunks WHERE run = $1 AND seq = $2`, r.key, c.Seq).Scan(&had); err != nil {
		return err
	}
	if !bytes.Equal(had, sum[:]) {
		return refusal{&SequenceError{Next: r.Next, Conflict: true}}
	}
	return nil
}

// Progress returns how far the delivery of a run is: where a node goes on after a
// break. The errors are [ErrNotFound], [ErrOver] or one of the database.
func (s *Store) Progress(ctx context.Context, id string, at time.Time) (Progress, error) {
	r, err := readProgress(ctx, s.r, id)
	if err == nil {
		err = r.answers(at)
	}
	return r.Progress, s.plain("read run "+id, err)
}

// progress is what decides about a chunk that is not expected.
type progress struct {
	Progress
	key   int64
	state farm.State
	ended time.Time
	// removed tells that the report is no longer kept.
	removed bool
}

// answers tells whether the node that delivers the run still gets answers.
func (r progress) answers(at time.Time) error {
	var still time.Duration
	switch r.state {
	case farm.Complete:
		still = repeatable
	case farm.Lost:
		still = revivable
	default:
		return nil
	}
	if r.removed || at.Sub(r.ended) > still {
		return refusal{ErrOver}
	}
	return nil
}

func readProgress(ctx context.Context, q querier, id string) (progress, error) {
	var r progress
	var ended int64
	err := q.QueryRowContext(ctx, `SELECT key, state, chunks, ended, removed <> 0 FROM runs WHERE id = $1`, id).
		Scan(&r.key, &r.state, &r.Next, &ended, &r.removed)
	if errors.Is(err, sql.ErrNoRows) {
		return r, refusal{fmt.Errorf("run %s: %w", id, ErrNotFound)}
	}
	r.Complete, r.ended = r.state == farm.Complete, fromMicro(ended)
	return r, err
}

// Token returns the token that a run was offered with. The error is
// [ErrNotFound], also for a run that was imported and has none, or one of the
// database.
func (s *Store) Token(ctx context.Context, id string) (Token, error) {
	var t Token
	var b []byte
	err := s.r.QueryRowContext(ctx, `SELECT token FROM runs WHERE id = $1 AND token IS NOT NULL`, id).Scan(&b)
	if errors.Is(err, sql.ErrNoRows) {
		return t, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	copy(t[:], b)
	return t, s.explain("read run "+id, err)
}

// Lose marks a run lost that is not over, with the reason, and to be judged once
// more: while it was under way it was compared with nothing. It tells whether it
// did: a run that is over stays what it is.
func (s *Store) Lose(ctx context.Context, id, why string, at time.Time) (bool, error) {
	var lost bool
	err := s.change(ctx, "give run "+id+" up", func(ctx context.Context, tx *sql.Tx) error {
		res, err := tx.ExecContext(ctx, `UPDATE runs SET state = 'lost', why = $2, ended = $3, judged = -1 WHERE id = $1 AND state IN ('offered', 'running')`,
			id, clean(why), micro(at))
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		lost = n > 0
		return err
	})
	return lost, err
}

// Import records a run that is over and came in another way than chunk by chunk.
// Its ID must depend on nothing but the report, so that a report that is imported
// twice is there once; fresh is false if it was there. A summary and changes, if the
// run has them, are recorded as well; otherwise the run is to be judged, see [Store.Unjudged].
func (s *Store) Import(ctx context.Context, r farm.Run, chunks []Chunk) (fresh bool, err error) {
	packed := make([][]byte, len(chunks))
	r.Chunks, r.Bytes = len(chunks), 0
	for i, c := range chunks {
		packed[i] = pack(c.Data)
		r.Bytes += int64(len(c.Data))
	}
	err = s.change(ctx, "import run "+r.ID, func(ctx context.Context, tx *sql.Tx) error {
		_, err := readProgress(ctx, tx, r.ID)
		if fresh = errors.Is(err, ErrNotFound); !fresh {
			return err
		}
		key, err := insertRun(ctx, tx, r, nil)
		if err != nil {
			return err
		}
		err = insert(ctx, tx, "chunks (run, seq, sum, data)", chunks, func(i int, c Chunk) []any {
			sum := sha256.Sum256(c.Data)
			return []any{key, i, sum[:], packed[i]}
		})
		if err != nil || r.Summary == nil && len(r.Changes) == 0 {
			return err
		}
		return writeJudgement(ctx, tx, key, r.Node, Judgement{At: r.Ended, Chunks: r.Chunks, Summary: r.Summary, Changes: r.Changes})
	})
	return fresh, err
}
