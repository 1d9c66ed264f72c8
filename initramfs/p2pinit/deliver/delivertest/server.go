// Package delivertest plays a farm's server that takes the report of one run in,
// for tests.
package delivertest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Token is the token of the run.
const Token = "Zm9yLXRlc3RzLW9ubHktMzItYnl0ZXMtbG9uZy1hYmM"

// What [Server.Fault] may ask for besides an HTTP status.
const (
	None     = 0
	Cut      = -1 // the connection ends before the chunk is stored
	CutAfter = -2 // it is stored, and nobody hears of that
)

// Server is a farm's server with one run.
type Server struct {
	*httptest.Server
	// Fault is asked before each chunk what goes wrong with it: an HTTP status to
	// answer or one of the constants. Posts counts from 0. It is set before the
	// first request.
	Fault func(posts, seq int) int

	t      *testing.T
	mu     sync.Mutex
	posts  int
	chunks [][]byte // unpacked
}

// New starts a server. It ends with the test.
func New(t *testing.T) *Server {
	s := NewUnstarted(t)
	s.Start()
	return s
}

// NewUnstarted is for a server with TLS, see [httptest.NewUnstartedServer].
func NewUnstarted(t *testing.T) *Server {
	s := &Server{t: t, Fault: func(int, int) int { return None }}
	s.Server = httptest.NewUnstartedServer(s)
	t.Cleanup(func() { s.Close() })
	return s
}

// Run is the URL of the run.
func (s *Server) Run() *url.URL {
	u, err := url.Parse(s.URL + "/v1/runs/1")
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

// Report is what has arrived.
func (s *Server) Report() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(bytes.Join(s.chunks, nil))
}

// Chunks are the chunks that have arrived.
func (s *Server) Chunks() [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.chunks)
}

// Posts is how many chunks were sent to the server, those that failed included.
func (s *Server) Posts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.posts
}

// Set replaces what the server has, as if it came back from a backup.
func (s *Server) Set(chunks ...[]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chunks = chunks
}

// ServeHTTP takes a chunk.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, ok := strings.CutPrefix(r.URL.Path, "/v1/runs/1/chunks/")
	seq, err := strconv.Atoi(number)
	if !ok || err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-ndjson" || r.Header.Get("Content-Encoding") != "gzip" {
		s.t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		http.NotFound(w, r)
		return
	}
	s.posts++
	fault := s.Fault(s.posts-1, seq)
	switch {
	case fault == Cut:
		panic(http.ErrAbortHandler)
	case fault > 0:
		if fault == http.StatusTooManyRequests || fault == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, `{"error": "\x1b[31mas the test wants"}`, fault)
		return
	case r.Header.Get("Authorization") != "Bearer "+Token:
		http.Error(w, fmt.Sprintf(`{"error": "not %s"}`, r.Header.Get("Authorization")), http.StatusUnauthorized)
		return
	}
	s.take(w, seq, s.unpack(r.Body))
	if fault == CutAfter {
		panic(http.ErrAbortHandler)
	}
}

// take stores a chunk, if it is the next, and answers.
func (s *Server) take(w http.ResponseWriter, seq int, chunk []byte) {
	switch {
	case seq == len(s.chunks):
		s.chunks = append(s.chunks, chunk)
	case seq > len(s.chunks):
		w.WriteHeader(http.StatusConflict)
	case !bytes.Equal(chunk, s.chunks[seq]):
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"next": %d, "conflict": true, "error": "chunk %d differs"}`, len(s.chunks), seq)
		return
	}
	_, _ = fmt.Fprintf(w, `{"next": %d, "complete": %t}`, len(s.chunks), bytes.Contains(chunk, []byte(`"testRunEnd"`)))
}

func (s *Server) unpack(body io.Reader) []byte {
	r, err := gzip.NewReader(body)
	if err != nil {
		s.t.Errorf("chunk: %v", err)
		return nil
	}
	text, err := io.ReadAll(r)
	if err != nil || !bytes.HasSuffix(text, []byte("\n")) {
		s.t.Errorf("chunk of %d bytes that ends in %q: %v", len(text), text[max(0, len(text)-10):], err)
	}
	return text
}
