// Package fetch downloads files whose SHA-256 is known before and keeps them
// in a content-addressed cache.
//
// A file reaches its place in the cache only whole and verified. Until then it
// is a .partial file beside that place, locked against other processes, from
// which an interrupted download goes on.
package fetch

import (
	"context"
	"errors"
	"net/http"
	"sync"
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

	mu       sync.Mutex
	verified map[string]bool // paths that this process has hashed
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

// Get returns the path of f inside the cache, downloading it if it isn't
// there. The content at that path has been verified by this process.
func (c *Client) Get(ctx context.Context, f File) (string, error) {
	return "", errors.ErrUnsupported
}

// GetAll is Get for many files, a few at a time. The paths are in the order
// of files. The first error stops the rest.
func (c *Client) GetAll(ctx context.Context, files []File) ([]string, error) {
	return nil, errors.ErrUnsupported
}

// Document returns the body at url, which no digest pins, such as a signed
// index. It is not cached. A body longer than limit bytes is an error.
func (c *Client) Document(ctx context.Context, url string, limit int64) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Path returns where a file with this SHA-256 is or would be in the cache.
func (c *Client) Path(sha256 string) string { return "" }

// NewHTTPClient returns a client that honours HTTP_PROXY, HTTPS_PROXY and
// NO_PROXY, gives up on dead servers and serves file URLs as well.
func NewHTTPClient() *http.Client { return nil }
