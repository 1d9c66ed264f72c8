package deliver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs/p2pinit/deliver/delivertest"
	"mkp2pimg/initramfs/p2pinit/params"
)

func soon(int, error) time.Duration { return time.Millisecond }

// collector delivers to a server until the test ends.
func collector(t *testing.T, s *delivertest.Server) *Collector {
	c := NewCollector(s.Run(), delivertest.Token)
	c.Delay = soon
	start(t, c)
	return c
}

func start(t *testing.T, c *Collector) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func write(t *testing.T, c *Collector, text string) {
	t.Helper()
	n, err := io.WriteString(c, text)
	require.NoError(t, err)
	require.Len(t, text, n)
}

func TestCollector(t *testing.T) {
	s := delivertest.New(t)
	c := collector(t, s)
	require.NoError(t, c.Wait(t.Context()), "nothing is there")
	write(t, c, "one\nt")
	require.NoError(t, c.Wait(t.Context()))
	assert.Equal(t, "one\n", s.Report(), "whole lines")
	write(t, c, "wo\n")
	write(t, c, "three\n")
	require.NoError(t, c.Wait(t.Context()))
	require.NoError(t, c.Close())
	assert.Equal(t, "one\ntwo\nthree\n", s.Report())
	assert.Equal(t, 2, s.Posts())
}

// Lines are delivered without anybody waiting for it.
func TestCollectorGoesOnByItself(t *testing.T) {
	arrived := make(chan int, 1)
	s := delivertest.New(t)
	s.Fault = func(_, seq int) int {
		arrived <- seq
		return delivertest.None
	}
	write(t, collector(t, s), "one\ntwo\n")
	assert.Equal(t, 0, <-arrived)
}

// TestCollectorFaults sends three chunks through what goes wrong.
func TestCollectorFaults(t *testing.T) {
	once := func(post, fault int) func(int, int) int {
		return func(posts, _ int) int {
			if posts == post {
				return fault
			}
			return delivertest.None
		}
	}
	for name, fault := range map[string]func(posts, seq int) int{
		"cut":              once(1, delivertest.Cut),
		"cut, but stored":  once(1, delivertest.CutAfter),
		"busy":             once(2, http.StatusTooManyRequests),
		"broken":           once(0, http.StatusInternalServerError),
		"no answer in 200": once(1, http.StatusOK),
		"every other":      func(posts, _ int) int { return []int{delivertest.Cut, 503, delivertest.CutAfter, 0}[posts%4] },
	} {
		t.Run(name, func(t *testing.T) {
			s := delivertest.New(t)
			s.Fault = fault
			c := collector(t, s)
			for i := range 3 {
				write(t, c, fmt.Sprintf("line %d\n", i))
				require.NoError(t, c.Wait(t.Context()))
			}
			assert.Equal(t, "line 0\nline 1\nline 2\n", s.Report())
			assert.Len(t, s.Chunks(), 3)
			assert.Greater(t, s.Posts(), 3)
		})
	}
}

// A server that was put back to an earlier state gets what it lost again.
func TestCollectorAfterABackup(t *testing.T) {
	s := delivertest.New(t)
	c := collector(t, s)
	for i := range 4 {
		write(t, c, fmt.Sprintf("line %d\n", i))
		require.NoError(t, c.Wait(t.Context()))
	}
	s.Set(s.Chunks()[:1]...)
	write(t, c, "last\n")
	require.NoError(t, c.Wait(t.Context()))
	assert.Equal(t, "line 0\nline 1\nline 2\nline 3\nlast\n", s.Report())
	assert.Len(t, s.Chunks(), 5)
}

