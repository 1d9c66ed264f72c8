package boot

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"mkp2pimg/images"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store"
)

// Store is what the service asks the store and tells it; [store.Store] is one.
type Store interface {
	Touch(context.Context, farm.Node) error
	Runs(context.Context, store.Query) ([]farm.Run, error)
	Armed(ctx context.Context, night, node string) (store.Armed, error)
	Offer(context.Context, farm.Run, store.Token) error
}

// Config is what a service is made of.
type Config struct {
	Lab   *lab.Lab
	Store Store
	Pin   string // p2p.pin: base64url SHA-256 of the public key of the server that takes reports; empty without TLS
	Log   *slog.Logger
	Now   func() time.Time // nil: time.Now
}

// Service answers machines that start from the network.
type Service struct {
	store Store
	pin   string
	log   *slog.Logger
	now   func() time.Time
	state atomic.Pointer[state]

	perMAC, perAddress *limit.Limiter
	strangers          *rate.Limiter  // runs of machines that are not in lab.yaml
	packets            *limit.Limiter // answers to DHCP, by MAC address

	mu     sync.Mutex
	leases *Leases
	pixie  map[string]pixie // what pixiecore was told, by MAC address
}

// state is what changes when lab.yaml is read again.
type state struct {
	*lab.Lab
	images  map[string]*image
	loaders *loaders
}

// New makes a service. It reads and verifies the images.
func New(c Config) (*Service, error) {
	s := &Service{
		store: c.Store, pin: c.Pin, log: c.Log, now: c.Now,
		perMAC:     limit.New(20*time.Second, 6, 1<<14),
		perAddress: limit.New(time.Second, 60, 1<<14),
		strangers:  rate.NewLimiter(1, 200),
		packets:    limit.New(500*time.Millisecond, 20, 1<<14),
		pixie:      map[string]pixie{},
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s, s.Reload(c.Lab)
}

// Reload takes another lab.yaml. With an error, all stays as it was.
func (s *Service) Reload(l *lab.Lab) error {
	next := &state{Lab: l, images: map[string]*image{}, loaders: &loaders{dir: l.Loaders}}
	old := s.state.Load()
	for _, name := range slices.Sorted(maps.Keys(l.Images)) {
		i := &image{dir: l.Images[name]}
		if old != nil && old.images[name] != nil && old.images[name].dir == i.dir {
			i = old.images[name]
		}
		if _, err := i.read(); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("image %s of %s: %w: make it with \"mkp2pimg build --format pxe --out %s\"", name, l.Path, err, i.dir)
		} else if err != nil {
			return fmt.Errorf("image %s of %s: %w", name, l.Path, err)
		}
		next.images[name] = i
		next.loaders.images = append(next.loaders.images, i)
	}
	s.state.Store(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases != nil {
		s.leases.Reserve(macs(l))
	}
	return nil
}

// macs are those of the nodes.
func macs(l *lab.Lab) []string {
	var list []string
	for _, n := range l.Nodes {
		if n.MAC != "" {
			list = append(list, n.MAC)
		}
	}
	return list
}

// boots says whether a machine is to boot anything of this server.
func (s *Service) boots(c Client) bool {
	st := s.state.Load()
	for _, id := range append([]string{""}, c.UUIDs...) {
		if n, ok := st.Find(c.MAC, id, ""); ok {
			return n.Boot != lab.Never
		}
	}
	return st.Unknown != lab.Never
}

// node is who a machine is, and what it may run.
func (st *state) node(id identity) (farm.Node, lab.Settings, bool) {
	if n, ok := st.Find(id.MAC, id.UUID, id.Serial); ok {
		return farm.Node{
			Name: n.Name, MAC: cmp.Or(n.MAC, id.MAC), UUID: cmp.Or(n.UUID, id.UUID), Serial: cmp.Or(n.Serial, id.Serial),
		}, n.Settings, true
	}
	s := st.Defaults
	s.Boot = st.Unknown
	if id.MAC == "" {
		s.Boot = lab.Never // nothing to call it by
	}
	return farm.Node{Name: id.name(), MAC: id.MAC, UUID: id.UUID, Serial: id.Serial}, s, false
}

// errBusy is returned for machines that ask too often.
var errBusy = errors.New("too many requests")

// offer decides what a machine boots and, if that is the image, records a run.
// start is nil if it is its disk.
func (s *Service) offer(ctx context.Context, id identity) (node farm.Node, c Choice, start *starting, err error) {
	st, now := s.state.Load(), s.now()
	node, settings, known := st.node(id)
	night := st.Night(now)
	if settings.Boot == lab.Never {
		why := "lab.yaml has boot: never"
		if !known {
			why = "it is not in lab.yaml"
		}
		return node, Choice{Settings: settings, Why: why}, nil, nil
	}
	if !known && !s.strangers.AllowN(now, 1) {
		return node, c, nil, errBusy
	}
	node.FirstSeen, node.LastSeen = now, now
	if err := s.store.Touch(ctx, node); err != nil {
		return node, c, nil, err
	}
	runs, err := s.store.Runs(ctx, store.Query{Node: node.Name, Night: night})
	if err != nil {
		return node, c, nil, err
	}
	var armed *store.Armed
	if a, err := s.store.Armed(ctx, night, node.Name); err == nil {
		armed = &a
	} else if !errors.Is(err, store.ErrNotFound) {
		return node, c, nil, err
	}
	c = Choose(settings, runs, armed)
	if !c.Image {
		return node, c, nil, nil
	}
	run := farm.Run{
		ID: uuid.NewString(), Node: node.Name, Night: night, Image: c.Settings.Image, Plan: c.Plan, Offered: now, Deadline: now.Add(c.Deadline),
	}
	token := make([]byte, sha256.Size)
	rand.Read(token) // never fails: see its documentation
	text := base64.RawURLEncoding.EncodeToString(token)
	if start, err = s.start(st, &run, c, text); err != nil {
		return node, c, nil, err
	}
	return node, c, start, s.store.Offer(ctx, run, sha256.Sum256([]byte(text)))
}

// start is what the script of a run is made of.
func (s *Service) start(st *state, run *farm.Run, c Choice, token string) (*starting, error) {
	i, ok := st.images[run.Image]
	if !ok {
		return nil, fmt.Errorf("node %s is to boot image %q, which %s does not have", run.Node, run.Image, st.Path)
	}
	have, err := i.read()
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", run.Image, err)
	}
	// The kernel logs its command line as a notice (5, of which only lower ones are
	// shown): the token stays off the consoles.
	args := slices.Concat(have.manifest.CommandLine, []string{"loglevel=5"}, c.Parameters, []string{
		"p2p.plan=" + c.Plan, "p2p.after=" + c.After, "p2p.node=" + run.Node,
		"p2p.collect=" + st.API() + "/v1/runs/" + run.ID, "p2p.token=" + token,
	})
	if s.pin != "" {
		args = append(args, "p2p.pin="+s.pin)
	}
	start := &starting{
		Node: run.Node, Image: run.Image, Why: c.Why, Run: run.ID,
		Base:   st.Server + "/images/" + run.Image + "/" + have.digest,
		Kernel: images.KernelName, Initrds: images.Initrds(have.manifest), Args: args,
		First: st.Server + "/" + firstName,
	}
	_, err = start.script() // before the run is recorded
	return start, err
}
