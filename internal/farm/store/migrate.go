package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migrations are the steps that make the schema; a database of version n has seen
// the first n of them. A step that was published is never edited: what is to
// change becomes another step.
var migrations = readMigrations(migrationFiles)

func readMigrations(files fs.FS) []string {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		panic(err) // of the pattern alone
	}
	var steps []string
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			panic(err) // embedded: it is there
		}
		steps = append(steps, string(text))
	}
	return steps
}

// migrate brings the database to the last of the steps, in one transaction.
func (s *Store) migrate(ctx context.Context, steps []string) error {
	tx, err := s.w.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	for _, q := range []string{s.dialect.exclusive, `CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)`} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	var version int
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(max(version), 0) FROM schema_version`).Scan(&version); err != nil {
		return err
	}
	switch {
	case version == len(steps):
		return nil
	case version > len(steps):
		return fmt.Errorf("its schema has version %d, this program knows versions up to %d: use the mkp2pimg that wrote it, or a newer one", version, len(steps))
	}
	for i, step := range steps[version:] {
		if err := s.step(ctx, tx, step); err != nil {
			return fmt.Errorf("migrate the schema to version %d: %w", version+i+1, err)
		}
	}
	for _, q := range []string{`DELETE FROM schema_version`, fmt.Sprintf(`INSERT INTO schema_version VALUES (%d)`, len(steps))} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// step runs the statements of a migration.
func (s *Store) step(ctx context.Context, tx *sql.Tx, text string) error {
	_, err := tx.ExecContext(ctx, strings.ReplaceAll(text, "{{rowkey}}", s.dialect.rowKey))
	return err
}
