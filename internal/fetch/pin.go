package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Pin downloads a file whose digest nobody has published, from the first of
// f.URLs that gives it, and returns f with its SHA-256 and size filled in. What
// proves the content is then up to the caller. The file is in the cache
// afterwards, where Get finds it.
//
// The error is a *DownloadError, an *OfflineError, a *NoSpaceError or a
// *CacheError.
func (c *Client) Pin(ctx context.Context, f File) (pinned File, err error) {
	if c.Offline && !isLocal(f.URLs[0]) {
		return f, &OfflineError{File: f}
	}
	if c.Progress != nil {
		meter := c.Progress.Start(f.Name, 0)
		defer func() { meter.End(err) }()
	}
	all := &DownloadError{File: f}
	for _, url := range f.URLs {
		err := c.retry(ctx, func() (err error) {
			body, _, err := c.open(ctx, url, 0)
			if err != nil {
				return err
			}
			defer body.Close()
			pinned, err = c.Import(f.Name, body)
			return err
		})
		if err == nil {
			pinned.URLs = f.URLs
			return pinned, nil
		}
		if ctx.Err() != nil {
			return f, fmt.Errorf("download %s: %w", f.Name, context.Cause(ctx))
		}
		all.Errs = append(all.Errs, err)
	}
	return f, all
}

// Import puts the content of r into the cache and returns it as a file called
// name, with its SHA-256 and size. It gets there whole or not at all.
func (c *Client) Import(name string, r io.Reader) (f File, err error) {
	dir := filepath.Join(c.Dir, "sha256")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, c.writeError(name, 0, err)
	}
	tmp, err := os.CreateTemp(dir, "import-*.partial")
	if err != nil {
		return f, c.writeError(name, 0, err)
	}
	defer func() {
		_ = tmp.Close()
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	size, err := io.Copy(localWriter{c, name, tmp}, r)
	if err != nil {
		return f, err
	}
	sum, err := hashAll(tmp)
	if err != nil {
		return f, localError{&CacheError{c.Dir, err}}
	}
	path := c.Path(sum)
	err = errors.Join(tmp.Chmod(0o644), tmp.Sync(), os.MkdirAll(filepath.Dir(path), 0o755))
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return f, c.writeError(name, 0, err)
	}
	c.markVerified(sum)
	return File{Name: name, SHA256: sum, Size: size}, nil
}

// localWriter tells failures to write into the cache from failures to read what
// is written.
type localWriter struct {
	client *Client
	name   string
	file   *os.File
}

func (w localWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	if err != nil {
		err = localError{w.client.writeError(w.name, 0, err)}
	}
	return n, err
}
