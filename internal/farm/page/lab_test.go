package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/bench"
	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// now is when the pages of tests are made: in the night of tonight.
var now = time.Date(2026, 1, 31, 23, 40, 0, 0, time.UTC)

const tonight = "2026-01-31"

const adminToken = "the-administrators-token"

// testLab is a lab with a store of its own, and what it looks like from outside.
type testLab struct {
	*lab.Lab
	*store.Store
	Server *httptest.Server
}

// nights are how many the nodes of a test lab have.
const nights = 24

// newLab fills a store with nodes of several kinds, each with a report a night
// that is made of the facts of a fixture and of figures that are made up.
func newLab(t testing.TB) testLab {
	t.Helper()
	l := testLab{Lab: newLabFile(), Store: openStore(t)}
	var imports errgroup.Group // at once, since they share commits
	var lasts []func()
	for _, m := range []machine{
		{name: "r1-n01", kind: "good-2x4090", group: "rack-1"},
		{name: "r1-n02", kind: "good-2x4090", group: "rack-1", broken: 6},
		{name: "r1-n03", kind: "acs-switch", group: "rack-1", wrong: true},
		{name: "r1-n10", kind: "good-2x4090", group: "rack-1", lost: true},
		{name: "r2-n01", kind: "two-sockets", group: "rack-2", compared: true},
		{name: "r2-n02", kind: "two-switches", group: "rack-2"},
		{name: "r2-n03", kind: "no-gpu", group: "rack-2"},
		{name: "r2-n04", kind: "rebar-off", group: "rack-2"},
		{name: "r2-n05", kind: "good-2x4090", group: "rack-2", running: true},
	} {
		runs, last := m.fill(t, l.Store)
		for _, r := range runs {
			imports.Go(func() error {
				_, err := l.Import(t.Context(), r, nil)
				return err
			})
		}
		lasts = append(lasts, last)
		l.Lab.Nodes = append(l.Lab.Nodes, lab.Node{Name: m.name, Group: m.group})
	}
	require.NoError(t, imports.Wait())
	for _, last := range lasts {
		last()
	}
	l.Lab.Nodes = append(l.Lab.Nodes, lab.Node{Name: "r3-n01", Group: "rack-3"})
	l.serve(t)
	return l
}

// read is how a page gets a lab that stays as it is.
func read(l *lab.Lab) func() *lab.Lab { return func() *lab.Lab { return l } }

// newLabFile is the description of a lab.
func newLabFile(nodes ...lab.Node) *lab.Lab {
	return &lab.Lab{Clock: lab.Clock{Begins: 18 * time.Hour, Zone: time.UTC}, Nodes: nodes}
}

func openStore(t testing.TB) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "farm.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func (l *testLab) serve(t testing.TB) {
	t.Helper()
	l.Server = httptest.NewServer(Handler(Config{
		Store: l.Store, Lab: read(l.Lab), Now: func() time.Time { return now },
		Admin: func(token string) bool { return token == adminToken },
	}))
	t.Cleanup(l.Server.Close)
}

// machine is a node of a test lab.
type machine struct {
	name, kind, group string
	broken            int  // nights since a link is at half of its width
	wrong             bool // a pair delivers wrong data in the last night
	lost              bool // its last run hung
	running           bool // its last run is under way
	compared          bool // its runs compare arms
}

// fill makes the runs of a node: all but the last to be imported, and a function
// that delivers the last.
func (m machine) fill(t testing.TB, s *store.Store) (runs []farm.Run, last func()) {
	t.Helper()
	f := gathered(t, m.kind)
	found := checks.Run(f)
	serial := strings.ToUpper(strings.ReplaceAll(m.name, "-", ""))
	require.NoError(t, s.Touch(t.Context(), farm.Node{Name: m.name, MAC: "52:54:00:12:34:" + m.name[len(m.name)-2:], Serial: "S" + serial, UUID: "4c4c4544-0051-3510-8057-b4c04f4b3233", FirstSeen: now.AddDate(0, -2, 0)}))
	random := newRandom()
	var history []farm.Run
	for back := nights - 1; back >= 0; back-- {
		at := now.AddDate(0, 0, -back).Add(-3 * time.Hour)
		if back == 0 {
			at = now.Add(-12 * time.Minute)
		}
		r := farm.Run{
			ID: fmt.Sprintf("%s-%s", m.name, at.Format(time.DateOnly)), Node: m.name, Night: at.Format(time.DateOnly),
			Image: "nightly", Plan: "full", Offered: at, Deadline: at.Add(30 * time.Minute),
		}
		text := m.report(t, f, found, at, back, random)
		if back > 0 {
			r.Source, r.State, r.Stage = farm.Network, farm.Complete, "report"
			r.Started, r.Updated, r.Ended = at, at.Add(3*time.Minute), at.Add(3*time.Minute)
			j := judgement(t, r, bytes.NewReader(text), history)
			r.Summary, r.Changes = j.Summary, j.Changes
			history = append(history, r)
			runs = append(runs, r)
			continue
		}
		if m.lost || m.running {
			cut := bytes.Index(text, []byte(`"testStepId":"bandwidth","testStepStart"`))
			text = text[:cut+bytes.IndexByte(text[cut:], '\n')+1]
		}
		last = func() {
			require.NoError(t, s.Offer(t.Context(), r, store.Token{}))
			deliver(t, s, r.ID, bytes.SplitAfter(text, []byte("\n")), at)
			if m.lost {
				_, err := s.Lose(t.Context(), r.ID, "nothing has arrived for 20 minutes; the last stage is bandwidth", at.Add(25*time.Minute))
				require.NoError(t, err)
			}
			judged(t, s, r.ID, history)
		}
	}
	return runs, last
}

