package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// maxBatch bounds the writes of one transaction, so that the first of them does
// not wait for long.
const maxBatch = 256

// errClosed is returned for writes after Close.
var errClosed = errors.New("the store is closed")

// write is a change of the database that waits for its turn.
type write struct {
	ctx  context.Context
	do   func(context.Context, *sql.Tx) error // may be called again: see writer.run
	err  error
	done chan struct{} // closed: err is set
}

// refusal is an error of do that leaves the transaction as good as it was: do has
// changed nothing.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// change makes a change and returns once it is on stable storage. What do says in
// a [refusal] is returned as it is.
func (s *Store) change(ctx context.Context, what string, do func(context.Context, *sql.Tx) error) error {
	w := &write{ctx: ctx, do: do, done: make(chan struct{})}
	select {
	case s.queue <- w:
	case <-ctx.Done():
		return s.explain(what, ctx.Err())
	case <-s.stop:
		return s.explain(what, errClosed)
	}
	<-w.done // also when ctx is done: it may have been changed
	return s.plain(what, w.err)
}

// write takes the writes that wait, all of them at once, until the store closes.
func (s *Store) write() {
	defer close(s.stopped)
	for {
		select {
		case first := <-s.queue:
			s.commit(s.waiting(first))
		case <-s.stop:
			return
		}
	}
}

// waiting returns first and the writes that wait behind it.
func (s *Store) waiting(first *write) []*write {
	batch := []*write{first}
	for len(batch) < maxBatch {
		select {
		case w := <-s.queue:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// commit makes the changes of a batch in one transaction. If that fails, each is
// made in a transaction of its own: one that can't be made must not take the
// others with it.
func (s *Store) commit(batch []*write) {
	if err := s.transact(batch); err != nil {
		for _, w := range batch {
			if err := s.transact([]*write{w}); err != nil {
				w.err = err
			}
		}
	}
	for _, w := range batch {
		close(w.done)
	}
}

// transact makes the changes of a batch in one transaction. The error is one that
// none of them was made for; a refusal is that of its write alone.
func (s *Store) transact(batch []*write) error {
	ctx := context.Background() // one caller that goes away must not undo the work of the others
	tx, err := s.w.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, w := range batch {
		if w.err = w.ctx.Err(); w.err != nil {
			continue
		}
		w.err = w.do(ctx, tx)
		if _, no := errors.AsType[refusal](w.err); w.err != nil && !no {
			return w.err
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
