package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/boot"
	"mkp2pimg/internal/farm/intake"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/page"
	"mkp2pimg/internal/farm/store"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	lab, store string
	noDHCP     bool
	init       bool
	image      string
	ports      boot.Ports
}

func newServe() *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use:   "serve",
		Short: "boot the machines of a lab from the network and keep what they report",
		Long: `Boot the machines of a lab from the network, take their reports in while they run,
and show what they found and what changed, on pages and as JSON. All that is in
one program, with a file of SQLite or a database of PostgreSQL.

lab.yaml says which machines there are and what they boot. --init writes a first
one, with comments. SIGHUP reads it again. docs/farm.md has all of its keys, a
systemd unit, and what a hostile machine on the net can do.`,
		Example: `  mkp2pimg build --format pxe
  mkp2pimg serve --init
  mkp2pimg serve`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.init {
				return initLab(c.OutOrStdout(), o.lab, o.image)
			}
			return serve(c.Context(), &o, c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.lab, "lab", "lab.yaml", "description of the lab")
	f.StringVar(&o.store, "store", "", "where to keep what is reported, in place of lab.yaml's: a file, or postgres://USER@HOST/NAME")
	f.BoolVar(&o.noDHCP, "no-dhcp", false, "answer no DHCP and TFTP, whatever lab.yaml says: for ports above 1023 only, no rights are needed")
	f.BoolVar(&o.init, "init", false, "write a first lab.yaml and end")
	f.StringVar(&o.image, "image", "out", "with --init: the directory of the image")
	return c
}

// Bounds of the servers: how long a client may take for its header and body, how
// long an answer may take but for files of images, which have their own bound, and
// how many clients there may be at a time.
const (
	headerTime  = 10 * time.Second
	bodyTime    = 2 * time.Minute
	answerTime  = 2 * time.Minute
	idleTime    = 2 * time.Minute
	stopTime    = 20 * time.Second // for requests under way when the server stops
	maxClients  = 4096
	maxHeader   = 32 << 10 // bytes
	enrolAtOnce = 64
)

// farmServer is all that serve runs.
type farmServer struct {
	options *serveOptions
	log     *slog.Logger
	lab     atomic.Pointer[lab.Lab]
	store   *store.Store
	boot    *boot.Service
	intake  *intake.Intake
	admin   func(token string) bool
}

// serve runs until the context ends.
func serve(ctx context.Context, o *serveOptions, stderr io.Writer) error {
	s := &farmServer{options: o, log: slog.New(slog.NewTextHandler(stderr, nil))}
	l, err := s.read()
	if err != nil {
		return err
	}
	if s.admin, err = adminToken(l.AdminTokenFile); err != nil {
		return err
	}
	var pair keyPair
	if l.TLS.Listen != "" {
		if pair, err = loadKeyPair(l.TLS, l.Server); err != nil {
			return err
		}
	}
	if s.store, err = store.Open(ctx, l.Store); err != nil {
		return err
	}
	defer func() {
		if err := s.store.Close(); err != nil {
			s.log.Error("store", "error", err)
		}
	}()
	if s.boot, err = boot.New(boot.Config{Lab: l, Store: s.store, Pin: pair.pin, Log: s.log}); err != nil {
		return err
	}
	s.intake = intake.New(intake.Config{
		Store: s.store, Log: s.log, Admin: s.admin,
		Judge: judgement,
		Night: func(t time.Time) string { return s.lab.Load().Night(t) },
		Known: func(name string) bool { _, ok := s.lab.Load().Named(name); return ok },
		Pinned: func(name string) []farm.Baseline {
			if n, ok := s.lab.Load().Named(name); ok {
				return n.Baseline
			}
			return nil
		},
		Retain: store.Policy{Reports: l.Retention.Reports, Summaries: l.Retention.Runs},
	})
	s.lab.Store(l)
	return s.run(ctx, l, pair)
}

// read reads lab.yaml and applies the flags.
func (s *farmServer) read() (*lab.Lab, error) {
	l, err := lab.Load(s.options.lab)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: write one with \"mkp2pimg serve --init\"", err)
	}
	if err != nil {
		return nil, err
	}
	if s.options.store != "" {
		l.Store = s.options.store
	}
	if s.options.noDHCP {
		l.DHCP.Mode = lab.Off
	}
	return l, nil
}

