package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	pause = func(ctx context.Context, _ time.Duration) error {
		time.Sleep(time.Millisecond)
		return context.Cause(ctx)
	}
	// The environment is read once per process, and never for localhost.
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() == "http://mirror.invalid/f.deb" {
			serveContent(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	_ = os.Setenv("HTTP_PROXY", proxy.URL)
	code := m.Run()
	proxy.Close()
	os.Exit(code)
}

var content = bytes.Repeat([]byte("peer to peer "), 5000)

func pin(name string, data []byte, urls ...string) File {
	sum := sha256.Sum256(data)
	return File{Name: name, URLs: urls, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
}

// server serves h and counts its requests.
func server(t *testing.T, h http.HandlerFunc) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/pool/f.deb", requests
}

func serveContent(w http.ResponseWriter, r *http.Request) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func requireContent(t *testing.T, path string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got), "content differs")
	assert.NoFileExists(t, path+".partial")
}

// requireClean checks that the cache holds no file at all.
func requireClean(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			err = fmt.Errorf("%s is left in the cache", path)
		}
		return err
	}))
}

func TestGetDownloadsOnce(t *testing.T) {
	url, requests := server(t, serveContent)
	dir := filepath.Join(t.TempDir(), "cache")
	f := pin("f.deb", content, url)
	c := &Client{Dir: dir}
	for range 2 {
		path, err := c.Get(t.Context(), f)
		require.NoError(t, err)
		assert.Equal(t, c.Path(f.SHA256), path)
		requireContent(t, path)
	}
	_, err := (&Client{Dir: dir, Offline: true}).Get(t.Context(), f)
	require.NoError(t, err)
	assert.EqualValues(t, 1, requests.Load())
}

func TestGetUnknownSize(t *testing.T) {
	url, _ := server(t, serveContent)
	f := pin("f.deb", content, url)
	f.Size = 0
	path, err := (&Client{Dir: t.TempDir()}).Get(t.Context(), f)
	require.NoError(t, err)
	requireContent(t, path)
}

func TestGetResumes(t *testing.T) {
	half := int64(len(content) / 2)
	tests := map[string]struct {
		partial []byte
		serve   http.HandlerFunc
		ranges  []string // what the server is asked for
	}{
		"server resumes": {
			content[:half], serveContent,
			[]string{fmt.Sprintf("bytes=%d-", half)},
		},
		"server ignores range": {
			content[:half],
			func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) },
			[]string{fmt.Sprintf("bytes=%d-", half)},
		},
		"server answers another range": {
			content[:half],
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					r.Header.Set("Range", "bytes=1-")
				}
				serveContent(w, r)
			},
			[]string{fmt.Sprintf("bytes=%d-", half), ""},
		},
		"server refuses range": {
			content[:half],
			func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Range") != "" {
					w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
					return
				}
				serveContent(w, r)
			},
			[]string{fmt.Sprintf("bytes=%d-", half), ""},
		},
		"partial file is of another content": {
			bytes.Repeat([]byte{'x'}, int(half)), serveContent,
			[]string{fmt.Sprintf("bytes=%d-", half), ""},
		},
		"partial file is whole": {content, serveContent, nil},
		"partial file is too long": {
			append(bytes.Clone(content), "more"...), serveContent,
			[]string{""},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var ranges []string
			url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
				ranges = append(ranges, r.Header.Get("Range"))
				tt.serve(w, r)
			})
			c := &Client{Dir: t.TempDir()}
			f := pin("f.deb", content, url)
			require.NoError(t, os.MkdirAll(filepath.Dir(c.Path(f.SHA256)), 0o755))
			require.NoError(t, os.WriteFile(c.partial(f), tt.partial, 0o644))
			path, err := c.Get(t.Context(), f)
			require.NoError(t, err)
			requireContent(t, path)
			assert.Equal(t, tt.ranges, ranges)
		})
	}
}

