package boot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"mkp2pimg/internal/farm/limit"
)

// slowest is the rate at which a machine has to fetch a file, in bytes per second,
// once the first half minute is over.
const slowest = 100_000

// Handler serves scripts, images and loaders.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /"+firstName, s.first)
	mux.HandleFunc("GET /v1/ipxe", s.ipxe)
	mux.HandleFunc("GET /v1/boot/{mac}", s.pixiecore)
	mux.HandleFunc("GET /images/{image}/{file}", s.file)
	mux.HandleFunc("GET /images/{image}/{digest}/{file}", s.file)
	mux.HandleFunc("GET /loaders/{file}", s.loader)
	return mux
}

func (s *Service) first(w http.ResponseWriter, _ *http.Request) {
	script, err := firstScript(s.state.Load().Server)
	s.script(w, script, err)
}

// ipxe is the script of a machine. To ask for it starts a run, so that HEAD,
// prefetching and the like are refused.
func (s *Service) ipxe(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "GET only: the answer starts a run", http.StatusMethodNotAllowed)
		return
	}
	id, now, from := readIdentity(r.URL.Query()), s.now(), remote(r)
	if !s.perAddress.Allow(now, limit.Address(r.RemoteAddr)) || (id.MAC != "" && !s.perMAC.Allow(now, id.MAC)) {
		s.fail(w, r, errBusy)
		return
	}
	node, choice, start, err := s.offer(r.Context(), id)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.log.Info("boot", "node", node.Name, "from", from, "image", choice.Image, "why", choice.Why)
	if start == nil {
		script, err := diskScript(node.Name, choice.Why)
		s.script(w, script, err)
		return
	}
	script, err := start.script()
	s.script(w, script, err)
}

func (s *Service) script(w http.ResponseWriter, script []byte, err error) {
	if err != nil {
		s.log.Error("script", "error", err)
		http.Error(w, "the script can't be made: see the server's log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Write(script) //nolint:errcheck // the client is gone
}

// fail answers an error that is not the client's: it may ask again.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	s.log.Warn("boot", "path", r.URL.Path, "from", remote(r), "error", err)
	code := http.StatusServiceUnavailable
	if errors.Is(err, errBusy) {
		code = http.StatusTooManyRequests
	}
	w.Header().Set("Retry-After", "10")
	http.Error(w, "try again later: see the server's log", code)
}

// pixie is what pixiecore was told about a machine. It asks several times while one
// machine starts, which is one run all the same.
type pixie struct {
	answer []byte // JSON; nil: the disk
	until  time.Time
}

// pixieTime is how long the same answer is given.
const pixieTime = 3 * time.Minute

// pixiecore answers the API that pixiecore asks (its README.api.md). The answer
// has the token of a run in it, so that only the servers in lab.yaml may ask.
func (s *Service) pixiecore(w http.ResponseWriter, r *http.Request) {
	mac, from := readMAC(r.PathValue("mac")), remote(r)
	switch {
	case r.Method != http.MethodGet:
		http.Error(w, "GET only: the answer starts a run", http.StatusMethodNotAllowed)
		return
	case !from.IsLoopback() && !slices.Contains(s.state.Load().Pixie, from):
		http.Error(w, "this address may not ask: add it to pixiecore in lab.yaml", http.StatusForbidden)
		return
	case mac == "":
		http.Error(w, "this is no MAC address", http.StatusBadRequest)
		return
	}
	answer, err := s.pixieAnswer(r.Context(), mac)
	switch {
	case err != nil:
		s.fail(w, r, err)
	case answer == nil:
		http.Error(w, "it starts from its disk", http.StatusNotFound) // pixiecore then leaves it alone
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(answer) //nolint:errcheck // the client is gone
	}
}

func (s *Service) pixieAnswer(ctx context.Context, mac string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for who, p := range s.pixie {
		if p.until.Before(now) {
			delete(s.pixie, who)
		}
	}
	if p, ok := s.pixie[mac]; ok {
		return p.answer, nil
	}
	node, choice, start, err := s.offer(ctx, identity{MAC: mac})
	if err != nil {
		return nil, err
	}
	s.log.Info("boot", "node", node.Name, "from", "pixiecore", "image", choice.Image, "why", choice.Why)
	var answer []byte
	if start != nil {
		var initrds []string
		for _, name := range start.Initrds {
			initrds = append(initrds, start.Base+"/"+name)
		}
		answer, err = json.Marshal(map[string]any{
			"kernel": start.Base + "/" + start.Kernel, "initrd": initrds, "cmdline": strings.Join(start.Args, " "),
			"message": fmt.Sprintf("%s starts image %s, %s: run %s", start.Node, start.Image, start.Why, start.Run),
		})
		if err != nil {
			return nil, err
		}
	}
	s.pixie[mac] = pixie{answer, now.Add(pixieTime)}
	return answer, nil
}

// file serves a file of an image. With a digest in its URL it is of that build and
// no other.
func (s *Service) file(w http.ResponseWriter, r *http.Request) {
	i, ok := s.state.Load().images[r.PathValue("image")]
	if !ok {
		http.Error(w, "there is no such image", http.StatusNotFound)
		return
	}
	have, err := i.read()
	if err != nil {
		s.fail(w, r, err)
		return
	}
	if digest := r.PathValue("digest"); digest != "" {
		if digest != have.digest {
			http.Error(w, "the image was built anew: start again", http.StatusNotFound)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	name := r.PathValue("file")
	f, err := have.open(i.dir, name)
	if err == nil {
		w.Header().Set("ETag", `"`+have.files[name].SHA256+`"`)
	}
	s.content(w, r, f, err)
}

func (s *Service) loader(w http.ResponseWriter, r *http.Request) {
	f, err := s.state.Load().loaders.open(r.PathValue("file"))
	s.content(w, r, f, err)
}

// content serves an open file, in ranges if asked for.
func (s *Service) content(w http.ResponseWriter, r *http.Request, f *os.File, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		http.Error(w, "there is no such file", http.StatusNotFound)
		return
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		s.fail(w, r, fmt.Errorf("%s is no file", f.Name()))
		return
	}
	w.Header().Set("Content-Type", contentType(r.URL.Path))
	deadline := time.Now().Add(30*time.Second + time.Duration(st.Size()/slowest)*time.Second)
	http.NewResponseController(w).SetWriteDeadline(deadline) //nolint:errcheck // a recorder of tests has none
	http.ServeContent(w, r, "", st.ModTime(), f)
}

// contentType is that of a file. UEFI takes a program by its type (UEFI 2.10
// section 24.7.3.1.2), not by what it begins with.
func contentType(name string) string {
	switch path.Ext(name) {
	case ".efi":
		return "application/efi"
	case ".json":
		return "application/json"
	case ".ipxe":
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}

// remote is the address of a client.
func remote(r *http.Request) netip.Addr {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}
