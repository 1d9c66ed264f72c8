package page

import (
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	sessionCookie = "mkp2pimg-session"
	themeCookie   = "mkp2pimg-theme"
	sessionTime   = 12 * time.Hour
	maxSessions   = 1000 // of people who know the token; the oldest goes first
	maxForm       = 16 << 10
)

// sessions are those who have shown the administrator's token. They are forgotten
// when the server ends.
type sessions struct {
	mu   sync.Mutex
	ends map[string]time.Time
}

// begin returns the secret of a new session.
func (s *sessions) begin(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	oldest := ""
	for secret, ends := range s.ends {
		if !now.Before(ends) {
			delete(s.ends, secret)
		} else if oldest == "" || ends.Before(s.ends[oldest]) {
			oldest = secret
		}
	}
	if len(s.ends) >= maxSessions {
		delete(s.ends, oldest)
	}
	secret := rand.Text()
	s.ends[secret] = now.Add(sessionTime)
	return secret
}

// has tells whether a secret is that of a session. A map's look-up may tell by its
// time how much of a secret is right only through its keyed hash, which is as good
// as a comparison in constant time.
func (s *sessions) has(secret string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ends, ok := s.ends[secret]
	return ok && now.Before(ends)
}

func (s *sessions) end(secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ends, secret)
}

// admin tells whether a request is from someone who may change something.
func (h *handler) admin(r *http.Request) bool {
	c, err := r.Cookie(sessionCookie)
	return err == nil && h.sessions.has(c.Value, h.now())
}

// cookie returns a cookie that no other site makes the browser send.
func cookie(r *http.Request, name, value string, age time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode,
	}
}

type loginData struct {
	frame
	Wrong bool
	Off   bool // nobody can log in
}

func (h *handler) loginForm(w http.ResponseWriter, r *http.Request) {
	f := h.frame(r, "Log in", "")
	f.Back = local(r.FormValue("back"))
	h.render(w, r, http.StatusOK, "login", loginData{frame: f, Off: h.Admin == nil})
}

func (h *handler) login(w http.ResponseWriter, r *http.Request) {
	if h.Admin == nil || !h.Admin(r.PostFormValue("token")) {
		f := h.frame(r, "Log in", "")
		f.Back = local(r.PostFormValue("back"))
		h.render(w, r, http.StatusForbidden, "login", loginData{frame: f, Wrong: h.Admin != nil, Off: h.Admin == nil})
		return
	}
	http.SetCookie(w, cookie(r, sessionCookie, h.sessions.begin(h.now()), sessionTime))
	http.Redirect(w, r, local(r.PostFormValue("back")), http.StatusSeeOther)
}

func (h *handler) logout(w http.ResponseWriter, r *http.Request) {
	if c, err := r.Cookie(sessionCookie); err == nil {
		h.sessions.end(c.Value)
	}
	http.SetCookie(w, cookie(r, sessionCookie, "", -time.Second))
	http.Redirect(w, r, local(r.PostFormValue("back")), http.StatusSeeOther)
}

// themes are what the pages can look like; empty is as the browser prefers.
var themes = map[string]bool{"": true, "light": true, "dark": true}

// setTheme keeps the choice between light and dark in a cookie, so that it needs
// no script and no page is first shown in the other.
func (h *handler) setTheme(w http.ResponseWriter, r *http.Request) {
	theme := r.PostFormValue("theme")
	if !themes[theme] {
		h.fail(w, r, http.StatusBadRequest, "There is no such theme.")
		return
	}
	age := 365 * 24 * time.Hour
	if theme == "" {
		age = -time.Second
	}
	http.SetCookie(w, cookie(r, themeCookie, theme, age))
	http.Redirect(w, r, local(r.PostFormValue("back")), http.StatusSeeOther)
}

// local returns an address of ours as it is and "/" for any other: a form must not
// lead a reader to another server.
func local(to string) string {
	u, err := url.Parse(to) // refuses control characters, which browsers leave out
	if err != nil || u.IsAbs() || u.Host != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.Contains(to, `\`) {
		return "/"
	}
	return u.RequestURI()
}
