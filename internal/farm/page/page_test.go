package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// answer is what a server said.
type answer struct {
	Code   int
	Header http.Header
	Body   string
}

// client keeps cookies and follows no redirects.
type client struct {
	t       testing.TB
	server  string
	cookies map[string]string
}

func newClient(t testing.TB, l testLab) *client {
	return &client{t, l.Server.URL, map[string]string{}}
}

func (c *client) do(method, path string, form url.Values, header map[string]string) answer {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.server+path, strings.NewReader(form.Encode()))
	require.NoError(c.t, err)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	for name, value := range c.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	r, err := http.DefaultTransport.RoundTrip(req)
	require.NoError(c.t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(c.t, err)
	for _, k := range r.Cookies() {
		c.cookies[k.Name] = k.Value
		if k.MaxAge < 0 {
			delete(c.cookies, k.Name)
		}
	}
	return answer{r.StatusCode, r.Header, string(body)}
}

func (c *client) get(path string) answer {
	c.t.Helper()
	return c.do(http.MethodGet, path, nil, nil)
}

// all returns the elements of a page in their order.
func all(t testing.TB, page string) []*html.Node {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(page))
	require.NoError(t, err)
	var nodes []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

func attr(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func within(n *html.Node, is func(*html.Node) bool) bool {
	for a := range n.Ancestors() {
		if is(a) {
			return true
		}
	}
	return false
}

func child(n *html.Node, tag string) bool {
	for c := range n.ChildNodes() {
		if c.Type == html.ElementNode && c.Data == tag {
			return true
		}
	}
	return false
}

// TestLab looks at every page that can be reached by links, and at what each must
// have to be used by keyboard, by ear and without script.
func TestLab(t *testing.T) {
	l := newLab(t)
	c := newClient(t, l)
	require.Equal(t, http.StatusSeeOther, c.do(http.MethodPost, "/login", url.Values{"token": {adminToken}}, nil).Code)

	seen, kinds := map[string]bool{"/": true}, map[string]int{}
	for todo := []string{"/"}; len(todo) > 0; todo = todo[1:] {
		path := todo[0]
		a := c.get(path)
		require.Equal(t, http.StatusOK, a.Code, path)
		if !strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") {
			continue
		}
		for _, n := range all(t, a.Body) {
			href := attr(n, "href")
			if n.Data != "a" || strings.HasPrefix(href, "#") {
				continue
			}
			base, err := url.Parse(path)
			require.NoError(t, err)
			to, err := base.Parse(href)
			require.NoError(t, err)
			to.Fragment = ""
			// Of a kind, some will do.
			kind, _, _ := strings.Cut(to.Path[1:], "/")
			if !seen[to.String()] && kinds[kind] < 24 {
				seen[to.String()] = true
				kinds[kind]++
				todo = append(todo, to.String())
			}
		}
		if !strings.HasSuffix(path, "/measurements") { // of package benchview
			t.Run(path, func(t *testing.T) { usable(t, a.Body) })
		}
	}
	assert.Greater(t, len(seen), 60)
}