// newRandom is where the noise of figures comes from, the same each time.
func newRandom() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// deliver appends lines to a run, some at a time.
func deliver(t testing.TB, s *store.Store, run string, lines [][]byte, at time.Time) {
	t.Helper()
	p, err := s.Progress(t.Context(), run, at)
	require.NoError(t, err)
	for len(lines) > 0 {
		n := min(len(lines), 16)
		c := store.Chunk{Seq: p.Next, Data: bytes.Join(lines[:n], nil), At: at.Add(time.Duration(p.Next) * 7 * time.Second)}
		for _, l := range lines[:n] {
			if _, after, ok := bytes.Cut(l, []byte(`"testStepStart":{"name":"`)); ok {
				c.Stage, _, _ = strings.Cut(string(after), `"`)
			}
			c.End = c.End || bytes.Contains(l, []byte(`"testRunEnd"`))
		}
		lines = lines[n:]
		if len(c.Data) == 0 {
			continue
		}
		p, err = s.Append(t.Context(), run, c)
		require.NoError(t, err)
	}
}

// judgement is what the intake makes of a report.
func judgement(t testing.TB, run farm.Run, text io.Reader, history []farm.Run) store.Judgement {
	t.Helper()
	parsed, err := report.Parse(text)
	require.NoError(t, err)
	run.Summary = judge.Summarise(parsed)
	return store.Judgement{
		Chunks: run.Chunks, Summary: run.Summary, Changes: judge.Judge(farm.Node{Name: run.Node}, run, history, nil),
		Baselines: judge.Learn(append(slices.Clip(history), run), nil),
	}
}

// judged records what the intake makes of a run as it is.
func judged(t testing.TB, s *store.Store, id string, history []farm.Run) {
	t.Helper()
	run, err := s.Run(t.Context(), id)
	require.NoError(t, err)
	text, err := s.Report(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, s.Judge(t.Context(), id, judgement(t, run, text, history)))
}

func gathered(t testing.TB, kind string) *facts.Facts {
	t.Helper()
	for _, k := range fixture.Kinds() {
		if k.Name != kind {
			continue
		}
		root := t.TempDir()
		require.NoError(t, k.Write(root))
		f, err := facts.Gather(root, facts.Options{StandIn: k.StandIn, KernelLog: strings.NewReader(k.Log)})
		require.NoError(t, err)
		return f
	}
	t.Fatalf("no kind of machine %q", kind)
	return nil
}

// report is what a node delivers in a night, back nights before the last.
func (m machine) report(t testing.TB, f *facts.Facts, found []checks.Finding, at time.Time, back int, random *rand.Rand) []byte {
	t.Helper()
	clock := at
	w := report.New(report.Clock(func() time.Time { clock = clock.Add(130 * time.Millisecond); return clock }))
	w.Start(report.RunStart{Name: "p2pinit", Version: "0.1.0", CommandLine: "console=ttyS0 p2p.plan=full", Parameters: map[string]any{"plan": "full"},
		DUT: report.DUT{ID: m.name, Software: []report.SoftwareInfo{{ID: "linux", Name: "linux", Version: "6.1.0-40-amd64"}, {ID: "nvidia", Name: "nvidia", Version: "580.142"}}}})
	step := func(name string, do func(s *report.Step)) {
		s := w.Step(name, name)
		s.Log(report.Info, "begin of %s", name)
		do(s)
		clock = clock.Add(2 * time.Second)
		s.End(report.StatusComplete)
	}
	step("mount", func(s *report.Step) {
		s.Diagnosis(report.Diagnosis{Verdict: "IMAGE-INTACT", Type: report.DiagnosisPass, Message: "412 files as listed"})
	})
	step("facts", func(s *report.Step) {
		raw, err := json.Marshal(f)
		require.NoError(t, err)
		s.Extension(report.ExtFacts, json.RawMessage(raw))
		s.Log(report.Info, "%d PCI functions, %d of them GPUs", len(f.Devices), len(f.GPUs()))
	})
	all := found
	step("checks", func(s *report.Step) {
		for _, finding := range found {
			s.Finding(finding)
		}
	})
	step("driver", func(s *report.Step) { s.Log(report.Info, "nvidia.ko and nvidia-uvm.ko of 580.142 inserted") })
	if len(f.GPUs()) > 1 {
		r := m.measured(f, back, random)
		step("bandwidth", func(s *report.Step) {
			clock = clock.Add(40 * time.Second)
			bench.Write(s, r, "", true)
			for _, finding := range bench.Findings(r) {
				all = append(all, finding)
				s.Finding(finding)
			}
			s.Extension(report.ExtBandwidth, r)
		})
		if m.compared {
			step("compare", func(s *report.Step) { s.Extension(report.ExtComparison, m.comparison(r)) })
		}
	}
	verdict, reason := checks.Judge(all)
	step("report", func(s *report.Step) { s.Verdict(report.Verdict{Verdict: verdict, Reason: reason}) })
	require.NoError(t, w.End(report.Outcome(verdict, false)))
	return w.Bytes()
}

