// Package fetch downloads files whose SHA-256 is known before and keeps them
// in a content-addressed cache.
//
// A file reaches its place in the cache only whole and verified. Until then it
// is a .partial file beside that place, locked against other processes, from
// which an interrupted download goes on.
package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"mkp2pimg/internal/digest"

	"golang.org/x/sync/errgroup"
)

// File is one download, pinned by its digest.
type File struct {
	Name   string   // what messages call it, usually the base name of the URL
	URLs   []string // where it can be had, tried in order: http, https or file
	SHA256 string   // lower-case hex
	Size   int64    // bytes; 0 if not known before
}

// Client fetches files into the cache at Dir. Its methods may be called from
// several goroutines, and several processes may share one Dir.
type Client struct {
	Dir      string       // cache directory, made when needed
	HTTP     *http.Client // nil: NewHTTPClient()
	Offline  bool         // never use the network; file URLs still work
	Progress Progress     // nil: quiet

	once     sync.Once
	http     *http.Client
	mu       sync.Mutex
	verified map[string]bool // digests whose file this process has hashed
}

// Progress is told about downloads, not about cache hits. Start may be called
// from several goroutines at once.
type Progress interface {
	// Start begins a download of size bytes (0 if not known).
	Start(name string, size int64) Meter
}

// Meter follows one download.
type Meter interface {
	// Add reports n more bytes. A download that starts over gives back what
	// it had counted: n is negative then.
	Add(n int64)
	// End reports the end of the download, with its error if it failed.
	End(err error)
}

// parallel is how many downloads GetAll runs at a time: enough to hide round
// trips, few enough to be polite to a mirror.
const parallel = 4

// Get returns the path of f inside the cache, downloading it if it isn't
// there. The content at that path has been verified by this process.
//
// Besides the errors of the network it returns *ChecksumError, *OfflineError,
// *NoSpaceError and *CacheError.
func (c *Client) Get(ctx context.Context, f File) (string, error) {
	if !sha256Hex.MatchString(f.SHA256) {
		return "", fmt.Errorf("fetch %s: %q is not a SHA-256 in lower-case hex", f.Name, f.SHA256)
	}
	path := c.Path(f.SHA256)
	ok, err := c.cached(f, path)
	if err != nil {
		return "", err
	}
	if !ok {
		if err := c.download(ctx, f, path); err != nil {
			return "", err
		}
		c.markVerified(f.SHA256)
	}
	return path, nil
}

// GetAll is Get for many files, a few at a time. The paths are in the order
// of files. The first error stops the rest; but without a network the error, a
// *MissingError, names all files that are missing.
func (c *Client) GetAll(ctx context.Context, files []File) ([]string, error) {
	if err := c.checkPresent(files); err != nil {
		return nil, err
	}
	if err := c.checkSpace(files); err != nil {
		return nil, err
	}
	paths := make([]string, len(files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, f := range files {
		g.Go(func() (err error) {
			paths[i], err = c.Get(ctx, f)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return paths, nil
}

// checkPresent reports the files that can't be had for want of a network, or
// of any place to ask.
func (c *Client) checkPresent(files []File) error {
	missing := &MissingError{}
	seen := map[string]bool{}
	for _, f := range files {
		if seen[f.SHA256] || len(f.URLs) > 0 && !c.Offline || slices.ContainsFunc(f.URLs, isLocal) {
			continue
		}
		seen[f.SHA256] = true
		path := c.Path(f.SHA256)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			missing.Files = append(missing.Files, &OfflineError{File: f, Path: path})
		}
	}
	if missing.Files == nil {
		return nil
	}
	return missing
}

// Path returns where a file with this SHA-256 is or would be in the cache.
func (c *Client) Path(sha256 string) string {
	return filepath.Join(c.Dir, "sha256", sha256[:min(2, len(sha256))], sha256)
}

var sha256Hex = regexp.MustCompile(`^[0-9a-f]{64}$`)

// cached reports whether path holds f. A file there that isn't f is removed,
// so that it is downloaded again, unless that can't be done.
func (c *Client) cached(f File, path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, &CacheError{c.Dir, err}
	}
	sizeOK := f.Size <= 0 || info.Size() == f.Size
	if sizeOK && c.isVerified(f.SHA256) {
		return true, nil
	}
	got, err := digest.File(path)
	if err != nil {
		return false, &CacheError{c.Dir, err}
	}
	if got == f.SHA256 {
		if !sizeOK {
			return false, fmt.Errorf("%s: its SHA-256 is right, but it has %d bytes and not the %d that its index says",
				f.Name, info.Size(), f.Size)
		}
		c.markVerified(f.SHA256)
		return true, nil
	}
	if err := os.Remove(path); err != nil {
		return false, &CacheError{c.Dir, err}
	}
	if c.Offline {
		return false, &ChecksumError{File: f, From: path, Want: f.SHA256, Got: got}
	}
	return false, nil
}

func (c *Client) isVerified(sum string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.verified[sum]
}

func (c *Client) markVerified(sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verified == nil {
		c.verified = make(map[string]bool)
	}
	c.verified[sum] = true
}

// hashAll returns the SHA-256 of the whole of f.
func hashAll(f *os.File) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, math.MaxInt64)); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