func usable(t *testing.T, page string) {
	assert.NotContains(t, page, "ZgotmplZ", "nothing that the templates refuse")
	assert.NotContains(t, page, "<no value>")
	nodes := all(t, page)
	ids := map[string]int{}
	tags := map[string]int{}
	for _, n := range nodes {
		tags[n.Data]++
		if id := attr(n, "id"); id != "" {
			ids[id]++
			assert.Equal(t, 1, ids[id], "id %s", id)
		}
	}
	assert.Equal(t, 1, tags["h1"])
	assert.Equal(t, 1, tags["main"])
	assert.Zero(t, tags["style"])
	assert.Equal(t, "skip", attr(nodes[slices.IndexFunc(nodes, func(n *html.Node) bool { return n.Data == "a" })], "class"), "the first link leads past the navigation")
	for _, n := range nodes {
		for _, a := range n.Attr {
			assert.False(t, strings.HasPrefix(a.Key, "on") || a.Key == "style", "%s has %s", n.Data, a.Key)
			if slices.Contains([]string{"href", "src", "action"}, a.Key) {
				assert.Regexp(t, `^([/?#]|/.*)`, a.Val, "%s leads to another host", n.Data)
				assert.False(t, strings.HasPrefix(a.Val, "//"))
			}
		}
		for _, ref := range []string{attr(n, "aria-labelledby"), strings.TrimPrefix(attr(n, "href"), "#")} {
			if ref != "" && (has(n, "aria-labelledby") || strings.HasPrefix(attr(n, "href"), "#")) {
				assert.Contains(t, ids, ref)
			}
		}
		switch n.Data {
		case "html":
			assert.Equal(t, "en", attr(n, "lang"))
		case "script":
			assert.True(t, strings.HasPrefix(attr(n, "src"), assetRoot))
		case "table":
			assert.True(t, child(n, "caption"), "a table without a caption")
		case "th":
			assert.Contains(t, []string{"col", "row"}, attr(n, "scope"))
		case "svg":
			drawing := within(n, func(a *html.Node) bool { return attr(a, "class") == "drawing" })
			assert.True(t, attr(n, "aria-hidden") == "true" || attr(n, "role") == "img" && attr(n, "aria-label") != "" || drawing && child(n, "title"), "a picture without words")
		case "input", "select":
			named := attr(n, "type") == "hidden" || has(n, "hidden") || within(n, func(a *html.Node) bool { return a.Data == "label" })
			assert.True(t, named, "%s without a label", attr(n, "name"))
		case "form":
			assert.True(t, attr(n, "method") == "post" || attr(n, "role") == "search")
		}
	}
}

const evil = `"'></script></svg></title><xss onload=evil()><img src=x onerror=evil()><script>evil()</script>{{.}}${evil()}`

