package measure

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

// Enumerate describes the driver and its GPUs. Of the inventory, Library and
// DriverVersion are left to the caller, who knows how the driver was loaded.
func Enumerate(drv cuda.Driver) (Inventory, error) {
	inv := Inventory{GPUs: []cuda.DeviceInfo{}}
	v, err := drv.Version()
	if err != nil {
		return inv, err
	}
	inv.CUDAVersion = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	devices, err := drv.Devices()
	if err != nil {
		return inv, err
	}
	for i, d := range devices {
		info, err := d.Info()
		if err != nil {
			return inv, fmt.Errorf("GPU %d: %w", i, err)
		}
		inv.GPUs = append(inv.GPUs, info)
	}
	return inv, nil
}

// find returns the device at the address bdf.
func find(drv cuda.Driver, bdf string) (cuda.Device, error) {
	devices, err := drv.Devices()
	if err != nil {
		return nil, err
	}
	for i, d := range devices {
		info, err := d.Info()
		if err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		if info.BDF == bdf {
			return d, nil
		}
	}
	return nil, fmt.Errorf("the driver shows no GPU at %s", bdf)
}

// A run is the state common to the measurements of a device, of a pair and of
// traffic.
type run struct {
	*session
	begin func(step string) // names the step about to start

	measurements *[]Measurement
	checks       *[]Check
	verifying    *float64 // seconds
}

func newRun(ctx context.Context, set Settings) *run {
	return &run{
		session:   &session{context: ctx, settings: set},
		verifying: new(float64),
	}
}

// loading is the end of the name of a step that puts load on a link.
const loading = ": bandwidth"

// Loading tells whether a step, as a progress function sees it, puts load on a
// link.
func Loading(step string) bool { return strings.HasSuffix(step, loading) }

// A path is a way from one buffer to another.
type path struct {
	direction Direction
	method    Method
	engine    *party // whose engine copies
	from, to  *buffer
	size      int64 // bytes to copy
}

func (p path) String() string { return fmt.Sprintf("%s by %s", p.direction, p.method) }

func (p path) pattern(seed uint64, phase Phase) kernels.Pattern {
	return newPattern(seed, p.from.owner.bdf, p.to.owner.bdf, p.direction, p.method, phase)
}

// issue queues n copies along the path.
func (p path) issue(q cuda.Stream, n int) error {
	if p.method == Staged {
		for range n {
			if err := q.CopyPeer(p.to.ptr, p.to.owner.ctx, p.from.ptr, p.from.owner.ctx, p.size); err != nil {
				return err
			}
		}
		return nil
	}
	return p.engine.copy(q, p.method, p.to.ptr, p.from.ptr, p.size, n)
}

// windows returns what the host looks at.
func (p path) windows(seed uint64) []Window { return windows(p.size, false, seed) }

// parts returns what of the path's buffers holds a pattern: all of it, unless the
// host would have to write it.
func (p path) parts(seed uint64) []Window {
	if p.from.bytes != nil {
		return p.windows(seed)
	}
	return []Window{{0, p.size}}
}

// take verifies a path, measures its bandwidth and verifies it again. It skips
// the bandwidth if the first check finds wrong data: where the data went is
// unknown, and more of it could do more damage. It tells whether the data was
// right.
func (r *run) take(p path) (bool, error) {
	r.begin(p.String() + ": verify one copy")
	if err := r.prepare(p, Before); err != nil {
		return false, err
	}
	if err := p.issue(p.engine.stream, 1); err != nil {
		return false, err
	}
	if err := p.engine.wait(); err != nil {
		return false, err
	}
	if ok, err := r.check(p, Before); err != nil || !ok {
		return false, err
	}
	// The destination still holds what was sent before: it shows whether the
	// copies under load arrive.
	if err := r.unclocked(func() error { return p.from.put(p.pattern(r.settings.Seed, After), p.parts(r.settings.Seed)) }); err != nil {
		return false, err
	}
	r.begin(p.String() + loading)
	m, err := r.bandwidth(p)
	if err != nil {
		return false, err
	}
	r.add(m)
	r.begin(p.String() + ": verify after load")
	return r.check(p, After)
}

// prepare puts the data of a phase into the source, and poison into the
// destination.
func (r *run) prepare(p path, phase Phase) error {
	return r.unclocked(func() error {
		if err := p.from.put(p.pattern(r.settings.Seed, phase), p.parts(r.settings.Seed)); err != nil {
			return err
		}
		return p.to.poison(p.parts(r.settings.Seed))
	})
}

