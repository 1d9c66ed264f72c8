// Package cachedir makes directories that are either whole or not there.
//
// Several programs may share a cache: the first that needs a directory makes it
// while the others wait. One that is killed leaves only a ".partial" directory,
// which the next clears away.
package cachedir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// retry is how often a lock held by another program is tried again.
const retry = 200 * time.Millisecond

// Make returns at once if dir exists. Else it calls fill with an empty
// directory beside dir and, when fill succeeds, renames that to dir once its
// files have reached the disk. If fill fails nothing is left behind.
func Make(ctx context.Context, dir string, fill func(partial string) error) (err error) {
	if exists(dir) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer unlock()
	if exists(dir) { // made by another while this one waited
		return nil
	}
	partial := dir + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return fmt.Errorf("cache: clear an interrupted attempt: %w", err)
	}
	if err := os.Mkdir(partial, 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(partial))
		}
	}()
	if err := fill(partial); err != nil {
		return err
	}
	if err := sync(partial); err != nil {
		return fmt.Errorf("cache: sync %s: %w", partial, err)
	}
	if err := os.Rename(partial, dir); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

func exists(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// lock takes the lock file at path, waiting for whoever holds it. The file
// stays: removing it would let two programs hold locks on two files of its name.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { _ = f.Close() }, nil // which unlocks
		case !errors.Is(err, unix.EWOULDBLOCK):
			_ = f.Close()
			return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for %s, which another program holds: %w", path, ctx.Err())
		case <-time.After(retry):
		}
	}
}

// sync writes everything below the file system of dir to the disk.
func sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
