package store

import (
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// dialect is in what SQLite and PostgreSQL differ for us.
type dialect struct {
	rowKey    string             // type of a column with a number that the database gives
	exclusive string             // keeps other programs from migrating while this one does
	compact   string             // gives pages that were freed back to the file system, 64 MiB at most
	hint      func(error) string // what a user can do about an error, if that is known
}

var (
	sqliteDialect = dialect{
		rowKey:    "INTEGER PRIMARY KEY",
		exclusive: "SELECT 1", // the transaction that writes is the only one: _txlock=immediate
		compact:   "PRAGMA incremental_vacuum(16384)",
		hint:      sqliteHint,
	}
	postgresDialect = dialect{
		rowKey: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
		// Any number will do that other programs on this database don't lock.
		exclusive: "SELECT pg_advisory_xact_lock(1835757618)",
		compact:   "SELECT 1", // autovacuum does
		hint:      postgresHint,
	}
)

// sqliteHint is about the primary result codes: https://sqlite.org/rescode.html.
func sqliteHint(err error) string {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return ""
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return "another program holds the file; is a second server running on it?"
	case sqlite3.SQLITE_NOTADB:
		return "the file is not a database of SQLite; move it away, or name another one"
	case sqlite3.SQLITE_CORRUPT:
		return "the file is damaged; stop the server, then restore a backup or save what can be read with: sqlite3 FILE .recover"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return "the server's user may not write it; see the modes of the file and of its directory"
	case sqlite3.SQLITE_CANTOPEN:
		return "the directory must exist, and the server's user must be allowed to make files in it"
	case sqlite3.SQLITE_FULL:
		return "the file system is full; make room, or shorten retention in lab.yaml"
	case sqlite3.SQLITE_IOERR:
		return "the file system fails; see the kernel's log"
	}
	return ""
}

// postgresHint is about SQLSTATE: appendix A of PostgreSQL's manual.
func postgresHint(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code {
		case "28P01", "28000":
			return "see the user and password of the URL, and pg_hba.conf of the server"
		case "3D000":
			return "make the database: createdb --owner USER NAME"
		case "42501":
			return "the user of the URL must own the database's schema"
		case "53100":
			return "the database server's disk is full"
		}
		return ""
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return "is the database server running, and reachable from here?"
	}
	return ""
}
