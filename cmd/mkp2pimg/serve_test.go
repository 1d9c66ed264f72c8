package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images/imagestest"
	"mkp2pimg/internal/farm/lab"
)

// server is serve in this process.
type server struct {
	t         *testing.T
	dir       string
	plain     string // base URLs
	encrypted string
	log       *syncBuffer
	client    *http.Client
	stop      func() error // and wait
}

// syncBuffer is a buffer that is written to while it is read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// freeAddress is an address of this machine that nobody listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// startServer serves an image in a directory of its own, with lines added to lab.yaml.
func startServer(t *testing.T, more string) *server {
	t.Helper()
	s := &server{t: t, dir: t.TempDir(), log: &syncBuffer{}}
	_, err := imagestest.Netboot(t).Write(t.Context(), filepath.Join(s.dir, "out"))
	require.NoError(t, err)
	plain, encrypted := freeAddress(t), freeAddress(t)
	s.plain, s.encrypted = "http://"+plain, "https://"+encrypted
	s.write(fmt.Sprintf("server: %s\nlisten: %s\nimages: {p2p: out}\n%s", s.plain, plain, strings.ReplaceAll(more, "TLS", encrypted)))
	s.client = &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // the test looks at the key
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.start()
	return s
}

func (s *server) write(text string) {
	require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, "lab.yaml"), []byte(text), 0o600))
}

// start waits until the server answers.
func (s *server) start() {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, &serveOptions{lab: filepath.Join(s.dir, "lab.yaml")}, s.log)
	}()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	s.t.Cleanup(func() { assert.NoError(s.t, s.stop()) })
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.plain+"/boot.ipxe", nil)
	require.NoError(s.t, err)
	require.Eventually(s.t, func() bool {
		resp, err := s.client.Do(req)
		return err == nil && resp.Body.Close() == nil
	}, time.Minute, 10*time.Millisecond, "%s", s.log)
}

// ask returns status and body.
func (s *server) ask(method, url, token string, body io.Reader) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, body)
	require.NoError(s.t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/x-ndjson")
	}
	resp, err := s.client.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	return resp.StatusCode, string(data)
}

func (s *server) get(url, token string) (int, string) {
	s.t.Helper()
	return s.ask(http.MethodGet, url, token, nil)
}

func (s *server) admin() string {
	data, err := os.ReadFile(filepath.Join(s.dir, "admin-token"))
	require.NoError(s.t, err)
	return strings.TrimSpace(string(data))
}

// parameter finds the value of a kernel parameter in a script.
func parameter(t *testing.T, script, name string) string {
	t.Helper()
	m := regexp.MustCompile(regexp.QuoteMeta(name) + `=(\S+)`).FindStringSubmatch(script)
	require.NotNil(t, m, "%s in %s", name, script)
	return m[1]
}

const aNode = "nodes: [{name: a, mac: \"52:54:00:00:00:0a\"}]\n"

// line is the beginning of a report.
const line = `{"schemaVersion":{"major":2,"minor":0},"sequenceNumber":0,"timestamp":"2026-11-30T12:00:00Z"}` + "\n"

func TestServe(t *testing.T) {
	s := startServer(t, aNode)
	code, script := s.get(s.plain+"/v1/ipxe?mac=52-54-00-00-00-0a", "")
	require.Equal(t, http.StatusOK, code)
	token, collect := parameter(t, script, "p2p.token"), parameter(t, script, "p2p.collect")
	assert.NotContains(t, script, "p2p.pin")
	assert.True(t, strings.HasPrefix(collect, s.plain+"/v1/runs/"))

	code, answer := s.ask(http.MethodPost, collect+"/chunks/0", token, strings.NewReader(line))
	assert.Equal(t, http.StatusOK, code, answer)
	assert.JSONEq(t, `{"next": 1, "complete": false}`, answer)
	code, _ = s.ask(http.MethodPost, collect+"/chunks/1", "x"+token, strings.NewReader(line))
	assert.Equal(t, http.StatusUnauthorized, code)

	code, _ = s.get(collect+"/report", "")
	assert.Equal(t, http.StatusUnauthorized, code)
	code, answer = s.get(collect+"/report", s.admin())
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, line, answer)
	code, answer = s.get(s.plain+"/", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, answer, "<!DOCTYPE html>")
	code, answer = s.get(s.plain+"/nodes/a", "")
	assert.Equal(t, http.StatusOK, code, "%s", s.log)
	assert.NotContains(t, answer, token)
	assert.NotContains(t, s.log.String(), token, "no token in the log")

	st, err := os.Stat(filepath.Join(s.dir, "admin-token"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode())

	// What was acknowledged is there after a restart, and the token is the same.
	admin := s.admin()
	require.NoError(t, s.stop())
	s.start()
	assert.Equal(t, admin, s.admin())
	code, answer = s.get(collect, token)
	assert.Equal(t, http.StatusOK, code)
	assert.JSONEq(t, `{"next": 1, "complete": false}`, answer)
}

