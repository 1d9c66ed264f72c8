package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

func (c *Client) partial(f File) string { return c.Path(f.SHA256) + ".partial" }

// localError is a failure on this side: another URL doesn't help.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// download puts f at path: whole and verified, or not at all.
func (c *Client) download(ctx context.Context, f File, path string) (err error) {
	urls := f.URLs
	if c.Offline {
		urls = nil
		for _, u := range f.URLs {
			if isLocal(u) {
				urls = append(urls, u)
			}
		}
		if len(urls) == 0 {
			return &OfflineError{File: f, Path: path}
		}
	}
	if len(urls) == 0 {
		return fmt.Errorf("download %s: no URL is known for it", f.Name)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return c.writeError(f.Name, f.Size, err)
	}
	part, err := c.lockPartial(ctx, f)
	if err != nil {
		return err
	}
	defer part.Close()
	defer func() {
		info, err := part.Stat()
		if err == nil && info.Size() == 0 && isAt(part, part.Name()) {
			_ = os.Remove(part.Name()) // nothing to go on from
		}
	}()
	if ok, err := c.cached(f, path); ok || err != nil {
		return err // another process was faster
	}
	if err := c.checkSpace([]File{f}); err != nil {
		return err
	}

	d := &transfer{client: c, file: f, part: part}
	if c.Progress != nil {
		d.meter = c.Progress.Start(f.Name, f.Size)
		defer func() { d.meter.End(err) }()
	}
	all := &DownloadError{File: f}
	for _, url := range urls {
		err := d.from(ctx, url)
		if err == nil {
			return d.commit(path)
		}
		if local, ok := errors.AsType[localError](err); ok {
			return local.error
		}
		if ctx.Err() != nil {
			return fmt.Errorf("download %s: %w", f.Name, context.Cause(ctx))
		}
		all.Errs = append(all.Errs, err)
	}
	return all
}

// lockPartial opens the partial file of f and locks it. It waits for another
// process or goroutine that is at the same file.
func (c *Client) lockPartial(ctx context.Context, f File) (*os.File, error) {
	name := c.partial(f)
	for {
		part, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, c.writeError(f.Name, f.Size, err)
		}
		err = unix.Flock(int(part.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil && isAt(part, name) {
			return part, nil
		}
		_ = part.Close()
		switch {
		case err == nil: // renamed or removed by its last owner, so look again
		case errors.Is(err, unix.EWOULDBLOCK):
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return nil, fmt.Errorf("download %s: while another process downloads it: %w", f.Name, err)
			}
		default:
			return nil, &CacheError{c.Dir, fmt.Errorf("lock %s: %w", name, err)}
		}
	}
}

// isAt reports whether f is still the file called name.
func isAt(f *os.File, name string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(name)
	return err == nil && os.SameFile(a, b)
}

// transfer fills one partial file.
type transfer struct {
	client *Client
	file   File
	part   *os.File
	meter  Meter // may be nil
	count  int64 // bytes told to meter
}

// from completes the partial file from url and verifies it. What an earlier
// attempt left is continued; no validator is kept for it, because the digest
// tells at the end whether the pieces fit: if not, the whole is taken once.
func (d *transfer) from(ctx context.Context, url string) error {
	var sum string
	resumed := false
	once := func() error {
		size, err := d.part.Seek(0, io.SeekEnd)
		if err != nil {
			return localError{&CacheError{d.client.Dir, err}}
		}
		if d.file.Size > 0 && size > d.file.Size {
			size = 0
		}
		resumed = resumed || size > 0
		sum, err = d.copy(ctx, url, size)
		return err
	}
	err := d.client.retry(ctx, once)
	if err == nil && sum != d.file.SHA256 && resumed {
		resumed = false
		if err = d.reset(); err == nil {
			err = d.client.retry(ctx, once)
		}
	}
	if err == nil && sum != d.file.SHA256 {
		err = &ChecksumError{File: d.file, From: url, Want: d.file.SHA256, Got: sum}
		if rerr := d.reset(); rerr != nil {
			return rerr
		}
	}
	return err
}

// copy appends the bytes of url from offset on and returns the digest of the
// whole partial file.
func (d *transfer) copy(ctx context.Context, url string, offset int64) (string, error) {
	if offset > 0 && offset == d.file.Size {
		return d.digest()
	}
	body, start, err := d.client.open(ctx, url, offset)
	if err != nil {
		return "", err
	}
	defer body.Close()
	if start == 0 {
		if err := d.reset(); err != nil {
			return "", err
		}
	}
	d.add(start - d.count)
	// One byte more than expected is enough to see that the file is wrong.
	r := io.Reader(body)
	if d.file.Size > 0 {
		r = io.LimitReader(body, d.file.Size-start+1)
	}
	if _, err := io.Copy(d, r); err != nil {
		return "", fmt.Errorf("%s: %w", url, err)
	}
	return d.digest()
}

// Write appends to the partial file.
func (d *transfer) Write(p []byte) (int, error) {
	n, err := d.part.Write(p)
	d.add(int64(n))
	if err != nil {
		missing := int64(0)
		if d.file.Size > 0 {
			missing = d.file.Size - d.count
		}
		err = localError{d.client.writeError(d.file.Name, missing, err)}
	}
	return n, err
}

func (d *transfer) add(n int64) {
	d.count += n
	if d.meter != nil && n != 0 {
		d.meter.Add(n)
	}
}

// digest returns the SHA-256 of the whole partial file.
func (d *transfer) digest() (string, error) {
	sum, err := hashAll(d.part)
	if err != nil {
		return "", localError{&CacheError{d.client.Dir, err}}
	}
	return sum, nil
}

// reset empties the partial file.
func (d *transfer) reset() error {
	_, err := d.part.Seek(0, io.SeekStart)
	if err == nil {
		err = d.part.Truncate(0)
	}
	if err != nil {
		return localError{&CacheError{d.client.Dir, err}}
	}
	d.add(-d.count)
	return nil
}

// commit gives the verified partial file its place in the cache.
func (d *transfer) commit(path string) error {
	err := d.part.Sync()
	if err == nil {
		err = os.Rename(d.part.Name(), path)
	}
	if err != nil {
		return d.client.writeError(d.file.Name, 0, err)
	}
	return nil
}
