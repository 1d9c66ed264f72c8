package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
)

// Report returns a reader of the report of a run, byte for byte as far as it had
// arrived when Report was called. The errors are [ErrNotFound], [ErrRemoved] or
// one of the database, which the reader can have as well, besides [ErrDamaged].
func (s *Store) Report(ctx context.Context, id string) (io.Reader, error) {
	r := &reportReader{ctx: ctx, s: s, id: id}
	var removed int64
	err := s.r.QueryRowContext(ctx, `SELECT key, chunks, removed FROM runs WHERE id = $1`, id).Scan(&r.key, &r.chunks, &removed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	case err != nil:
		return nil, s.explain("read run "+id, err)
	case removed != 0:
		return nil, fmt.Errorf("run %s: %w (%s)", id, ErrRemoved, fromMicro(removed).Format("2006-01-02"))
	}
	return r, nil
}

// reportReader reads a chunk at a time.
type reportReader struct {
	ctx    context.Context
	s      *Store
	id     string
	key    int64
	seq    int // next to read
	chunks int
	left   []byte // of the chunk before it
}

func (r *reportReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.seq == r.chunks {
			return 0, io.EOF
		}
		var data []byte
		err := r.s.r.QueryRowContext(r.ctx, `SELECT data FROM chunks WHERE run = $1 AND seq = $2`, r.key, r.seq).Scan(&data)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			err = ErrDamaged
		case err == nil:
			if r.left, err = unpack(data); err != nil {
				err = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		}
		if err != nil {
			return 0, r.s.explain(fmt.Sprintf("read chunk %d of run %s", r.seq, r.id), err)
		}
		r.seq++
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}