// measured makes figures up: what paths can carry, less what is usual.
func (m machine) measured(f *facts.Facts, back int, random *rand.Rand) *measure.Result {
	r := &measure.Result{Version: measure.Version, Settings: measure.Preset(measure.Quick),
		Inventory: &measure.Inventory{Library: "libcuda.so.1", CUDAVersion: "13.0", DriverVersion: "580.142"}, Devices: []measure.Device{}}
	for _, g := range f.GPUs() {
		r.Inventory.GPUs = append(r.Inventory.GPUs, cuda.DeviceInfo{BDF: g.Address, Name: "NVIDIA GeForce RTX 4090", Memory: 24 << 30})
	}
	for i, c := range bench.Ceilings(f, nil) {
		p := measure.Pair{Initiator: c.Initiator, Peer: c.Peer, CanAccess: true, Ceiling: &c, Seconds: 3}
		part := 0.9 - 0.02*float64(i%3)
		if m.broken > back && i == 0 {
			part = 0.46
		}
		for _, w := range ways[:4] {
			v := c.WriteGBps * part * (1 + 0.01*random.NormFloat64())
			if w.Method == string(measure.SM) {
				v *= 0.93
			}
			p.Measurements = append(p.Measurements, made(measure.Bandwidth, w, measure.GBps, v))
			p.Ways = append(p.Ways, measure.Way{Direction: measure.Direction(w.Direction), Method: measure.Method(w.Method), GBps: v})
			p.Checks = append(p.Checks,
				measure.Check{Direction: measure.Direction(w.Direction), Method: measure.Method(w.Method), Phase: measure.Before, Reader: measure.ByCE, Bytes: 64 << 20},
				measure.Check{Direction: measure.Direction(w.Direction), Method: measure.Method(w.Method), Phase: measure.After, Reader: measure.ByCE, Bytes: 64 << 20})
		}
		p.Checks = append(p.Checks,
			measure.Check{Direction: measure.Write, Method: measure.CE, Phase: measure.Reached, Reader: measure.ByCE, Bytes: 16 << 20},
			measure.Check{Direction: measure.Write, Method: measure.SM, Phase: measure.Handshake, Reader: measure.BySM, Bytes: 8 << 10})
		if m.wrong && back == 0 && i == 1 {
			p.Checks[0].Wrong = 4096
		}
		p.Measurements = append(p.Measurements, made(measure.LoadLatency, ways[3], measure.Nanoseconds, 1310*(1+0.01*random.NormFloat64())/part))
		p.Ways, p.Verdict, p.Reason = measure.JudgePair(p, r.Settings)
		r.Pairs = append(r.Pairs, p)
	}
	r.Verdict, r.Reason = measure.Judge(*r)
	return r
}

func made(q measure.Quantity, w way, unit string, v float64) measure.Measurement {
	return measure.Measurement{Quantity: q, Direction: measure.Direction(w.Direction), Method: measure.Method(w.Method), Unit: unit, Size: 64 << 20, Copies: 4,
		Summary: measure.Summary{Median: v, Min: 0.99 * v, P5: 0.992 * v, P95: 1.008 * v, Max: 1.01 * v}}
}

func (m machine) comparison(r *measure.Result) arms.Comparison {
	box := *r
	box.Pairs = nil
	for _, p := range r.Pairs {
		p.Measurements = append([]measure.Measurement(nil), p.Measurements...)
		for i := range p.Measurements {
			s := &p.Measurements[i].Summary
			s.Median, s.P5, s.P95 = 0.78*s.Median, 0.78*s.P5, 0.78*s.P95
		}
		box.Pairs = append(box.Pairs, p)
	}
	return arms.Compare([]arms.Outcome{
		{Arm: arms.Arm{Set: arms.Stock}, Options: "NVreg_EnableResizableBar=1", Skipped: "the driver grants no access"},
		{Arm: arms.Arm{Set: arms.P2P, Mailbox: true}, Options: "RMPcieP2PType=0", Result: &box},
		{Arm: arms.Arm{Set: arms.P2P}, Options: "RMPcieP2PType=1", Result: r},
	}, []arms.Left{{Arm: "p2p-noacs", Why: "no port between GPUs redirects that can be changed"}})
}

var _ Store = (*store.Store)(nil)