func TestCollectorGivesUp(t *testing.T) {
	tests := map[string]struct {
		status int
		has    []string // chunks of the server
		want   string
	}{
		"bad request":        {http.StatusBadRequest, nil, "the server answered 400 Bad Request"},
		"token":              {http.StatusUnauthorized, nil, "the server answered 401 Unauthorized: {\"error\": \""},
		"over":               {http.StatusForbidden, nil, "the server answered 403 Forbidden"},
		"no such run":        {http.StatusNotFound, nil, "the server answered 404 Not Found"},
		"too large":          {http.StatusRequestEntityTooLarge, nil, "the server answered 413 Request Entity Too Large"},
		"another start":      {0, []string{"other\n"}, "the server has another report of this run: another start of this machine delivered it ({\"next\": 1, \"conflict\": true, \"error\": \"chunk 0 differs\"})"},
		"another start, too": {0, []string{"line\n", "x\n", "y\n"}, "the server has 3 chunks of this run, of which this start of the machine made 1: another start delivered the others"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := delivertest.New(t)
			s.Fault = func(int, int) int { return tt.status }
			var has [][]byte
			for _, h := range tt.has {
				has = append(has, []byte(h))
			}
			s.Set(has...)
			c := collector(t, s)
			write(t, c, "line\n")
			err := c.Wait(t.Context())
			require.ErrorContains(t, err, "deliver to "+s.Run().String()+": "+tt.want)
			assert.True(t, Final(err))
			assert.NotContains(t, err.Error(), "\x1b")
			_, err = io.WriteString(c, "more\n")
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, 1, s.Posts())
			assert.Equal(t, err, c.Wait(t.Context()))
		})
	}
}

func TestCollectorWithoutAToken(t *testing.T) {
	s := delivertest.New(t)
	c := NewCollector(s.Run(), "")
	start(t, c)
	write(t, c, "line\n")
	require.ErrorContains(t, c.Wait(t.Context()), "the server answered 401 Unauthorized: {\"error\": \"not \"}")
}

