package intake

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/internal/farm"
)

// serve has a lab served over TCP.
func serve(t *testing.T, l *lab) *httptest.Server {
	s := httptest.NewServer(l)
	t.Cleanup(s.Close)
	return s
}

// dial connects to a server and sends it a text.
func dial(t *testing.T, s *httptest.Server, text string) net.Conn {
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	return c
}

// head is the beginning of a request with a chunk.
func head(run string, size int) string {
	return fmt.Sprintf("POST /v1/runs/%s/chunks/0 HTTP/1.1\r\nHost: farm\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n",
		run, nodeToken+"gpu-1", contentType, size)
}

func TestSlowClient(t *testing.T) {
	l := newLab(t, sqlite(t))
	l.grace = 0
	run := l.offer("gpu-1")
	s := serve(t, l)
	body := chunks("gpu-1", 1)[0]
	c := dial(t, s, head(run, len(body))+string(body[:100]))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
	assert.Equal(t, "1", r.Header.Get("Retry-After"))
	assert.Equal(t, `{"error":"the body came with less than 16384 bytes per second"}`+"\n", string(text))
	assert.Empty(t, l.stored(run))
}

// TestSlowStranger is about a body that nobody wants to read.
func TestSlowStranger(t *testing.T) {
	l := newLab(t, sqlite(t))
	l.grace = 0
	s := serve(t, l)
	c := dial(t, s, head("0", 1000))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	assert.Equal(t, http.StatusNotFound, r.StatusCode)
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF, "the connection is closed")
}

// TestAnswerAfterASlowBody has a server whose bound on answers, which counts from the
// header on, is over when the body is there.
func TestAnswerAfterASlowBody(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	s := httptest.NewUnstartedServer(l)
	s.Config.WriteTimeout = time.Nanosecond
	s.Start()
	t.Cleanup(s.Close)
	body := chunks("gpu-1", 1)[0]
	c := dial(t, s, head(run, len(body))+string(body))
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err, "there is an answer")
	require.NoError(t, r.Body.Close())
	assert.Equal(t, http.StatusOK, r.StatusCode)
}

func TestCutOff(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	s := serve(t, l)
	body := chunks("gpu-1", 1)[0]
	for _, n := range []int{0, 1, len(body) - 1} {
		c := dial(t, s, head(run, len(body))+string(body[:n]))
		require.NoError(t, c.(*net.TCPConn).CloseWrite())
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode)
		assert.Empty(t, l.stored(run))
	}
	assert.Equal(t, 200, l.post(run, "0", body).Code)
}

// TestNode has the program of the image deliver, over a network that breaks.
func TestNode(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	count := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch count++; count % 3 {
		case 1: // the answer is lost
			l.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2: // the request is lost
			panic(http.ErrAbortHandler)
		}
		l.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = nil
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL + "/v1/runs/" + run)
	require.NoError(t, err)
	c := deliver.NewCollector(u, nodeToken+"gpu-1")
	c.Delay = func(int, error) time.Duration { return 0 }
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	go func() { c.Run(ctx); close(ended) }()
	all := chunks("gpu-1", 4)
	for _, part := range all {
		_, err := c.Write(part)
		require.NoError(t, err)
		require.NoError(t, c.Wait(ctx))
	}
	require.NoError(t, c.Close())
	<-ended
	assert.Equal(t, string(slices.Concat(all...)), l.stored(run))
	assert.Equal(t, farm.Complete, l.run(run).State)
}

func TestNodeWithAForeignToken(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	s := serve(t, l)
	u, err := url.Parse(s.URL + "/v1/runs/" + run)
	require.NoError(t, err)
	c := deliver.NewCollector(u, nodeToken+"gpu-2")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	go c.Run(ctx)
	_, err = c.Write(chunks("gpu-1", 1)[0])
	require.NoError(t, err)
	err = c.Wait(ctx)
	require.Error(t, err)
	assert.True(t, deliver.Final(err), "%v", err)
	assert.Contains(t, err.Error(), "the token is not that of this run")
	assert.False(t, strings.Contains(err.Error(), nodeToken))
}