func TestGetGoesOnAfterBrokenConnection(t *testing.T) {
	first := true
	url, requests := server(t, func(w http.ResponseWriter, r *http.Request) {
		if first {
			first = false
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, _ = w.Write(content[:10000])
			panic(http.ErrAbortHandler)
		}
		assert.Equal(t, "bytes=10000-", r.Header.Get("Range"))
		serveContent(w, r)
	})
	meter := &counter{}
	path, err := (&Client{Dir: t.TempDir(), Progress: meter}).Get(t.Context(), pin("f.deb", content, url))
	require.NoError(t, err)
	requireContent(t, path)
	assert.EqualValues(t, 2, requests.Load())
	assert.EqualValues(t, len(content), meter.n)
	assert.Equal(t, 1, meter.ends)
}

type counter struct {
	mu   sync.Mutex
	n    int64
	ends int
	err  error
}

func (c *counter) Start(string, int64) Meter { return c }

func (c *counter) Add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
}

func (c *counter) End(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends++
	c.err = err
}

func TestGetKeepsPartialOfInterruptedDownload(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:10000])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	c := &Client{Dir: t.TempDir()}
	f := pin("f.deb", content, url)
	c.Progress = startFunc(func(n int64) {
		if n > 0 {
			cancel()
		}
	})
	_, err := c.Get(ctx, f)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "f.deb")
	assert.NoFileExists(t, c.Path(f.SHA256))
	got, err := os.ReadFile(c.partial(f))
	require.NoError(t, err)
	require.NotEmpty(t, got)
	assert.True(t, bytes.HasPrefix(content, got))
}

type startFunc func(n int64)

func (f startFunc) Start(string, int64) Meter { return f }
func (f startFunc) Add(n int64)               { f(n) }
func (f startFunc) End(error)                 {}

func TestGetFallsBack(t *testing.T) {
	gone, _ := server(t, http.NotFound)
	bad, _ := server(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte{'x'}, len(content)))
	})
	good, _ := server(t, serveContent)
	path, err := (&Client{Dir: t.TempDir()}).Get(t.Context(), pin("f.deb", content, gone, bad, good))
	require.NoError(t, err)
	requireContent(t, path)
}