// Writing never waits for a server that does not answer, and waiting ends.
func TestCollectorSlowServer(t *testing.T) {
	s := delivertest.New(t)
	begun, answer := make(chan struct{}, 10), make(chan struct{})
	s.Fault = func(int, int) int {
		begun <- struct{}{}
		<-answer
		return delivertest.None
	}
	c := collector(t, s)
	write(t, c, "one\n")
	<-begun
	write(t, c, "two\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	err := c.Wait(ctx)
	require.EqualError(t, err, "8 of 8 bytes of the report are not at "+s.Run().String()+": there was no answer yet")
	assert.False(t, Final(err))
	close(answer)
	require.NoError(t, c.Wait(t.Context()))
	assert.Equal(t, "one\ntwo\n", s.Report())
}

// Who waits does not sit out the delay after a failure, unless the server asked
// for it.
func TestCollectorHurries(t *testing.T) {
	s := delivertest.New(t)
	s.Fault = func(posts, _ int) int { return []int{http.StatusBadGateway, delivertest.None}[min(posts, 1)] }
	c := NewCollector(s.Run(), delivertest.Token)
	failed := make(chan error, 1)
	c.Delay = func(_ int, err error) time.Duration {
		failed <- err
		return time.Hour
	}
	start(t, c)
	write(t, c, "line\n")
	require.ErrorContains(t, <-failed, "502 Bad Gateway")
	require.NoError(t, c.Wait(t.Context()))

	hurry := make(chan struct{}, 1)
	hurry <- struct{}{}
	r := &reply{code: http.StatusTooManyRequests, after: "1"}
	err := persist(t.Context(), func(int, error) time.Duration { return 0 }, hurry, func(context.Context) error {
		if r == nil {
			return nil
		}
		defer func() { r = nil }()
		return r.failure()
	})
	require.NoError(t, err)
	assert.Len(t, hurry, 1, "it was not listened to")
}

// What gathered while there was no server goes out in chunks that it takes.
func TestCollectorSizes(t *testing.T) {
	s := delivertest.New(t)
	c := NewCollector(s.Run(), delivertest.Token)
	line := strings.Repeat("x", 1000) + "\n"
	text := strings.Repeat(line, 2500) + strings.Repeat("y", maxChunk+5) + "\n" + line
	for part := range strings.SplitSeq(text, "xx") { // any pieces
		write(t, c, part+"xx")
	}
	write(t, c, "\n")
	start(t, c)
	require.NoError(t, c.Wait(t.Context()))
	var sizes []int
	for _, chunk := range s.Chunks() {
		sizes = append(sizes, len(chunk))
	}
	require.Len(t, sizes, 5, sizes)
	const whole = maxChunk / 1001 * 1001
	assert.Equal(t, []int{whole, whole, 2500*1001 - 2*whole, maxChunk + 6, 1001 + 3}, sizes)
	assert.Equal(t, text+"xx\n", s.Report())
}

func TestCollectorNetwork(t *testing.T) {
	s := delivertest.New(t)
	var connects atomic.Int32
	s.Fault = func(posts, _ int) int {
		if posts < 2*anew {
			return delivertest.Cut
		}
		return delivertest.None
	}
	c := NewCollector(s.Run(), delivertest.Token)
	c.Delay = soon
	c.Connect = func(context.Context) error {
		if connects.Add(1) != 3 { // the first two fail, and all but the third
			return errors.New("no cable")
		}
		return nil
	}
	start(t, c)
	write(t, c, "line\n")
	require.NoError(t, c.Wait(t.Context()))
	assert.EqualValues(t, 5, connects.Load(), "up at the third, tried anew after 8 and 16 tries; that it fails then does not matter")
	assert.Equal(t, 2*anew+1, s.Posts())

	down := NewCollector(s.Run(), delivertest.Token)
	down.Connect = func(context.Context) error { return errors.New("no cable") }
	failed := make(chan error, 1)
	down.Delay = func(_ int, err error) time.Duration { failed <- err; return time.Hour }
	start(t, down)
	write(t, down, "line\n")
	require.EqualError(t, <-failed, "no cable")
}

func TestCollectorEndsWithItsContext(t *testing.T) {
	s := delivertest.New(t)
	c := NewCollector(s.Run(), delivertest.Token)
	write(t, c, "line\n")
	ctx, cancel := context.WithCancel(t.Context())
	s.Fault = func(int, int) int {
		cancel()
		return http.StatusServiceUnavailable
	}
	c.Run(ctx)
	err := c.Wait(t.Context())
	require.ErrorContains(t, err, "given up after 1 tries")
	assert.False(t, Final(err))
}

func TestPins(t *testing.T) {
	s := delivertest.NewUnstarted(t)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	leaf := s.Certificate()
	// The certificate of net/http/httptest is for example.com and 127.0.0.1, and of
	// an authority that nobody knows.
	right := pinOf(leaf.RawSubjectPublicKeyInfo)
	wrong := pinOf([]byte("another key"))

	put := func(pins ...params.Pin) error {
		c := NewCollector(s.Run(), delivertest.Token)
		c.Client = Client(pins)
		c.Delay = soon
		start(t, c)
		write(t, c, "line\n")
		return c.Wait(t.Context())
	}
	require.NoError(t, put(right))
	require.NoError(t, put(wrong, right), "any of them")
	err := put(wrong)
	require.ErrorContains(t, err, fmt.Sprintf("the server's key is %s, p2p.pin wants %s: it has a new one, or another server answers at its address", right, wrong))
	assert.True(t, Final(err))
	err = put()
	require.ErrorContains(t, err, "certificate signed by unknown authority; only public authorities are known here: name the server's key in p2p.pin")
	assert.True(t, Final(err))
	require.ErrorContains(t, Put(t.Context(), Client([]params.Pin{wrong}), s.Run(), nil, again(t)), "p2p.pin wants "+wrong.String())
}

func pinOf(spki []byte) params.Pin { return sha256.Sum256(spki) }

// FuzzReply reads whatever a server may answer.
func FuzzReply(f *testing.F) {
	f.Add(200, "", []byte(`{"next": 3, "complete": true}`), 3)
	f.Add(409, "", []byte(`{"next": 1, "error": "no"}`), 3)
	f.Add(409, "", []byte(`{"next": 1, "conflict": true}`), 3)
	f.Add(429, "5", []byte("<html>\x1b[2J\u202e"), 1)
	f.Add(200, "", []byte(`{"next": 99999999999999999999}`), 1)
	f.Add(200, "", []byte(`{"next": null}`), 1)
	f.Add(302, "-1", []byte(`[]`), 1)
	f.Fuzz(func(t *testing.T, code int, after string, body []byte, made int) {
		r := &reply{code, http.StatusText(code), after, body}
		next, err := r.next(made)
		if err == nil {
			assert.True(t, 0 <= next && next <= made)
			return
		}
		assert.False(t, strings.ContainsFunc(err.Error(), func(c rune) bool { return !unicode.IsPrint(c) }))
		d := Delay(1, err)
		assert.True(t, 0 <= d && d <= longestBusy)
		if bytes.Contains(body, []byte("conflict")) || code/100 == 4 {
			return
		}
		if made >= 0 && code/100 != 2 {
			assert.False(t, Final(err), "only a no of the server is final")
		}
	})
}