// bandwidth measures that of a path.
func (r *run) bandwidth(p path) (Measurement, error) {
	m := Measurement{Direction: p.direction, Method: p.method, Size: p.size}
	f, err := p.engine.flow(p.issue)
	if err != nil {
		return m, err
	}
	start := r.race
	if p.method == Staged {
		start = r.open
	}
	race, err := start(f)
	if err != nil {
		return m, err
	}
	timings, copies, err := race.sample()
	m.Copies = copies
	return m.bandwidth(of(timings, 0), p.size*int64(copies)), err
}

func (r *run) add(m Measurement) { *r.measurements = append(*r.measurements, m) }

// unclocked does part of a verification, whose time is told apart from that of
// the measurement.
func (r *run) unclocked(f func() error) error {
	began := time.Now()
	defer func() { *r.verifying += time.Since(began).Seconds() }()
	return f()
}

// check lets the owner of the destination verify what arrived, and looks for
// the reason if it is wrong. It tells whether the data is right.
func (r *run) check(p path, phase Phase) (ok bool, err error) {
	err = r.unclocked(func() error {
		m := comparison{want: p.from.holds, previous: p.to.holds, size: p.size}
		ok, err = r.judge(p, phase, m)
		return err
	})
	return ok, err
}

func (r *run) judge(p path, phase Phase, m comparison) (bool, error) {
	found, err := p.to.inspect(m, p.parts(r.settings.Seed), p.windows(r.settings.Seed))
	if err != nil {
		return false, err
	}
	ok := true
	first := len(*r.checks)
	for _, c := range found {
		c.Direction, c.Method, c.Phase = p.direction, p.method, phase
		*r.checks = append(*r.checks, c)
		ok = ok && !c.Failed()
	}
	if ok {
		p.to.holds = m.want
		return true, nil
	}
	// This step makes the finding known before more is tried on a bad path.
	r.begin(p.String() + ": look for the reason of the wrong data")
	damaged, mirror, err := r.diagnose(p, m)
	for i := range (*r.checks)[first:] {
		if c := &(*r.checks)[first+i]; c.Failed() {
			c.SourceDamaged, c.Mirror = damaged, mirror
		}
	}
	return false, err
}

// diagnose finds out whether the source was damaged and whether the engine
// reads back what the owner does not have. It spoils the source buffer.
func (r *run) diagnose(p path, m comparison) (damaged, mirror bool, err error) {
	wrong := func() (bool, error) {
		found, err := p.from.inspect(m, p.parts(r.settings.Seed), p.windows(r.settings.Seed))
		for _, c := range found {
			if c.Failed() {
				return true, err
			}
		}
		return false, err
	}
	if damaged, err = wrong(); err != nil || damaged || p.direction != Write {
		return damaged, false, err
	}
	if err := p.from.poison(p.parts(r.settings.Seed)); err != nil {
		return false, false, err
	}
	back := path{Read, p.method, p.engine, p.to, p.from, p.size}
	if err := back.issue(p.engine.stream, 1); err != nil {
		return false, false, err
	}
	if err := p.engine.wait(); err != nil {
		return false, false, err
	}
	lost, err := wrong()
	return false, !lost, err
}

// control verifies that a party gives back what it was given, without which it
// can't tell whether a peer's data arrived.
func (r *run) control(b *buffer) error {
	m := comparison{want: newPattern(r.settings.Seed, b.owner.bdf, b.owner.bdf, Local, CE, Before), size: b.size}
	ws := windows(b.size, false, r.settings.Seed)
	if err := b.put(m.want, ws); err != nil {
		return err
	}
	found, err := b.inspect(m, ws, ws)
	if err != nil {
		return err
	}
	for _, c := range found {
		if c.Failed() {
			return fmt.Errorf("GPU %s does not give back what was written to it: %d of %d words are wrong", b.owner.bdf, c.Wrong, c.Bytes/wordSize)
		}
	}
	return nil
}

