package debiantest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
)

// Server serves an archive and remembers what it was asked for.
type Server struct {
	URL string // the mirror's base

	mu        sync.Mutex
	requests  []string
	intercept func(http.ResponseWriter, *http.Request) bool
}

// Serve serves the archive below the path /debian until the test ends.
func (a *Archive) Serve(t testing.TB) *Server {
	t.Helper()
	s := &Server{}
	files := http.StripPrefix("/debian", http.FileServerFS(a.Files))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests = append(s.requests, strings.TrimPrefix(r.URL.Path, "/debian/"))
		intercept := s.intercept
		s.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			files.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	s.URL = server.URL + "/debian"
	return s
}

// Intercept makes fn answer requests instead of the archive, where it returns
// true. Nil ends that.
func (s *Server) Intercept(fn func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = fn
}

// Requests returns the paths asked for since the last call, in their order.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	paths := s.requests
	s.requests = nil
	return paths
}

// NoNames makes every host name unknown to this process, and has it use no
// proxy: a test that asks another server than its own is told so at once, with a
// network or without.
func NoNames() {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		if err := os.Unsetenv(name); err != nil {
			panic(err)
		}
	}
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go denyNames(there)
			return here, nil
		},
	}
}

// denyNames answers DNS questions over a stream (RFC 1035, section 4.2.2) with
// "no such name": the question with the bits of a response and RCODE 3 (section
// 4.1.1), without the additional records that followed it.
func denyNames(c net.Conn) {
	defer c.Close()
	for {
		var size uint16
		if binary.Read(c, binary.BigEndian, &size) != nil {
			return
		}
		msg := make([]byte, size)
		if _, err := io.ReadFull(c, msg); err != nil || size < 12 {
			return
		}
		end := 12
		for end < len(msg) && msg[end] != 0 {
			end += 1 + int(msg[end])
		}
		end = min(end+5, len(msg)) // the root label, type and class
		msg[2], msg[3] = 0x81, 0x83
		clear(msg[6:12]) // no answers, authorities, additional records
		reply := binary.BigEndian.AppendUint16(nil, uint16(end))
		if _, err := c.Write(append(reply, msg[:end]...)); err != nil {
			return
		}
	}
}