func TestGetRetriesServerErrors(t *testing.T) {
	fails := 2
	url, requests := server(t, func(w http.ResponseWriter, r *http.Request) {
		if fails > 0 {
			fails--
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		serveContent(w, r)
	})
	_, err := (&Client{Dir: t.TempDir()}).Get(t.Context(), pin("f.deb", content, url))
	require.NoError(t, err)
	assert.EqualValues(t, 3, requests.Load())
}

func TestGetWrongContent(t *testing.T) {
	tests := map[string][]byte{
		"same size": bytes.Repeat([]byte{'x'}, len(content)),
		"too long":  append(bytes.Clone(content), "more"...),
		"short":     content[:100],
		"empty":     {},
	}
	for name, body := range tests {
		t.Run(name, func(t *testing.T) {
			url, requests := server(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
			dir := t.TempDir()
			f := pin("f.deb", content, url)
			_, err := (&Client{Dir: dir}).Get(t.Context(), f)
			var sum *ChecksumError
			require.ErrorAs(t, err, &sum)
			assert.Equal(t, url, sum.From)
			assert.Equal(t, f.SHA256, sum.Want)
			assert.NotEqual(t, f.SHA256, sum.Got)
			for _, part := range []string{"f.deb", url, f.SHA256, sum.Got} {
				assert.ErrorContains(t, err, part)
			}
			assert.EqualValues(t, 1, requests.Load())
			requireClean(t, dir)
		})
	}
}

func TestGetNowhere(t *testing.T) {
	a, requests := server(t, http.NotFound)
	b, _ := server(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	dir := t.TempDir()
	_, err := (&Client{Dir: dir}).Get(t.Context(), pin("f.deb", content, a, b))
	var down *DownloadError
	require.ErrorAs(t, err, &down)
	assert.Equal(t, "download f.deb: none of 2 places gave it:\n  "+
		a+": 404 Not Found\n  "+b+": 403 Forbidden", err.Error())
	assert.EqualValues(t, 1, requests.Load(), "a clear no is not asked again")
	requireClean(t, dir)
}

func TestGetBadRequest(t *testing.T) {
	c := &Client{Dir: t.TempDir()}
	_, err := c.Get(t.Context(), File{Name: "f.deb", SHA256: "ABC"})
	require.ErrorContains(t, err, "not a SHA-256")
	_, err = c.Get(t.Context(), pin("f.deb", content))
	require.ErrorContains(t, err, "no URL")
}

func TestGetOffline(t *testing.T) {
	url, requests := server(t, serveContent)
	c := &Client{Dir: t.TempDir(), Offline: true}
	f := pin("f.deb", content, url)
	_, err := c.Get(t.Context(), f)
	var off *OfflineError
	require.ErrorAs(t, err, &off)
	for _, part := range []string{"f.deb", url, f.SHA256, c.Path(f.SHA256), "mkp2pimg fetch"} {
		assert.ErrorContains(t, err, part)
	}
	_, err = c.Document(t.Context(), url, 10)
	require.ErrorAs(t, err, &off)
	assert.ErrorContains(t, err, url)
	assert.Zero(t, requests.Load())
}

func TestGetLocalFile(t *testing.T) {
	local := filepath.Join(t.TempDir(), "f.deb")
	require.NoError(t, os.WriteFile(local, content, 0o644))
	url, requests := server(t, serveContent)
	c := &Client{Dir: t.TempDir(), Offline: true}
	path, err := c.Get(t.Context(), pin("f.deb", content, url, "file://"+local))
	require.NoError(t, err)
	requireContent(t, path)
	assert.Zero(t, requests.Load())
}

func TestGetRepairsCache(t *testing.T) {
	url, requests := server(t, serveContent)
	dir := t.TempDir()
	f := pin("f.deb", content, url)
	damage := func(data []byte) {
		path := (&Client{Dir: dir}).Path(f.SHA256)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, data, 0o644))
	}
	damage(content[:100])
	path, err := (&Client{Dir: dir}).Get(t.Context(), f)
	require.NoError(t, err)
	requireContent(t, path)
	assert.EqualValues(t, 1, requests.Load())

	damage(bytes.Repeat([]byte{'x'}, len(content)))
	_, err = (&Client{Dir: dir, Offline: true}).Get(t.Context(), f)
	var sum *ChecksumError
	require.ErrorAs(t, err, &sum)
	assert.Equal(t, path, sum.From)
	requireClean(t, dir)
}

func TestGetWrongSizeInIndex(t *testing.T) {
	url, _ := server(t, serveContent)
	c := &Client{Dir: t.TempDir()}
	f := pin("f.deb", content, url)
	_, err := c.Get(t.Context(), f)
	require.NoError(t, err)
	f.Size++
	_, err = c.Get(t.Context(), f)
	require.ErrorContains(t, err, "bytes")
}

func TestGetSeveralAtOnce(t *testing.T) {
	url, requests := server(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		serveContent(w, r)
	})
	dir := t.TempDir()
	f := pin("f.deb", content, url)
	var g errgroup.Group
	for range 6 {
		g.Go(func() error {
			_, err := (&Client{Dir: dir}).Get(t.Context(), f)
			return err
		})
	}
	require.NoError(t, g.Wait())
	assert.EqualValues(t, 1, requests.Load())
	requireContent(t, (&Client{Dir: dir}).Path(f.SHA256))
}

func TestGetAll(t *testing.T) {
	var files []File
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte(r.URL.Path))
	})
	base := strings.TrimSuffix(url, "/pool/f.deb")
	for i := range 10 {
		path := fmt.Sprintf("/%d", i)
		files = append(files, pin(path, []byte(path), base+path))
	}
	files = append(files, files[0])
	c := &Client{Dir: t.TempDir()}
	paths, err := c.GetAll(t.Context(), files)
	require.NoError(t, err)
	require.Len(t, paths, len(files))
	for i, path := range paths {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, files[i].Name, string(got))
	}

	files[3].SHA256 = strings.Repeat("0", 64)
	_, err = c.GetAll(t.Context(), files)
	var sum *ChecksumError
	require.ErrorAs(t, err, &sum)
}