// ProbeDevice measures the GPU at bdf by itself: copies from and to the host and
// within the GPU, verified, and the latency of its own memory. It calls progress
// with what is known by then at the start of each step, and whenever the GPU has
// finished something; a GPU that hangs shows by the silence. When ctx ends first,
// the GPU may still be busy and what was allocated stays so: end the process.
func ProbeDevice(ctx context.Context, drv cuda.Driver, bdf string, set Settings, progress func(Device)) Device {
	d := Device{BDF: bdf, Measurements: []Measurement{}, Checks: []Check{}}
	r := newRun(ctx, set)
	r.measurements, r.checks = &d.Measurements, &d.Checks
	r.beat = func() { progress(d) }
	r.begin = func(step string) {
		d.Step = step
		progress(d)
	}
	if err := r.finish(r.device(drv, bdf)); err != nil {
		d.Problem = NewProblem(Setup, err)
	} else {
		d.Step = ""
	}
	d.Verdict, d.Reason = JudgeDevice(d)
	return d
}

func (r *run) device(drv cuda.Driver, bdf string) error {
	r.begin("prepare " + bdf)
	dev, err := find(drv, bdf)
	if err != nil {
		return err
	}
	p, err := r.join(dev, bdf)
	if err != nil {
		return err
	}
	first, err := p.buffer(r.settings.Size)
	if err != nil {
		return err
	}
	second, err := p.buffer(r.settings.Size)
	if err != nil {
		return err
	}
	host, err := p.hostBuffer(r.settings.Size)
	if err != nil {
		return err
	}
	if err := r.control(first); err != nil {
		return err
	}
	for _, m := range []Method{CE, SM} {
		for _, w := range []path{
			{H2D, m, p, host, first, r.settings.Size},
			{D2H, m, p, first, host, r.settings.Size},
			{Local, m, p, first, second, r.settings.Size},
		} {
			if _, err := r.take(w); err != nil {
				return err
			}
		}
	}
	if !r.settings.Latency {
		return nil
	}
	if err := r.loadLatency(H2D, p, host); err != nil {
		return err
	}
	return r.loadLatency(Local, p, second)
}

// ProbePair measures what the GPU at initiator can do with the memory of the
// GPU at peer, whose BAR1 has bar1 bytes if that is known, or zero. Its use of ctx
// and progress is that of [ProbeDevice].
func ProbePair(ctx context.Context, drv cuda.Driver, initiator, peer string, bar1 int64, set Settings, progress func(Pair)) Pair {
	p := Pair{Initiator: initiator, Peer: peer, Measurements: []Measurement{}, Checks: []Check{}}
	began := time.Now()
	r := newRun(ctx, set)
	r.measurements, r.checks, r.verifying = &p.Measurements, &p.Checks, &p.VerifySeconds
	r.beat = func() { progress(p) }
	r.begin = func(step string) {
		p.Step = step
		progress(p)
	}
	probe := &pairProbe{run: r, pair: &p, bar1: bar1, kind: Setup}
	if err := r.finish(probe.all(drv)); err != nil {
		p.Problem = NewProblem(probe.kind, err)
	} else {
		p.Step = ""
	}
	p.Seconds = time.Since(began).Seconds()
	p.Ways, p.Verdict, p.Reason = JudgePair(p, set)
	return p
}

// NewProblem describes err, which has the meaning kind unless it says otherwise
// itself.
func NewProblem(kind ProblemKind, err error) *Problem {
	p := &Problem{Kind: kind, Text: err.Error()}
	if e, ok := errors.AsType[*cuda.Error](err); ok {
		p.Call, p.Code, p.Name = e.Call, e.Code, e.Name
		if advice := e.Advice(); advice != "" {
			p.Text += "; " + advice
		}
		if known, ok := problemKinds[e.Code]; ok && kind == Setup && (known != NoGPU || e.Call == "cuInit") {
			p.Kind = known
		}
	}
	if _, ok := errors.AsType[*cuda.LibraryError](err); ok {
		p.Kind = NoLibrary
	}
	if errors.Is(err, context.DeadlineExceeded) {
		p.Kind = Timeout
	}
	if errors.Is(err, context.Canceled) {
		p.Kind = Interrupted
	}
	return p
}

// problemKinds are what errors of the driver mean before a link was reached.
var problemKinds = map[int]ProblemKind{
	cuda.NoDevice:          NoGPU,
	cuda.OperatingSystem:   NoGPU,
	cuda.VersionMismatch:   Mismatched,
	cuda.DeviceUnavailable: Busy,
	cuda.OutOfMemory:       NoMemory,
}
