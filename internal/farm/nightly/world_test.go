package nightly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/power"
)

const tonight = "2026-03-05"

// world is a lab in which time passes as in [testing/synctest]: a server, and
// machines that do what a test has them do at each of their starts.
type world struct {
	mu       sync.Mutex
	runs     []farm.Run
	armed    map[string]Arming
	log      []string
	down     error         // what the server answers
	refuse   error         // what it answers to requests to disarm
	slow     time.Duration // until a complete run is judged
	active   map[string]int
	peak     map[string]int // most machines that were on at the same time, by group, "" is all
	machines map[string]*machine
}

// machine has a behaviour for each start; the last one is that of all further ones.
type machine struct {
	w      *world
	name   string
	group  string
	starts int
	does   []behaviour
}

// behaviour is what a machine does once it is started.
type behaviour struct {
	refuses error         // of the BMC
	note    string        // of the BMC
	boot    time.Duration // until it asks for something to boot; 0: never
	ends    time.Duration // after that, until its report is complete; 0: never
	resets  time.Duration // after boot it resets itself, and does what comes next
	verdict checks.Verdict
	changes []farm.Change
}

var (
	ready    = behaviour{boot: 3 * time.Minute, ends: 4 * time.Minute, verdict: checks.VerdictReady}
	hangs    = behaviour{boot: 3 * time.Minute}
	silent   = behaviour{}
	degraded = behaviour{boot: time.Minute, ends: time.Minute, verdict: checks.VerdictDegraded}
)

func newWorld() *world {
	return &world{armed: map[string]Arming{}, active: map[string]int{}, peak: map[string]int{}, machines: map[string]*machine{}}
}

// node adds a machine that we can start.
func (w *world) node(name, group string, does ...behaviour) Node {
	m := &machine{w: w, name: name, group: group, does: does}
	w.machines[name] = m
	return Node{Name: name, Group: group, Attempts: 2, Deadline: 30 * time.Minute, Start: m}
}

// NetworkBoot implements [power.Starter].
func (m *machine) NetworkBoot(ctx context.Context) (string, error) {
	b := m.does[min(m.starts, len(m.does)-1)]
	m.starts++
	select { // a BMC takes a while
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if b.refuses != nil {
		return "", b.refuses
	}
	go m.run(b)
	return b.note, nil
}

// run is the machine from its start on.
func (m *machine) run(b behaviour) {
	if b.boot == 0 {
		return
	}
	time.Sleep(b.boot)
	r := m.w.offer(m.name)
	if r == nil {
		return
	}
	m.w.on(m.group, 1)
	defer m.w.on(m.group, -1)
	switch {
	case b.resets > 0:
		time.Sleep(b.resets)
		m.starts++
		go m.run(m.does[min(m.starts-1, len(m.does)-1)])
	case b.ends == 0:
		time.Sleep(31 * time.Minute)
		m.w.change(r.ID, func(r *farm.Run) {
			r.State, r.Why, r.Stage = farm.Lost, "nothing arrived for 30 minutes after stage driver", "driver"
		})
	default:
		time.Sleep(b.ends)
		m.w.change(r.ID, func(r *farm.Run) {
			r.State, r.Summary, r.Changes = farm.Complete, &farm.Summary{Verdict: b.verdict, Reason: "the reason"}, b.changes
			r.Judged = m.w.slow == 0
		})
		time.Sleep(m.w.slow)
		m.w.change(r.ID, func(r *farm.Run) { r.Judged = true })
	}
}

func (w *world) on(group string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range slices.Compact([]string{"", group}) {
		w.active[g] += n
		w.peak[g] = max(w.peak[g], w.active[g])
	}
}

// offer makes a run for a node that asks for something to boot, if it is armed.
func (w *world) offer(name string) *farm.Run {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.armed[name]; !ok {
		return nil
	}
	for i := range w.runs {
		if r := &w.runs[i]; r.Node == name && !r.State.Over() {
			r.State, r.Why = farm.Lost, "the node started another run"
		}
	}
	r := farm.Run{ID: fmt.Sprintf("run-%d", len(w.runs)+1), Node: name, Night: tonight, Source: farm.Network, State: farm.Running, Offered: time.Now()}
	w.runs = append(w.runs, r)
	return &r
}

func (w *world) change(id string, f func(*farm.Run)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.runs, func(r farm.Run) bool { return r.ID == id })
	f(&w.runs[i])
}

func (w *world) Arm(_ context.Context, night, node string, a Arming) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if night != tonight {
		return fmt.Errorf("armed for %s", night)
	}
	if w.down == nil {
		w.armed[node] = a
	}
	return w.down
}

func (w *world) Disarm(_ context.Context, _, node string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := errors.Join(w.down, w.refuse); err != nil {
		return err
	}
	delete(w.armed, node)
	return nil
}

func (w *world) Runs(context.Context, string) ([]farm.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.runs), w.down
}

func (w *world) say(node, text string) { w.log = append(w.log, node+" "+text) }

// run runs a night in this world.
func (w *world) run(ctx context.Context, t *testing.T, s Settings, nodes ...Node) Outcome {
	t.Helper()
	t.Cleanup(func() { time.Sleep(48 * time.Hour) }) // until all machines have ended what they do
	s.Night = tonight
	if s.Attempts == 0 {
		s.Attempts = 2
	}
	if s.Deadline == 0 {
		s.Deadline = 12 * time.Hour
	}
	out, err := Run(ctx, w, s, nodes, w.say)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func finalError() error {
	return &power.Error{Target: "BMC a1", Answer: "401 Unauthorized", Final: true, Err: errors.New("refused")}
}