func TestNoSpaceBeforeDownload(t *testing.T) {
	url, requests := server(t, serveContent)
	dir := t.TempDir()
	f := pin("huge.deb", content, url)
	f.Size = 1 << 60
	c := &Client{Dir: dir}
	_, err := c.Get(t.Context(), f)
	var space *NoSpaceError
	require.ErrorAs(t, err, &space)
	assert.Equal(t, f.Size, space.Need)
	for _, part := range []string{"huge.deb", dir, "1.0 EiB"} {
		assert.ErrorContains(t, err, part)
	}
	_, err = c.GetAll(t.Context(), []File{f, pin("b", content[:5], url)})
	require.ErrorAs(t, err, &space)
	assert.ErrorContains(t, err, "2 files")
	assert.Zero(t, requests.Load())
	requireClean(t, dir)
}

func TestUnusableCache(t *testing.T) {
	url, _ := server(t, serveContent)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	c := &Client{Dir: filepath.Join(file, "cache")}
	_, err := c.Get(t.Context(), pin("f.deb", content, url))
	var cache *CacheError
	require.ErrorAs(t, err, &cache)
	assert.ErrorContains(t, err, c.Dir)
	assert.ErrorContains(t, err, "another cache directory")
}

func TestUnreadableCache(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads and writes everywhere")
	}
	url, _ := server(t, serveContent)
	for _, mode := range []os.FileMode{0o000, 0o500} {
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, mode))
		_, err := (&Client{Dir: dir}).Get(t.Context(), pin("f.deb", content, url))
		var cache *CacheError
		require.ErrorAs(t, err, &cache)
		require.ErrorIs(t, err, os.ErrPermission)
	}
}

func TestDocument(t *testing.T) {
	url, _ := server(t, serveContent)
	c := &Client{Dir: t.TempDir()}
	got, err := c.Document(t.Context(), url, int64(len(content)))
	require.NoError(t, err)
	assert.Equal(t, len(content), len(got))
	_, err = c.Document(t.Context(), url, int64(len(content))-1)
	require.ErrorContains(t, err, "longer than")
	gone, _ := server(t, http.NotFound)
	_, err = c.Document(t.Context(), gone, 10)
	require.EqualError(t, err, "download f.deb: "+gone+": 404 Not Found")
	var download *DownloadError
	require.ErrorAs(t, err, &download)

	c.Offline = true
	kept, err := c.Document(t.Context(), url, 1)
	require.NoError(t, err)
	assert.Equal(t, got, kept, "what came last is there without a network")
	_, err = c.Document(t.Context(), gone, 10)
	var off *OfflineError
	require.ErrorAs(t, err, &off)
}

func TestProxy(t *testing.T) {
	f := pin("f.deb", content, "http://mirror.invalid/f.deb") // served by the proxy of TestMain
	path, err := (&Client{Dir: t.TempDir()}).Get(t.Context(), f)
	require.NoError(t, err)
	requireContent(t, path)
}

func TestNoSpaceDuringDownload(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=20k"); err != nil {
		t.Skipf("needs a small tmpfs: mount: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	url, requests := server(t, serveContent)
	f := pin("f.deb", content, url, url)
	f.Size = 0 // or it would be refused before
	_, err := (&Client{Dir: dir}).Get(t.Context(), f)
	var space *NoSpaceError
	require.ErrorAs(t, err, &space)
	assert.ErrorContains(t, err, "f.deb")
	assert.ErrorContains(t, err, dir)
	assert.EqualValues(t, 1, requests.Load(), "another URL doesn't help")
	assert.NoFileExists(t, (&Client{Dir: dir}).Path(f.SHA256))
}
