// Package store keeps what a farm server knows: nodes, their runs, the reports as
// they arrived, what judgement made of them, baselines, and which nodes are armed.
//
// A [Store] is a file of SQLite or a database of PostgreSQL, with one schema and
// one set of statements for both. What a method has returned without an error is
// on stable storage: SQLite writes ahead with synchronous=FULL, PostgreSQL commits
// synchronously. Writes that wait at the same time share a transaction, and so one
// flush of the disk.
//
// Texts that come out of reports are kept as they are but for what PostgreSQL
// can't hold, invalid UTF-8 and NUL, which become U+FFFD. The report itself is
// kept byte for byte.
package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

var (
	// ErrNotFound is returned where there is no such run, node or armed node.
	ErrNotFound = errors.New("not found")
	// ErrOver is returned for a chunk of a run of which nothing more is expected.
	ErrOver = errors.New("the run is over")
	// ErrTooLarge is returned for a chunk that a report would exceed [MaxReport] with.
	ErrTooLarge = fmt.Errorf("the report would exceed %d MiB", MaxReport>>20)
	// ErrRemoved is returned for a report that [Store.Retain] has removed.
	ErrRemoved = errors.New("the report was removed after its time of retention")
	// ErrDamaged is returned in reading a report of which the database lost a chunk.
	ErrDamaged = errors.New("the report is damaged in the database")
)

// MaxReport is the size of the largest report, unpacked, in bytes.
const MaxReport = 64 << 20

// Token is the SHA-256 of what a node shows to deliver a run. The token itself is
// not kept.
type Token [sha256.Size]byte

// Store is the memory of a farm. Its methods may be called from several goroutines.
type Store struct {
	name    string // for messages: the file, or the database without its password
	dialect dialect
	w       *sql.DB // one connection, for writer alone
	r       *sql.DB // for reading
	queue   chan *write
	stop    chan struct{} // closed: the writer ends
	stopped chan struct{} // closed: the writer has ended
}

// Open opens a store and migrates it to the schema of this program. The name is
// the path of an SQLite file, which is made if it is not there, sqlite:// and such
// a path, or the URL of a database, postgres://user@host/name (as libpq takes it).
// The error says which of them could not be used, why, and what can be done.
func Open(ctx context.Context, name string) (*Store, error) {
	s := &Store{name: name, queue: make(chan *write), stop: make(chan struct{}), stopped: make(chan struct{})}
	open := s.openSQLite
	if strings.HasPrefix(name, "postgres://") || strings.HasPrefix(name, "postgresql://") {
		open = s.openPostgres
	}
	if err := open(); err != nil {
		return nil, err
	}
	if err := s.migrate(ctx, migrations); err != nil {
		return nil, errors.Join(s.explain("open", err), s.w.Close(), s.r.Close())
	}
	go s.write()
	return s, nil
}

// Close waits for the writes under way and closes the database. Writes that come
// later fail.
func (s *Store) Close() error {
	close(s.stop)
	<-s.stopped
	return errors.Join(s.r.Close(), s.w.Close())
}

// busyTimeout is how long SQLite waits for another process that writes.
const busyTimeout = 10 * time.Second

// readers bounds the connections that read at the same time.
const readers = 8

func (s *Store) openSQLite() error {
	path, err := filepath.Abs(strings.TrimPrefix(s.name, "sqlite://"))
	if err != nil {
		return fmt.Errorf("store %s: %w", s.name, err)
	}
	s.name, s.dialect = path, sqliteDialect
	// A new file is its owner's alone, and SQLite gives its modes to those beside it.
	// What is wrong here SQLite says as well, in opening it.
	if f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
		_ = f.Close() // nothing was written
	}
	dsn := func(options string) string {
		u := url.URL{Scheme: "file", Path: path}
		return fmt.Sprintf("%s?_auto_vacuum=incremental&_busy_timeout=%d&_foreign_keys=on%s",
			u.String(), busyTimeout.Milliseconds(), options)
	}
	// The file is made by the connection that writes; it becomes one that readers
	// don't wait for (WAL), and commits wait for the disk (FULL).
	if s.w, err = sql.Open("sqlite", dsn("&_txlock=immediate&_journal_mode=wal&_synchronous=full")); err != nil {
		return s.explain("open", err)
	}
	if s.r, err = sql.Open("sqlite", dsn("&_query_only=on")); err != nil {
		return s.explain("open", err)
	}
	s.w.SetMaxOpenConns(1)
	s.r.SetMaxOpenConns(readers)
	s.r.SetMaxIdleConns(readers)
	return nil
}

func (s *Store) openPostgres() error {
	config, err := pgx.ParseConfig(s.name) // its error leaves the password out
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.name, s.dialect = fmt.Sprintf("postgres://%s@%s/%s", config.User, config.Host, config.Database), postgresDialect
	config.RuntimeParams["application_name"] = "mkp2pimg"
	config.RuntimeParams["synchronous_commit"] = "on"
	s.w, s.r = stdlib.OpenDB(*config), stdlib.OpenDB(*config)
	s.w.SetMaxOpenConns(1)
	s.r.SetMaxOpenConns(readers)
	s.r.SetMaxIdleConns(readers)
	return nil
}

// explain adds to an error of the database what it was about and, where that is
// known, what can be done.
func (s *Store) explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if hint := s.dialect.hint(err); hint != "" {
		return fmt.Errorf("store %s: %s: %w: %s", s.name, what, err, hint)
	}
	return fmt.Errorf("store %s: %s: %w", s.name, what, err)
}
