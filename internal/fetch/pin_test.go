package fetch

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	url, requests := server(t, serveContent)
	gone, _ := server(t, http.NotFound)
	c := &Client{Dir: t.TempDir()}
	got, err := c.Pin(t.Context(), File{Name: "tree.tar.gz", URLs: []string{gone, url}})
	require.NoError(t, err)
	assert.Equal(t, pin("tree.tar.gz", content, gone, url), got)

	path, err := c.Get(t.Context(), got)
	require.NoError(t, err)
	assert.Equal(t, c.Path(got.SHA256), path)
	assert.EqualValues(t, 1, requests.Load(), "it is in the cache")

	_, err = c.Pin(t.Context(), File{Name: "tree.tar.gz", URLs: []string{gone}})
	require.EqualError(t, err, "download tree.tar.gz: "+gone+": 404 Not Found")

	offline := &Client{Dir: c.Dir, Offline: true}
	_, err = offline.Pin(t.Context(), File{Name: "tree.tar.gz", URLs: []string{url}})
	var off *OfflineError
	require.ErrorAs(t, err, &off)
	assert.ErrorContains(t, err, url)
}

func TestImport(t *testing.T) {
	c := &Client{Dir: t.TempDir(), Offline: true}
	got, err := c.Import("driver.run", strings.NewReader(string(content)))
	require.NoError(t, err)
	assert.Equal(t, pin("driver.run", content), got)
	path, err := c.Get(t.Context(), got)
	require.NoError(t, err)
	assert.FileExists(t, path)

	broken := errors.New("medium error")
	_, err = c.Import("driver.run", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	partial, err := filepath.Glob(filepath.Join(c.Dir, "sha256", "*.partial"))
	require.NoError(t, err)
	assert.Empty(t, partial)
}

func TestGetAllNamesEverythingMissing(t *testing.T) {
	url, requests := server(t, serveContent)
	c := &Client{Dir: t.TempDir(), Offline: true}
	run, deb, local := pin("driver.run", []byte("run"), url), pin("f.deb", []byte("deb"), url), pin("tree.tar", []byte("tar"))
	have, err := c.Import("have", strings.NewReader("have"))
	require.NoError(t, err)

	_, err = c.GetAll(t.Context(), []File{run, deb, have, run, local})
	var missing *MissingError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Files, 3, "each once")
	for _, f := range []File{run, deb, local} {
		assert.ErrorContains(t, err, "to "+c.Path(f.SHA256)+" (SHA-256 "+f.SHA256+")")
	}
	assert.ErrorContains(t, err, "3 files are not in the cache")
	assert.ErrorContains(t, err, "\n  "+url+"\n")
	assert.ErrorContains(t, err, "tree.tar, which was given as a local file before")

	c.Offline = false
	_, err = c.GetAll(t.Context(), []File{run, local})
	require.ErrorContains(t, err, "tree.tar, which was given as a local file before, is not in the cache any more: give it again")
	assert.Zero(t, requests.Load())
}

func TestNoNetworkIsNotAskedTwice(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&net.DNSError{Err: "dial udp 192.0.2.53:53: connect: network is unreachable", IsTemporary: true}, false},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, false},
		{&net.DNSError{Err: "server misbehaving", IsTemporary: true}, true},
		{&net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", unix.ENETUNREACH)}, false},
		{io.ErrUnexpectedEOF, true},
	} {
		assert.Equal(t, tt.want, temporary(tt.err), "%v", tt.err)
	}
}

func TestImportIntoUnusableCache(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := (&Client{Dir: file}).Import("x", strings.NewReader("x"))
	var cache *CacheError
	require.ErrorAs(t, err, &cache)
}
