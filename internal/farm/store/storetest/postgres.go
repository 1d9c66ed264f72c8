// Package storetest has what tests of a farm need of its store: empty stores on
// SQLite and on a real PostgreSQL, and labs full of made-up nights.
package storetest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm/store"
)

// Each runs a test on the name of an empty store, with SQLite and with PostgreSQL.
// The latter is skipped, with the reason, where there is none: see [Postgres].
func Each(t *testing.T, f func(t *testing.T, name string)) {
	t.Run("sqlite", func(t *testing.T) { f(t, filepath.Join(t.TempDir(), "farm.db")) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// Open opens a store and closes it when the test ends.
func Open(t testing.TB, name string) *store.Store {
	s, err := store.Open(context.Background(), name)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

var (
	server  = sync.OnceValues(startServer)
	stop    = func() {} // the server that was started
	schemas atomic.Int64
)

// Postgres returns the URL of an empty schema: in the database that
// MKP2PIMG_POSTGRES is the URL of, or else on a server of our own, which runs as an
// ordinary user in a temporary directory and listens on a socket there. The test
// is skipped where PostgreSQL is not installed. The package's TestMain must call
// [Main].
func Postgres(t testing.TB) string {
	t.Helper()
	ctx := context.Background() // that of the test has ended when it is cleaned up
	base, err := server()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip(err)
	}
	require.NoError(t, err)
	db, err := sql.Open("pgx", base)
	require.NoError(t, err)
	defer db.Close()
	name := fmt.Sprintf("mkp2pimg_%d_%d", os.Getpid(), schemas.Add(1))
	_, err = db.ExecContext(ctx, "CREATE SCHEMA "+name)
	require.NoError(t, err)
	t.Cleanup(func() {
		db, err := sql.Open("pgx", base)
		require.NoError(t, err)
		defer db.Close()
		_, err = db.ExecContext(ctx, "DROP SCHEMA "+name+" CASCADE")
		require.NoError(t, err)
	})
	u, err := url.Parse(base)
	require.NoError(t, err)
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

// Main runs the tests of a package and stops the server that they started.
func Main(m *testing.M) {
	code := m.Run()
	stop()
	os.Exit(code)
}

// startServer returns the URL of a server; the error is exec.ErrNotFound where
// none is installed.
func startServer() (string, error) {
	if u := os.Getenv("MKP2PIMG_POSTGRES"); u != "" {
		return u, nil
	}
	bin, err := binaries()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mkp2pimg-postgres-")
	if err != nil {
		return "", err
	}
	stop = func() { _ = os.RemoveAll(dir) }
	who, err := ordinaryUser(dir)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	command := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		c := exec.CommandContext(context.Background(), filepath.Join(bin, name), args...)
		out := &bytes.Buffer{}
		c.Dir, c.SysProcAttr, c.Stdout, c.Stderr = dir, who, out, out
		return c, out
	}
	initdb, out := command("initdb", "--no-sync", "--auth=trust", "--username=mkp2pimg", "--encoding=UTF8", "--no-locale", "-D", data)
	if err := initdb.Run(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	// Nobody cuts its power; it waits for the disk where that is measured.
	fsync := "off"
	if os.Getenv("MKP2PIMG_LOAD") != "" {
		fsync = "on"
	}
	postgres, out := command("postgres", "-D", data, "-k", dir, "-c", "listen_addresses=", "-c", "fsync="+fsync)
	if err := postgres.Start(); err != nil {
		return "", err
	}
	ended := make(chan struct{})
	go func() {
		_ = postgres.Wait() // how it ended is told by what it wrote
		close(ended)
	}()
	stop = func() {
		_ = postgres.Process.Signal(syscall.SIGQUIT) // immediate shutdown
		<-ended
		_ = os.RemoveAll(dir)
	}
	u := fmt.Sprintf("postgres://mkp2pimg@/postgres?host=%s", url.QueryEscape(dir))
	return u, waitFor(u, ended, out)
}

// waitFor waits until a server answers.
func waitFor(u string, ended chan struct{}, out fmt.Stringer) error {
	db, err := sql.Open("pgx", u)
	if err != nil {
		return err
	}
	defer db.Close()
	for {
		if db.PingContext(context.Background()) == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("postgres ended: %s", out)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// binaries returns the directory of PostgreSQL's programs.
func binaries() (string, error) {
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	if len(dirs) > 0 {
		return dirs[len(dirs)-1], nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("PostgreSQL's initdb is not installed, and MKP2PIMG_POSTGRES names no server: %w", err)
	}
	return filepath.Dir(path), nil
}

// ordinaryUser gives a directory to a user that PostgreSQL runs as: it refuses to
// run as root.
func ordinaryUser(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	who, err := user.Lookup("postgres")
	if err != nil {
		if who, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.Atoi(who.Uid)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.Atoi(who.Gid)
	if err != nil {
		return nil, err
	}
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return &syscall.SysProcAttr{Credential: cred}, os.Chown(dir, uid, gid)
}