// run listens, says so, and serves until the context ends. Requests under way then
// are finished before the rest stops.
func (s *farmServer) run(ctx context.Context, l *lab.Lab, pair keyPair) error {
	udp, err := s.boot.Listen(s.options.ports)
	if _, host := errors.AsType[*net.OpError](err); host {
		return hostError{err}
	} else if err != nil {
		return dataError{err}
	}
	servers, err := s.listen(ctx, l, pair)
	if err != nil {
		return errors.Join(err, udp.Close())
	}
	s.announce(l)
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	g, ctx := errgroup.WithContext(ctx)
	for _, h := range servers {
		g.Go(func() error {
			if err := h.serve(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	g.Go(func() error { return udp.Serve(ctx) })
	g.Go(func() error { s.intake.Run(work); return nil })
	g.Go(func() error { s.enrol(ctx, l); return nil })
	g.Go(func() error { s.reloads(ctx); return nil })
	g.Go(func() error {
		<-ctx.Done()
		s.log.Info("stopping: requests under way are finished")
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer cancel()
		for _, h := range servers {
			if err := h.Shutdown(late); err != nil {
				s.log.Warn("requests under way are cut off", "error", errors.Join(err, h.Close()))
			}
		}
		stopWork()
		return nil
	})
	return g.Wait()
}

// httpServer is a server with its listener.
type httpServer struct {
	*http.Server
	listener net.Listener
	pair     keyPair
}

func (h *httpServer) serve() error {
	if h.pair.cert == "" {
		return h.Serve(h.listener)
	}
	return h.ServeTLS(h.listener, h.pair.cert, h.pair.key)
}

// listen opens the HTTP servers. With TLS, the one without it serves no more than
// what firmware and iPXE fetch.
func (s *farmServer) listen(ctx context.Context, l *lab.Lab, pair keyPair) (all []*httpServer, err error) {
	plain, whole := http.NewServeMux(), http.NewServeMux()
	for _, mux := range []*http.ServeMux{plain, whole} {
		for _, path := range []string{"/boot.ipxe", "/v1/ipxe", "/v1/boot/", "/images/", "/loaders/"} {
			mux.Handle(path, s.boot.Handler())
		}
	}
	whole.Handle("/v1/", s.intake)
	whole.Handle("/", page.Handler(page.Config{Store: s.store, Lab: s.lab.Load, Admin: s.admin, Log: s.log}))
	type server struct {
		addr    string
		handler http.Handler
		pair    keyPair
	}
	wanted := []server{{l.Listen, whole, keyPair{}}}
	if pair.cert != "" {
		plain.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, l.API(), http.StatusFound) })
		wanted = []server{{l.Listen, plain, keyPair{}}, {l.TLS.Listen, whole, pair}}
	}
	for _, w := range wanted {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.addr)
		if err != nil {
			for _, h := range all {
				err = errors.Join(err, h.listener.Close())
			}
			return nil, hostError{fmt.Errorf("%s: %w%s", l.Path, err, listenHint(err))}
		}
		all = append(all, &httpServer{&http.Server{
			Handler: w.handler, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
			MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		}, netutil.LimitListener(listener, maxClients), w.pair})
	}
	return all, nil
}

// listenHint is what can be done about an address that can't be listened at.
func listenHint(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return ": another program has it (ss -tlnp names it): stop it, or choose another port with the key listen, and with server"
	case errors.Is(err, syscall.EACCES):
		return ": ports below 1024 are for root, or for programs with cap_net_bind_service"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return ": this machine has no such address (ip -br address lists them)"
	}
	return ""
}

// announce says what there is for whom.
func (s *farmServer) announce(l *lab.Lab) {
	s.log.Info("serving", "page", l.API()+"/", "boot", l.Server+"/boot.ipxe", "dhcp", l.DHCP.Mode, "nodes", len(l.Nodes), "unknown", l.Unknown,
		"store", redact(l.Store), "admin-token-file", l.AdminTokenFile)
}

// redact takes the password out of the URL of a database.
func redact(name string) string {
	scheme, rest, found := strings.Cut(name, "://")
	user, host, hasUser := strings.Cut(rest, "@")
	if name, _, ok := strings.Cut(user, ":"); found && hasUser && ok {
		return scheme + "://" + name + "@" + host
	}
	return name
}

// enrol makes the nodes of the lab known, so that one that never starts is seen to
// be missing, and pins what lab.yaml pins.
func (s *farmServer) enrol(ctx context.Context, l *lab.Lab) {
	var g errgroup.Group
	g.SetLimit(enrolAtOnce) // together they share transactions
	for _, n := range l.Nodes {
		g.Go(func() error {
			return s.store.Touch(ctx, farm.Node{Name: n.Name, MAC: n.MAC, UUID: n.UUID, Serial: n.Serial})
		})
	}
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		s.log.Error("nodes of the lab", "error", err)
	}
}

// reloads reads lab.yaml again at each SIGHUP.
func (s *farmServer) reloads(ctx context.Context) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
			s.reload(ctx)
		}
	}
}

// reload takes a changed lab.yaml, or says why not and goes on with the old one.
func (s *farmServer) reload(ctx context.Context) {
	l, err := s.read()
	if err == nil {
		err = s.boot.Reload(l)
	}
	if err != nil {
		s.log.Error("lab.yaml is not taken; the one before stays", "error", err)
		return
	}
	if keys := needRestart(s.lab.Load(), l); len(keys) > 0 {
		s.log.Warn("changed keys that a restart is needed for", "keys", strings.Join(keys, ", "))
	}
	s.lab.Store(l)
	s.enrol(ctx, l)
	s.log.Info("lab.yaml was read again", "nodes", len(l.Nodes))
}

// needRestart lists the keys in which two labs differ that are only read at the start.
func needRestart(before, after *lab.Lab) []string {
	var keys []string
	for _, k := range []struct {
		name string
		same bool
	}{
		{"listen", before.Listen == after.Listen},
		{"server", before.Server == after.Server},
		{"tls", before.TLS == after.TLS},
		{"dhcp", sameDHCP(before.DHCP, after.DHCP)},
		{"store", before.Store == after.Store},
		{"admin-token-file", before.AdminTokenFile == after.AdminTokenFile},
		{"retention", before.Retention == after.Retention},
	} {
		if !k.same {
			keys = append(keys, k.name)
		}
	}
	return keys
}

func sameDHCP(a, b lab.DHCP) bool { return fmt.Sprint(a) == fmt.Sprint(b) }