// hostileLab has a node whose every text comes from someone who means ill.
func hostileLab(t testing.TB) testLab {
	t.Helper()
	l := testLab{Lab: newLabFile(), Store: openStore(t)}
	f := gathered(t, "two-switches")
	for i := range f.Devices {
		f.Devices[i].Driver = evil
	}
	text := string(machine{name: "n", compared: true}.report(t, f, nil, now, 0, newRandom()))
	// Every word of the report that stands in a page is one of his.
	for _, word := range []string{"nvidia.ko and nvidia-uvm.ko of 580.142 inserted", "bandwidth", "NVIDIA GeForce RTX 4090", "the driver grants no access", "no port between GPUs redirects that can be changed",
		"data verified by its owner", `P2P-DEGRADED`, "P2P-READY", "412 files as listed"} {
		text = strings.ReplaceAll(text, word, strings.ReplaceAll(strings.ReplaceAll(evil, `\`, `\\`), `"`, `\"`))
	}
	text = strings.Replace(text, `"name":"`+strings.ReplaceAll(evil, `"`, `\"`)+`"`, `"name":"bandwidth"`, 1)
	at := now.Add(-time.Minute)
	pair := farm.Pair{Initiator: evil, Peer: "javascript:evil()", Direction: evil, Method: evil, GBps: 1e300, Ceiling: 1e-300, LatencyNS: 5, Verdict: evil}
	back := pair
	back.Initiator, back.Peer, back.Verdict = pair.Peer, pair.Initiator, "hang"
	worst := -5e9
	r := farm.Run{
		ID: "javascript:evil()" + evil, Node: "../" + evil, Night: tonight, Source: evil, State: farm.Running, Why: evil, Image: evil, Plan: evil, Stage: evil, Offered: at, Started: at, Updated: at,
		Summary: &farm.Summary{
			Verdict: evil, Reason: evil, Driver: evil, Kernel: evil, Product: evil, Settings: map[string]string{evil: evil}, Pairs: []farm.Pair{pair, back}, Worst: &worst,
			Findings: []farm.Finding{{ID: evil, Status: evil, Title: evil, Fix: evil + "\n" + evil, Devices: []string{evil}}},
		},
		Changes: []farm.Change{{Kind: evil, Subject: evil, Before: evil, After: evil, Worse: true, Fix: evil}},
	}
	require.NoError(t, l.Touch(t.Context(), farm.Node{Name: r.Node, MAC: evil, UUID: evil, Serial: evil}))
	_, err := l.Import(t.Context(), r, []store.Chunk{{Data: []byte(text)}})
	require.NoError(t, err)
	require.NoError(t, l.Pin(t.Context(), farm.Baseline{Node: r.Node, Key: evil, Unit: evil, Median: 1, MAD: 1}))
	l.Lab.Nodes = []lab.Node{{Name: r.Node, Group: evil}}
	l.serve(t)
	return l
}

// hostilePaths are its pages.
func hostilePaths() []string {
	run := runPath("javascript:evil()" + evil)
	query := url.QueryEscape(evil)
	return []string{
		"/", "/?q=" + query + "&verdict=" + query + "&group=" + query + "&sort=" + query + "&page=" + query, nodePath("../" + evil), nodePath("../"+evil) + "?way=" + query,
		"/nights", "/nights/" + tonight, run, run + "/measurements", "/login?back=" + query, "/nodes/" + url.PathEscape(evil), "/nights/" + url.PathEscape(evil), "/" + url.PathEscape(evil),
	}
}

func TestHostileText(t *testing.T) {
	c := newClient(t, hostileLab(t))
	c.do(http.MethodPost, "/login", url.Values{"token": {adminToken}}, nil)
	shown := 0
	for _, path := range hostilePaths() {
		a := c.get(path)
		assert.Less(t, a.Code, 500, path)
		shown += strings.Count(html.UnescapeString(a.Body), "evil()")
		for _, n := range all(t, a.Body) {
			assert.NotContains(t, []string{"xss", "img", "iframe", "object"}, n.Data, path)
			for _, at := range n.Attr {
				assert.False(t, strings.HasPrefix(at.Key, "on"), "%s: %s has %s", path, n.Data, at.Key)
				if slices.Contains([]string{"href", "src", "action"}, at.Key) {
					assert.NotRegexp(t, `(?i)^\s*(javascript|data|//)`, at.Val, path)
				}
			}
			if n.Data == "script" {
				assert.Equal(t, asset("page.js"), attr(n, "src"), path)
			}
		}
	}
	assert.Greater(t, shown, 100, "the text is there, as text")

	a := c.get(runPath("javascript:evil()"+evil) + "/report.jsonl")
	assert.Equal(t, http.StatusOK, a.Code)
	assert.Regexp(t, `^attachment; filename="[A-Za-z0-9._-]+"$`, a.Header.Get("Content-Disposition"))
	assert.Equal(t, "application/x-ndjson", a.Header.Get("Content-Type"))
	assert.Contains(t, a.Body, "<script>")
}

// smallLab has one node with a baseline.
func smallLab(t testing.TB) testLab {
	t.Helper()
	l := testLab{Lab: newLabFile(lab.Node{Name: "n1"}, lab.Node{Name: "n2"}), Store: openStore(t)}
	p := farm.Pair{Initiator: "0000:01:00.0", Peer: "0000:02:00.0", Direction: "write", Method: "ce", GBps: 13, Ceiling: 28, Verdict: "slow"}
	r := farm.Run{ID: "run-1", Node: "n1", Night: tonight, Source: farm.Network, State: farm.Complete, Offered: now.Add(-time.Hour), Started: now.Add(-time.Hour), Updated: now, Ended: now,
		Summary: &farm.Summary{Verdict: "P2P-DEGRADED", Reason: "slow", Pairs: []farm.Pair{p}}}
	_, err := l.Import(t.Context(), r, nil)
	require.NoError(t, err)
	require.NoError(t, l.Pin(t.Context(), farm.Baseline{Node: "n1", Key: key, Unit: "GB/s", Median: 26, MAD: 0.1, Runs: 20}))
	l.serve(t)
	return l
}

const key = "bandwidth/0000:01:00.0/0000:02:00.0/write/ce"

func TestPin(t *testing.T) {
	l := smallLab(t)
	c := newClient(t, l)
	pin := func(do, key string) answer {
		return c.do(http.MethodPost, "/nodes/n1/baselines", url.Values{"do": {do}, "key": {key}}, nil)
	}
	pinned := func() []farm.Baseline {
		all, err := l.Baselines(t.Context(), "n1")
		require.NoError(t, err)
		return all
	}
	before := pinned()
	assert.Equal(t, http.StatusForbidden, pin("unpin", key).Code, "without logging in")
	assert.NotContains(t, c.get("/nodes/n1").Body, `value="unpin"`)

	assert.Equal(t, http.StatusForbidden, c.do(http.MethodPost, "/login", url.Values{"token": {"wrong"}}, nil).Code)
	assert.Empty(t, c.cookies)
	a := c.do(http.MethodPost, "/login", url.Values{"token": {adminToken}, "back": {"/nodes/n1?way=write-ce"}}, nil)
	assert.Equal(t, http.StatusSeeOther, a.Code)
	assert.Equal(t, "/nodes/n1?way=write-ce", a.Header.Get("Location"))
	assert.Regexp(t, `Path=/; Max-Age=43200; HttpOnly; SameSite=Strict$`, a.Header.Get("Set-Cookie"))
	assert.NotContains(t, a.Header.Get("Set-Cookie"), adminToken)
	assert.Contains(t, c.get("/nodes/n1").Body, `value="unpin"`)

	for _, header := range []map[string]string{{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://elsewhere.example"}, {"Origin": "null"}} {
		for _, path := range []string{"/nodes/n1/baselines", "/login", "/logout", "/theme"} {
			a := c.do(http.MethodPost, path, url.Values{"do": {"unpin"}, "key": {key}, "token": {adminToken}}, header)
			assert.Equal(t, http.StatusForbidden, a.Code, "%s, %v", path, header)
		}
	}
	assert.Equal(t, http.StatusBadRequest, pin("", key).Code)
	assert.Equal(t, http.StatusNotFound, pin("pin", "bandwidth/other").Code)
	assert.Equal(t, before, pinned(), "nothing has changed anything so far")

	assert.Equal(t, http.StatusSeeOther, pin("pin-last", key).Code)
	assert.InDelta(t, 13, pinned()[0].Median, 0)
	assert.True(t, pinned()[0].Pinned)
	a = pin("unpin", key)
	assert.Equal(t, "/nodes/n1#baselines", a.Header.Get("Location"))
	assert.Empty(t, pinned())

	secret := c.cookies[sessionCookie]
	assert.Equal(t, http.StatusSeeOther, c.do(http.MethodPost, "/logout", nil, nil).Code)
	assert.Empty(t, c.cookies)
	c.cookies[sessionCookie] = secret
	assert.Equal(t, http.StatusForbidden, pin("unpin", key).Code, "the session has ended, not the cookie alone")
}

func TestSessions(t *testing.T) {
	s := sessions{ends: map[string]time.Time{}}
	first := s.begin(now)
	assert.True(t, s.has(first, now.Add(sessionTime-time.Second)))
	assert.False(t, s.has(first, now.Add(sessionTime)))
	assert.False(t, s.has("", now))
	for i := range maxSessions {
		s.begin(now.Add(time.Duration(i+1) * time.Millisecond))
	}
	assert.Len(t, s.ends, maxSessions)
	assert.False(t, s.has(first, now), "the oldest has gone")
}

func TestNobodyCanLogIn(t *testing.T) {
	l := testLab{Lab: newLabFile(), Store: openStore(t)}
	h := Handler(Config{Store: l.Store, Lab: read(l.Lab)})
	for _, token := range []string{"", adminToken} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader("token="+token))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		h.ServeHTTP(w, r)
		assert.Equal(t, http.StatusForbidden, w.Code)
		assert.Contains(t, w.Body.String(), "takes no changes")
	}
}

// TestLabIsReadAgain changes lab.yaml while somebody is logged in.
func TestLabIsReadAgain(t *testing.T) {
	current := newLabFile()
	h := Handler(Config{Store: openStore(t), Lab: func() *lab.Lab { return current }, Admin: func(token string) bool { return token == adminToken }})
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/login", strings.NewReader("token="+adminToken))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	h.ServeHTTP(w, r)
	require.Len(t, w.Result().Cookies(), 1)
	current = newLabFile(lab.Node{Name: "new-node"})
	r = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.AddCookie(w.Result().Cookies()[0])
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Contains(t, w.Body.String(), "new-node")
	assert.Contains(t, w.Body.String(), "Log out")
}

func TestTheme(t *testing.T) {
	c := newClient(t, smallLab(t))
	assert.NotContains(t, c.get("/").Body, "data-theme")
	a := c.do(http.MethodPost, "/theme", url.Values{"theme": {"dark"}, "back": {"/nights"}}, nil)
	assert.Equal(t, http.StatusSeeOther, a.Code)
	assert.Equal(t, "/nights", a.Header.Get("Location"))
	assert.Contains(t, c.get("/").Body, `<html lang="en" data-theme="dark">`)
	assert.Equal(t, http.StatusBadRequest, c.do(http.MethodPost, "/theme", url.Values{"theme": {"pink"}}, nil).Code)
	c.do(http.MethodPost, "/theme", url.Values{"theme": {""}}, nil)
	assert.NotContains(t, c.get("/").Body, "data-theme")
	c.cookies[themeCookie] = "x" // what no page of ours has set
	assert.NotContains(t, c.get("/").Body, "data-theme")
}

func TestMethods(t *testing.T) {
	c := newClient(t, smallLab(t))
	for _, path := range []string{"/", "/nodes/n1", "/nights", "/runs/run-1", "/runs/run-1/report.jsonl"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, "BREW"} {
			assert.Equal(t, http.StatusMethodNotAllowed, c.do(method, path, nil, nil).Code, "%s %s", method, path)
		}
		a := c.do(http.MethodHead, path, nil, nil)
		assert.Equal(t, http.StatusOK, a.Code, path)
		assert.Empty(t, a.Body)
	}
	for _, path := range []string{"/nodes/n3", "/nodes/", "/runs/none", "/runs/none/report.jsonl", "/nights/2020-01-01", "/nights/yesterday", "/none", "/assets/none.js", "/assets/", "/nodes/n1/baselines", "/runs/run-1/measurements",
		"/assets/..%2f..%2fpage.go", "/nodes/..%2f..%2fetc%2fpasswd"} {
		a := c.get(path)
		assert.Equal(t, http.StatusNotFound, a.Code, path)
		assert.Contains(t, a.Body, "<h1>", "a page of ours")
	}
	assert.Equal(t, http.StatusOK, c.get("/nodes/n2").Code, "it is in the description of the lab")
	big := c.do(http.MethodPost, "/login", url.Values{"token": {strings.Repeat("x", 2*maxForm)}}, nil)
	assert.Equal(t, http.StatusForbidden, big.Code)
}

func TestHeaders(t *testing.T) {
	c := newClient(t, smallLab(t))
	for _, path := range []string{"/", "/none", "/nodes/n1", asset("page.js"), "/runs/run-1/report.jsonl", "/login"} {
		a := c.get(path)
		for name, value := range headers {
			assert.Equal(t, value, a.Header.Get(name), path)
		}
	}
	policy := headers["Content-Security-Policy"]
	for _, loose := range []string{"unsafe", "*", "http:", "data:"} {
		assert.NotContains(t, policy, loose)
	}

	a := c.get("/")
	tag := a.Header.Get("ETag")
	assert.NotEmpty(t, tag)
	same := c.do(http.MethodGet, "/", nil, map[string]string{"If-None-Match": tag})
	assert.Equal(t, http.StatusNotModified, same.Code)
	assert.Empty(t, same.Body)
	assert.Equal(t, http.StatusOK, c.do(http.MethodGet, "/nights", nil, map[string]string{"If-None-Match": tag}).Code)
	assert.Contains(t, c.get(asset("page.css")).Header.Get("Cache-Control"), "immutable")
	assert.Contains(t, c.get(asset("page.css")).Header.Get("Content-Type"), "text/css")
	assert.Contains(t, c.get(asset("page.js")).Header.Get("Content-Type"), "javascript")
}

// brokenStore fails, with an error that tells more than a reader should know.
type brokenStore struct{ Store }

var errSecret = errors.New("postgres://user:secret@host: no route")

func (brokenStore) Fleet(context.Context) ([]store.FleetRow, error)          { return nil, errSecret }
func (brokenStore) Node(context.Context, string) (farm.Node, error)          { return farm.Node{}, nil }
func (brokenStore) History(context.Context, string, int) ([]farm.Run, error) { return nil, errSecret }
func (brokenStore) Nights(context.Context, int) ([]store.NightRow, error)    { return nil, errSecret }
func (brokenStore) Runs(context.Context, store.Query) ([]farm.Run, error)    { return nil, errSecret }
func (brokenStore) Run(_ context.Context, id string) (farm.Run, error) {
	if id == "large" {
		return farm.Run{ID: id, Bytes: maxShown + 1, Summary: &farm.Summary{}}, nil
	}
	if id == "gone" {
		return farm.Run{ID: id, Summary: &farm.Summary{Findings: []farm.Finding{{Status: "fail", Title: "what is kept"}}}}, nil
	}
	return farm.Run{}, errSecret
}

func (brokenStore) Report(context.Context, string) (io.Reader, error) {
	return nil, fmt.Errorf("run: %w", store.ErrRemoved)
}

// fullStore can be read, not written.
type fullStore struct{ Store }

func (fullStore) Pin(context.Context, farm.Baseline) error    { return errSecret }
func (fullStore) Unpin(context.Context, string, string) error { return errSecret }

func TestPinFails(t *testing.T) {
	l := smallLab(t)
	h := Handler(Config{Store: fullStore{l.Store}, Lab: read(l.Lab), Admin: func(string) bool { return true }, Log: slog.New(slog.DiscardHandler)})
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c := &client{t, s.URL, map[string]string{}}
	c.do(http.MethodPost, "/login", url.Values{"token": {"x"}}, nil)
	for _, do := range []string{"pin", "pin-last", "unpin"} {
		assert.Equal(t, http.StatusInternalServerError, c.do(http.MethodPost, "/nodes/n1/baselines", url.Values{"do": {do}, "key": {key}}, nil).Code, do)
	}
}

func TestBrokenStore(t *testing.T) {
	var said strings.Builder
	h := Handler(Config{Store: brokenStore{}, Lab: read(newLabFile()), Log: slog.New(slog.NewTextHandler(&said, nil))})
	ask := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return w
	}
	for _, path := range []string{"/", "/nodes/n1", "/nights", "/nights/" + tonight, "/runs/r"} {
		said.Reset()
		w := ask(path)
		assert.Equal(t, http.StatusInternalServerError, w.Code, path)
		assert.NotContains(t, w.Body.String(), "secret")
		assert.Contains(t, said.String(), "no route")
	}
	w := ask("/runs/gone")
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, w.Body.String(), "removed after its time of retention")
	assert.Contains(t, w.Body.String(), "what is kept")
	assert.Contains(t, ask("/runs/large").Body.String(), "16.0 MiB, is too large to be shown")
	assert.Equal(t, http.StatusGone, ask("/runs/gone/report.jsonl").Code)
}