func TestServeFinishesRequests(t *testing.T) {
	s := startServer(t, aNode)
	_, script := s.get(s.plain+"/v1/ipxe?mac=52-54-00-00-00-0a", "")
	token, collect := parameter(t, script, "p2p.token"), parameter(t, script, "p2p.collect")
	at, err := url.Parse(collect + "/chunks/0")
	require.NoError(t, err)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", at.Host)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/x-ndjson\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", at.Path, at.Host, token, len(line))
	require.NoError(t, err)
	answer := bufio.NewReader(conn)
	goOn, err := http.ReadResponse(answer, nil) // the server is reading the body
	require.NoError(t, err)
	require.NoError(t, goOn.Body.Close())
	require.Equal(t, http.StatusContinue, goOn.StatusCode)

	stopped := make(chan error, 1)
	go func() { stopped <- s.stop() }()
	require.Eventually(t, func() bool { return strings.Contains(s.log.String(), "stopping") }, time.Minute, time.Millisecond)
	_, err = io.WriteString(conn, line)
	require.NoError(t, err)
	resp, err := http.ReadResponse(answer, nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, <-stopped)
}

func TestServeTLS(t *testing.T) {
	s := startServer(t, "tls: {listen: TLS}\n"+aNode)
	_, script := s.get(s.plain+"/v1/ipxe?mac=52-54-00-00-00-0a", "")
	token, collect := parameter(t, script, "p2p.token"), parameter(t, script, "p2p.collect")
	assert.True(t, strings.HasPrefix(collect, s.encrypted+"/v1/runs/"))

	code, _ := s.ask(http.MethodPost, collect+"/chunks/0", token, strings.NewReader(line))
	assert.Equal(t, http.StatusOK, code)
	var seen string
	s.client.Transport.(*http.Transport).TLSClientConfig.VerifyConnection = func(c tls.ConnectionState) error {
		sum := sha256.Sum256(c.PeerCertificates[0].RawSubjectPublicKeyInfo)
		seen = base64.RawURLEncoding.EncodeToString(sum[:])
		return nil
	}
	code, _ = s.get(s.encrypted+"/", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, parameter(t, script, "p2p.pin"), seen)

	for _, path := range []string{strings.TrimPrefix(collect, s.encrypted), "/v1/nights/2026-11-30", "/nodes/a"} {
		code, _ = s.get(s.plain+path, s.admin())
		assert.Equal(t, http.StatusNotFound, code, "%s is for TLS only", path)
	}
	code, _ = s.get(s.plain+"/", "")
	assert.Equal(t, http.StatusFound, code)

	st, err := os.Stat(filepath.Join(s.dir, "key.pem"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), st.Mode())
	require.NoError(t, s.stop())
	s.start()
	_, script = s.get(s.plain+"/v1/ipxe?mac=52-54-00-00-00-0a", "")
	assert.Equal(t, seen, parameter(t, script, "p2p.pin"), "the key is made once")
}

