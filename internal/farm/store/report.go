package store

import (
	"archive/tar"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"mkp2pimg/internal/farm"
)

// Report returns a reader of the report of a run, byte for byte as far as it had
// arrived when Report was called. The errors are [ErrNotFound], [ErrRemoved] or
// one of the database, which the reader can have as well.
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
		if err == nil {
			r.left, err = unpack(data)
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

// Export writes the runs that a query selects as a tar archive, the newest night
// first: of each run ID/run.json, a [farm.Run] with all that is known about it,
// and ID/report.jsonl, unless it was removed. Limit is of the runs of a night.
func (s *Store) Export(ctx context.Context, w io.Writer, q Query) error {
	q.Whole = true
	where, args := q.where()
	rows, err := s.r.QueryContext(ctx, `SELECT DISTINCT night FROM runs WHERE `+where+` ORDER BY night DESC`, args...)
	nights, err := collect(rows, err, func(scan func(...any) error) (night string, err error) {
		err = scan(&night)
		return night, err
	})
	if err != nil {
		return s.explain("read nights", err)
	}
	archive := tar.NewWriter(w)
	for _, q.Night = range nights {
		runs, err := s.Runs(ctx, q)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if err := s.exportRun(ctx, archive, r); err != nil {
				return fmt.Errorf("export run %s: %w", r.ID, err)
			}
		}
	}
	return archive.Close()
}

func (s *Store) exportRun(ctx context.Context, w *tar.Writer, r farm.Run) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	head := tar.Header{Name: r.ID + "/run.json", Mode: 0o644, Size: int64(len(text)), ModTime: r.Updated}
	if err := w.WriteHeader(&head); err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	body, err := s.Report(ctx, r.ID)
	if errors.Is(err, ErrRemoved) {
		return nil
	}
	if err != nil {
		return err
	}
	// A run that is under way may have grown since it was read.
	head.Name, head.Size = r.ID+"/report.jsonl", r.Bytes
	if err := w.WriteHeader(&head); err != nil {
		return err
	}
	_, err = io.CopyN(w, body, r.Bytes)
	return err
}
