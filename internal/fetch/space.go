package fetch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// checkSpace fails early if the cache's file system can't hold those of files
// that are not in the cache yet.
func (c *Client) checkSpace(files []File) error {
	var need int64
	missing := make(map[string]bool) // by digest
	name := ""
	for _, f := range files {
		if _, err := os.Stat(c.Path(f.SHA256)); err == nil || f.Size <= 0 || missing[f.SHA256] {
			continue
		}
		missing[f.SHA256] = true
		name = f.Name
		need += f.Size
		if info, err := os.Stat(c.partial(f)); err == nil {
			need -= min(info.Size(), f.Size)
		}
	}
	free, err := freeSpace(c.Dir)
	if err != nil || need <= free {
		return nil //nolint:nilerr // an unusable directory is reported where it is used
	}
	if len(missing) > 1 {
		name = fmt.Sprintf("%d files", len(missing))
	}
	return &NoSpaceError{Name: name, Dir: c.Dir, Need: need, Free: free}
}

// freeSpace returns the bytes that an ordinary user may still write below
// dir, or below its nearest ancestor that exists.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	for {
		err := unix.Statfs(dir, &s)
		parent := filepath.Dir(dir)
		if errors.Is(err, unix.ENOENT) && parent != dir {
			dir = parent
			continue
		}
		return int64(s.Bavail) * s.Bsize, err
	}
}