func TestServeReload(t *testing.T) {
	s := startServer(t, aNode)
	old, err := os.ReadFile(filepath.Join(s.dir, "lab.yaml"))
	require.NoError(t, err)
	f := &farmServer{options: &serveOptions{lab: filepath.Join(s.dir, "lab.yaml"), noDHCP: true}, log: discard()}
	l, err := f.read()
	require.NoError(t, err)
	assert.Equal(t, lab.Off, l.DHCP.Mode)

	next := *l
	next.Listen, next.Retention.Runs, next.Nodes = ":1", time.Hour, nil
	assert.Equal(t, []string{"listen", "retention"}, needRestart(l, &next))
	assert.Empty(t, needRestart(l, l))

	s.write("server: x\n" + string(old))
	_, err = f.read()
	require.ErrorContains(t, err, "lab.yaml:1:")
	assert.Equal(t, exitData, exitCode(t.Context(), err))
	require.NoError(t, os.Remove(filepath.Join(s.dir, "lab.yaml")))
	_, err = f.read()
	require.ErrorContains(t, err, "mkp2pimg serve --init")
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestServeRefuses(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	image := filepath.Join(t.TempDir(), "out")
	_, err = imagestest.Netboot(t).Write(t.Context(), image)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		text, want string
		code       int
	}{
		"port in use":    {"server: http://127.0.0.1\nlisten: " + taken.Addr().String() + "\nimages: {p2p: " + image + "}\n", "another program has it (ss -tlnp names it)", exitOS},
		"other address":  {"server: http://127.0.0.1\nlisten: 192.0.2.1:8080\nimages: {p2p: " + image + "}\n", "this machine has no such address", exitOS},
		"no image":       {"server: http://127.0.0.1\nimages: {p2p: nothing}\n", "make it with \"mkp2pimg build --format pxe --out", exitIO},
		"no interface":   {"server: http://127.0.0.1\ndhcp: {mode: proxy, interface: nowhere0}\nimages: {p2p: " + image + "}\n", `there is no network interface "nowhere0"`, exitData},
		"a wrong key":    {"server: http://127.0.0.1\nimages: {p2p: " + image + "}\ntls: {cert: lab.yaml}\n", "tls: ", exitData},
		"a wrong store":  {"server: http://127.0.0.1\nimages: {p2p: " + image + "}\nstore: lab.yaml\n", "store ", exitFailed},
		"an empty token": {"server: http://127.0.0.1\nimages: {p2p: " + image + "}\nadmin-token-file: empty\n", "has no token", exitData},
		"an open token":  {"server: http://127.0.0.1\nimages: {p2p: " + image + "}\nadmin-token-file: open\n", "others may read", exitData},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "lab.yaml"), []byte(tt.text), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "open"), []byte(strings.Repeat("x", 43)), 0o644))
			require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o644))
			err := serve(t.Context(), &serveOptions{lab: filepath.Join(dir, "lab.yaml")}, io.Discard)
			require.ErrorContains(t, err, tt.want)
			assert.Equal(t, tt.code, exitCode(t.Context(), err))
		})
	}
}

func TestServeInit(t *testing.T) {
	t.Chdir(t.TempDir())
	var out, stderr bytes.Buffer
	require.Equal(t, exitOK, run(t.Context(), []string{"serve", "--init"}, &out, &stderr), stderr.String())
	assert.Contains(t, out.String(), "lab.yaml written")
	assert.Contains(t, out.String(), "out has no manifest.json yet")
	_, err := lab.Load("lab.yaml")
	require.NoError(t, err)
	assert.Equal(t, exitUsage, run(t.Context(), []string{"serve", "--init"}, &out, &stderr))
	assert.Contains(t, stderr.String(), "lab.yaml is there already and stays as it is")
}

func TestCandidates(t *testing.T) {
	up := net.FlagUp | net.FlagBroadcast
	addrs := func(list ...string) (all []net.Addr) {
		for _, a := range list {
			ip, ipNet, err := net.ParseCIDR(a)
			require.NoError(t, err)
			all = append(all, &net.IPNet{IP: ip, Mask: ipNet.Mask})
		}
		return all
	}
	assert.Equal(t, []candidate{{"eth0", netip.MustParsePrefix("10.0.0.1/24")}}, candidates("eth0", up, addrs("fe80::1/64", "10.0.0.1/24", "203.0.113.5/24")))
	for name, flags := range map[string]net.Flags{"eth0": net.FlagBroadcast, "lo": up | net.FlagLoopback, "docker0": up, "virbr0": up, "br-0a1b": up, "wg0": net.FlagUp} {
		assert.Empty(t, candidates(name, flags, addrs("10.0.0.1/24")), name)
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"farm.db": "farm.db", "postgres://farm:secret@db/farm": "postgres://farm@db/farm", "postgres://farm@db/farm": "postgres://farm@db/farm",
		"postgres://db/farm": "postgres://db/farm",
	} {
		assert.Equal(t, want, redact(in))
	}
}

func TestAdminToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	first, err := adminToken(path)
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	token := strings.TrimSpace(string(text))
	again, err := adminToken(path)
	require.NoError(t, err)
	for _, is := range []func(string) bool{first, again} {
		assert.True(t, is(token))
		assert.False(t, is(""))
		assert.False(t, is(token+"x"))
	}
	_, err = adminToken(filepath.Join(t.TempDir(), "no", "directory"))
	require.Error(t, err)
}
