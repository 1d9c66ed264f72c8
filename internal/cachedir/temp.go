package cachedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Temp makes a directory below parent, whose name is prefix and a number, for
// as long as this program runs or until remove is called. Directories of that
// kind that a killed program left are cleared away; those in use are known by
// the lock that their program holds on them.
func Temp(parent, prefix string) (dir string, remove func(), err error) {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return "", nil, err
	}
	clearTemp(parent, prefix)
	for {
		dir, err := os.MkdirTemp(parent, prefix)
		if err != nil {
			return "", nil, err
		}
		f, err := lockTemp(dir)
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, fs.ErrNotExist) {
			continue // another program took it for a leftover before it was locked
		}
		// Without a lock, as on NFS, it is one that nobody clears away.
		return dir, func() { _ = errors.Join(os.RemoveAll(dir), f.Close()) }, nil
	}
}

// clearTemp removes the directories that no program has locked, as far as that
// can be done.
func clearTemp(parent, prefix string) {
	list, _ := os.ReadDir(parent)
	for _, d := range list {
		number, ok := strings.CutPrefix(d.Name(), prefix)
		if !ok || strings.Trim(number, "0123456789") != "" || !d.IsDir() {
			continue
		}
		dir := filepath.Join(parent, d.Name())
		if f, err := lockTemp(dir); err == nil {
			_ = errors.Join(os.RemoveAll(dir), f.Close())
		}
	}
}

// lockTemp locks a directory that exists. The error is EWOULDBLOCK if another
// program has locked it.
func lockTemp(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = os.Stat(dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
