// Package page shows a farm in a browser: the fleet, a node, a night as it goes
// on, a run with its report. Pages are made by the server and need no script, no
// other host and no build step; a little script of ours keeps a page up to date and
// filters while one types.
//
// All that comes out of a report is hostile: it goes through [html/template], no
// page has inline script or style, and the content security policy forbids both.
// Everybody who reaches the server may read. Changing something needs the
// administrator's token, once, for a session in a cookie that other sites can't
// use; [http.CrossOriginProtection] refuses their requests besides.
package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// Store is what the pages read, and pins. [*store.Store] is one.
type Store interface {
	// Fleet returns all nodes with their last run and what it led to.
	Fleet(ctx context.Context) ([]store.FleetRow, error)
	Node(ctx context.Context, name string) (farm.Node, error)
	// History returns the last n runs of a node whole, oldest first.
	History(ctx context.Context, node string, n int) ([]farm.Run, error)
	Nights(ctx context.Context, limit int) ([]store.NightRow, error)
	// Runs returns runs by node, of a node the newest first.
	Runs(ctx context.Context, q store.Query) ([]farm.Run, error)
	Run(ctx context.Context, id string) (farm.Run, error)
	Report(ctx context.Context, id string) (io.Reader, error)
	// Baselines returns what is normal for a node, pinned or learned.
	Baselines(ctx context.Context, node string) ([]farm.Baseline, error)
	Pin(ctx context.Context, b farm.Baseline) error
	Unpin(ctx context.Context, node, key string) error
}

// Config is what a page needs.
type Config struct {
	Store Store
	Lab   func() *lab.Lab // as it was read last
	// Admin tells whether a token is that of the administrator. Without it nobody
	// can change anything.
	Admin func(token string) bool
	Log   *slog.Logger     // of what went wrong; nil: the default
	Now   func() time.Time // nil: [time.Now]
}

type handler struct {
	Config
	sessions sessions
}

//go:embed assets templates
var files embed.FS

// Handler returns the pages of a farm, at /, /nodes/, /nights, /runs/ and what
// belongs to them.
func Handler(c Config) http.Handler {
	h := &handler{Config: c, sessions: sessions{ends: map[string]time.Time{}}}
	if h.Log == nil {
		h.Log = slog.Default()
	}
	mux := http.NewServeMux()
	for pattern, f := range map[string]http.HandlerFunc{
		"GET /{$}":                     h.fleet,
		"GET /nodes/{node}":            h.node,
		"POST /nodes/{node}/baselines": h.pin,
		"GET /nights":                  h.nights,
		"GET /nights/{night}":          h.night,
		"GET /runs/{run}":              h.run,
		"GET /runs/{run}/report.jsonl": h.report,
		"GET /runs/{run}/measurements": h.measurements,
		"GET /login":                   h.loginForm,
		"POST /login":                  h.login,
		"POST /logout":                 h.logout,
		"POST /theme":                  h.setTheme,
		"GET " + assetRoot + "{file}":  h.asset,
		"GET /":                        h.missing,
		"GET /favicon.ico":             func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, asset("icon.svg"), http.StatusFound) },
	} {
		mux.HandleFunc(pattern, f)
	}
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusForbidden, "This request came from a page of another server.")
	}))
	guarded := guard.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		guarded.ServeHTTP(w, r)
	})
}

// headers are of every answer. The policy lets a page use our own files and
// nothing else. The referrer stays with us; without any, browsers send forms with
// an unknown origin.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
	"Referrer-Policy":              "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
}

const assetRoot = "/assets/"

// assets are the files that pages use, by a name that changes with what is in
// them, so that browsers keep them for ever.
var assets, assetNames = func() (byName map[string][]byte, names map[string]string) {
	byName, names = map[string][]byte{}, map[string]string{}
	entries, _ := fs.ReadDir(files, "assets") // embedded
	for _, e := range entries {
		content, _ := files.ReadFile("assets/" + e.Name())
		sum := sha256.Sum256(content)
		name := base64.RawURLEncoding.EncodeToString(sum[:9]) + "-" + e.Name()
		byName[name], names[e.Name()] = content, name
	}
	return byName, names
}()

// asset is the address of a file.
func asset(name string) string { return assetRoot + assetNames[name] }

func (h *handler) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, ok := assets[name]
	if !ok {
		h.missing(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// frame is what all pages have.
type frame struct {
	Title  string
	Here   string // which part of the navigation: "fleet", "nights"
	Theme  string
	Back   string // address of this page, for forms that return to it
	Admin  bool
	Every  int // seconds after which the page is to be looked at again; 0: it stays
	Now    time.Time
	Zone   *time.Location
	Status string // what readers of the screen are told of the state of the page
}

func (h *handler) frame(r *http.Request, title, here string) frame {
	f := frame{Title: title, Here: here, Back: r.URL.RequestURI(), Admin: h.admin(r), Now: h.now(), Zone: h.Lab().Clock.Zone}
	if c, err := r.Cookie(themeCookie); err == nil && themes[c.Value] {
		f.Theme = c.Value
	}
	return f
}

func (h *handler) now() time.Time {
	if h.Now != nil {
		return h.Now()
	}
	return time.Now()
}

// templates holds one set for each page: its own file and the layout around it.
var templates = func() map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range []string{"fleet", "node", "nights", "night", "run", "login", "message"} {
		all[name] = template.Must(template.New(name).Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html"))
	}
	return all
}()

// render answers with a page. A browser that has it already is told so.
func (h *handler) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	var b bytes.Buffer
	if err := templates[name].ExecuteTemplate(&b, "layout", data); err != nil {
		h.Log.Error("page: render", "template", name, "address", r.URL.Path, "error", err)
		http.Error(w, "The page could not be made; the log of the server says why.", http.StatusInternalServerError)
		return
	}
	head := w.Header()
	head.Set("Content-Type", "text/html; charset=utf-8")
	head.Set("Cache-Control", "no-cache, private")
	head.Set("Vary", "Cookie")
	if status == http.StatusOK {
		sum := sha256.Sum256(b.Bytes())
		tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
		head.Set("ETag", tag)
		if strings.Contains(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(b.Bytes()) // to a browser that may have gone
	}
}

type messageData struct {
	frame
	Text string
}

// fail answers with a page that says what is wrong.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, status int, text string) {
	h.render(w, r, status, "message", messageData{h.frame(r, http.StatusText(status), ""), text})
}

func (h *handler) missing(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, http.StatusNotFound, "There is no such page.")
}

// broken answers for an error of the store.
func (h *handler) broken(w http.ResponseWriter, r *http.Request, what string, err error) {
	switch {
	case errors.Is(err, store.ErrNotFound):
		h.fail(w, r, http.StatusNotFound, fmt.Sprintf("There is no such %s.", what))
	case errors.Is(err, store.ErrRemoved):
		h.fail(w, r, http.StatusGone, "The report was removed after its time of retention. What was found in it is on the page of the run.")
	case r.Context().Err() != nil: // the reader has gone
	default:
		h.Log.Error("page: "+what, "address", r.URL.Path, "error", err)
		h.fail(w, r, http.StatusInternalServerError, "The server could not read its store; its log says why.")
	}
}
