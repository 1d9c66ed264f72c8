package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// querier is a database, or a transaction of it.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// read runs f on one state of the database, whatever is written meanwhile.
func (s *Store) read(ctx context.Context, what string, f func(tx *sql.Tx) error) error {
	tx, err := s.r.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return s.explain(what, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return s.plain(what, f(tx))
}

// plain returns a [refusal] as what it says, and explains every other error.
func (s *Store) plain(what string, err error) error {
	if no, ok := errors.AsType[refusal](err); ok {
		return no.error
	}
	return s.explain(what, err)
}

// micro is the form in which times are kept.
func micro(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicro(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// clean makes of a text what both databases can hold.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// maxKey bounds a text that is in an index, in bytes: PostgreSQL takes rows of
// 2704 there (BTMaxItemSize of access/nbtree.h).
const maxKey = 1000

// cleanKey is clean for a text that is in an index.
func cleanKey(s string) string {
	s = clean(s)
	return strings.ToValidUTF8(s[:min(len(s), maxKey)], "")
}

// toJSON is for values that can't fail: texts, and slices and maps of them.
func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// finite makes of a number what both databases can hold: zero for NaN and
// infinities, which no report has (JSON knows none).
func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The window of 1 MiB is that of the largest chunk; a coder for each processor
// keeps its memory.
var (
	packer, _   = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	unpacker, _ = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxReport))
)

func pack(data []byte) []byte            { return packer.EncodeAll(data, nil) }
func unpack(data []byte) ([]byte, error) { return unpacker.DecodeAll(data, nil) }
