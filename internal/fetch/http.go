package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// NewHTTPClient returns a client that honours HTTP_PROXY, HTTPS_PROXY and
// NO_PROXY, gives up on dead servers and serves file URLs as well.
func NewHTTPClient() *http.Client {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 20 * time.Second}).DialContext,
		TLSHandshakeTimeout:   20 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   parallel,
		ForceAttemptHTTP2:     true,
	}
	t.RegisterProtocol("file", http.NewFileTransport(http.Dir("/")))
	return &http.Client{Transport: t}
}

// stall is how long a body may give no byte before the connection counts as
// dead.
const stall = 60 * time.Second

// statusError is a response that isn't the file.
type statusError struct {
	url  string
	code int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.url, e.code, http.StatusText(e.code))
}

// temporary reports whether asking again may help: anything but a clear
// answer of the server or a failure on this side.
func temporary(err error) bool {
	if status, ok := errors.AsType[*statusError](err); ok {
		return status.code >= 500 || status.code == http.StatusTooManyRequests
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		// The resolver keeps only the text of the system's error.
		return !dns.IsNotFound && !strings.Contains(dns.Err, unix.ENETUNREACH.Error())
	}
	if errors.Is(err, unix.ENETUNREACH) {
		return false
	}
	_, local := errors.AsType[localError](err)
	return !local
}

// open asks for the bytes of url from offset on. It returns the body and the
// offset at which it begins: 0 if the server doesn't resume.
func (c *Client) open(ctx context.Context, addr string, offset int64) (io.ReadCloser, int64, error) {
	c.once.Do(func() {
		if c.http = c.HTTP; c.http == nil {
			c.http = NewHTTPClient()
		}
	})
	reqCtx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(reqCtx, http.MethodGet, addr, nil)
	if err != nil {
		cancel(err)
		return nil, 0, err
	}
	req.Header.Set("User-Agent", "mkp2pimg")
	// A transport that unpacks on the fly would break both Range and digest.
	req.Header.Set("Accept-Encoding", "identity")
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := c.http.Do(req) //nolint:bodyclose // watchedBody closes it
	if err != nil {
		cancel(err)
		return nil, 0, err
	}
	body := &watchedBody{ReadCloser: resp.Body, ctx: reqCtx, cancel: cancel}
	body.timer = time.AfterFunc(stall, func() {
		cancel(fmt.Errorf("%s: no data for %v", addr, stall))
	})
	var start int64
	switch {
	case resp.StatusCode == http.StatusOK:
	case resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", offset)):
		start = offset
	default:
		_ = body.Close()
		if offset > 0 && (resp.StatusCode == http.StatusPartialContent ||
			resp.StatusCode == http.StatusRequestedRangeNotSatisfiable) {
			return c.open(ctx, addr, 0)
		}
		return nil, 0, &statusError{addr, resp.StatusCode}
	}
	return body, start, nil
}

// watchedBody cancels the request if no byte comes for a while.
type watchedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(stall)
	}
	if err != nil && !errors.Is(err, io.EOF) && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	return n, err
}

func (b *watchedBody) Close() error {
	b.timer.Stop()
	b.cancel(context.Canceled)
	return b.ReadCloser.Close()
}

// Document returns the body at url, which no digest pins, such as a signed
// index. It is asked for each time, and what came last is kept for when the
// network is off. A body longer than limit bytes is an error. The error is a
// *DownloadError, an *OfflineError or a *CacheError.
func (c *Client) Document(ctx context.Context, url string, limit int64) ([]byte, error) {
	file := File{Name: url[strings.LastIndexByte(url, '/')+1:], URLs: []string{url}}
	if c.Offline && !isLocal(url) {
		data, err := os.ReadFile(c.documentPath(url))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &OfflineError{File: file}
		}
		return data, err
	}
	var data []byte
	err := c.retry(ctx, func() error {
		body, _, err := c.open(ctx, url, 0)
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(io.LimitReader(body, limit+1))
		return err
	})
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: longer than the %d bytes that such a document may have", url, limit)
	}
	if err != nil {
		return nil, &DownloadError{File: file, Errs: []error{err}}
	}
	path := c.documentPath(url)
	if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
		err = renameio.WriteFile(path, data, 0o644)
	}
	if err != nil {
		return nil, c.writeError(file.Name, int64(len(data)), err)
	}
	return data, nil
}

// documentPath is where the last answer of url is kept.
func (c *Client) documentPath(url string) string {
	sum := sha256.Sum256([]byte(url))
	return filepath.Join(c.Dir, "documents", hex.EncodeToString(sum[:]))
}

func isLocal(addr string) bool {
	u, err := url.Parse(addr)
	return err == nil && u.Scheme == "file"
}

// Attempts at one URL, and the pause before the second of them; each later
// pause is twice as long.
const (
	attempts   = 4
	firstPause = time.Second
)

// pause is time.Sleep that ctx can end.
var pause = func(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retry calls try until it succeeds or another attempt can't help.
func (c *Client) retry(ctx context.Context, try func() error) error {
	wait := firstPause
	for i := 1; ; i++ {
		err := try()
		if err == nil || i == attempts || ctx.Err() != nil || !temporary(err) {
			return err
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait *= 2
	}
}
