package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
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

// A run is the state common to the measurements of a device and of a pair.
type run struct {
	*session
	windows []Window
	begin   func(step string) // names the step about to start

	measurements *[]Measurement
	checks       *[]Check
}

func newRun(ctx context.Context, set Settings) run {
	return run{
		session: &session{context: ctx, settings: set},
		windows: windows(set.Size, set.Full, set.Seed),
	}
}

// A path is a way from one buffer to another.
type path struct {
	direction Direction
	engine    *party // whose engine copies
	src, dst  *party // the owners
	from, to  cuda.Ptr
}

func (p path) pattern(seed uint64, phase Phase) pattern {
	return newPattern(seed, p.src.bdf, p.dst.bdf, p.direction, phase)
}

// take verifies a path, measures its bandwidth and verifies it again. It skips
// the bandwidth if the first check finds wrong data: where the data went is
// unknown, and more of it could do more damage. The pattern previous is the one
// that dst's memory may still show if it is stale; take returns the next one.
func (r run) take(p path, previous pattern) (pattern, error) {
	data := p.pattern(r.settings.Seed, Before)
	r.begin(fmt.Sprintf("%s: verify one copy", p.direction))
	if err := p.src.put(p.from, data, r.windows); err != nil {
		return data, err
	}
	if err := p.dst.poison(p.to); err != nil {
		return data, err
	}
	if err := p.engine.copy(p.to, p.from); err != nil {
		return data, err
	}
	ok, err := r.check(p, Before, data, previous)
	if err != nil || !ok {
		return data, err
	}

	r.begin(fmt.Sprintf("%s: bandwidth", p.direction))
	previous, data = data, p.pattern(r.settings.Seed, After)
	if err := p.src.put(p.from, data, r.windows); err != nil {
		return data, err
	}
	m, err := p.engine.sample(p.direction, CE, func() error {
		return p.engine.stream.Copy(p.to, p.from, r.settings.Size)
	})
	if err != nil {
		return data, err
	}
	*r.measurements = append(*r.measurements, m)
	r.begin(fmt.Sprintf("%s: verify after load", p.direction))
	_, err = r.check(p, After, data, previous)
	return data, err
}

// check lets the owner of the destination verify what arrived, and looks for
// the reason if it is wrong. It tells whether the data is right.
func (r run) check(p path, phase Phase, data, previous pattern) (bool, error) {
	c := Check{Direction: p.direction, Method: CE, Phase: phase, Reader: ByCE, Windows: r.windows}
	m := comparison{want: data, previous: previous, size: r.settings.Size}
	if err := p.dst.inspect(p.to, m, r.windows, &c); err != nil {
		return false, err
	}
	*r.checks = append(*r.checks, c)
	if c.Wrong == 0 {
		return true, nil
	}
	// This step makes the finding known before more is tried on a bad path.
	r.begin(fmt.Sprintf("%s: look for the reason of the wrong data", p.direction))
	return false, r.diagnose(p, m, &(*r.checks)[len(*r.checks)-1])
}

// diagnose finds out whether the source was damaged and whether the engine
// reads back what the owner does not have. It spoils the source buffer.
func (r run) diagnose(p path, m comparison, c *Check) error {
	var source Check
	if err := p.src.inspect(p.from, m, r.windows, &source); err != nil {
		return err
	}
	c.SourceDamaged = source.Wrong > 0
	if p.direction != Write || c.SourceDamaged {
		return nil
	}
	if err := p.src.poison(p.from); err != nil {
		return err
	}
	if err := p.engine.copy(p.from, p.to); err != nil {
		return err
	}
	var back Check
	if err := p.src.inspect(p.from, m, r.windows, &back); err != nil {
		return err
	}
	c.Mirror = back.Wrong == 0
	return nil
}

// ProbeDevice measures the GPU at bdf by itself: H2D, D2H and a verified local
// copy. It calls progress with what is known by then at the start of each step,
// and whenever the GPU has finished something; a GPU that hangs shows by the
// silence. When ctx ends first, the GPU may still be busy and what was allocated
// stays so: end the process.
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

func (r run) device(drv cuda.Driver, bdf string) error {
	r.begin("prepare " + bdf)
	dev, err := find(drv, bdf)
	if err != nil {
		return err
	}
	p, err := r.join(dev, bdf)
	if err != nil {
		return err
	}
	second, err := p.alloc()
	if err != nil {
		return err
	}
	host, err := p.ctx.AllocHost(r.settings.Size)
	if err != nil {
		return fmt.Errorf("GPU %s: %d bytes of pinned host memory: %w", bdf, r.settings.Size, err)
	}
	r.defers(func() error { return p.ctx.FreeHost(host) })

	for _, way := range []struct {
		direction Direction
		dst, src  cuda.Ptr
	}{{H2D, p.buffer, host.Ptr}, {D2H, host.Ptr, p.buffer}} {
		r.begin(fmt.Sprintf("%s: bandwidth", way.direction))
		m, err := p.sample(way.direction, CE, func() error {
			return p.stream.Copy(way.dst, way.src, r.settings.Size)
		})
		if err != nil {
			return err
		}
		*r.measurements = append(*r.measurements, m)
	}
	_, err = r.take(path{Local, p, p, p, p.buffer, second}, pattern{})
	return err
}

// ProbePair measures what the GPU at initiator can do with the memory of the
// GPU at peer. Its use of ctx and progress is that of [ProbeDevice].
func ProbePair(ctx context.Context, drv cuda.Driver, initiator, peer string, set Settings, progress func(Pair)) Pair {
	p := Pair{Initiator: initiator, Peer: peer, Measurements: []Measurement{}, Checks: []Check{}}
	began := time.Now()
	r := newRun(ctx, set)
	r.measurements, r.checks = &p.Measurements, &p.Checks
	r.beat = func() { progress(p) }
	r.begin = func(step string) {
		p.Step = step
		progress(p)
	}
	// Until peer access is on, a failure says nothing about the link.
	kind := Setup
	if err := r.finish(r.pair(drv, &p, &kind)); err != nil {
		p.Problem = NewProblem(kind, err)
	} else {
		p.Step = ""
	}
	p.Seconds = time.Since(began).Seconds()
	p.Verdict, p.Reason = JudgePair(p, set)
	return p
}

func (r run) pair(drv cuda.Driver, p *Pair, kind *ProblemKind) error {
	r.begin("prepare " + p.Initiator)
	dev, err := find(drv, p.Initiator)
	if err != nil {
		return err
	}
	peerDev, err := find(drv, p.Peer)
	if err != nil {
		return err
	}
	if p.CanAccess, err = dev.CanAccessPeer(peerDev); err != nil {
		return err
	}
	if p.Attributes, err = dev.P2PAttributes(peerDev); err != nil {
		return err
	}
	back, err := peerDev.CanAccessPeer(dev)
	if err != nil {
		return err
	}
	initiator, err := r.join(dev, p.Initiator)
	if err != nil {
		return err
	}
	r.begin("prepare " + p.Peer)
	peer, err := r.join(peerDev, p.Peer)
	if err != nil {
		return err
	}
	for _, own := range []*party{initiator, peer} {
		if err := r.control(own); err != nil {
			return err
		}
	}
	if r.settings.Staged {
		if err := r.staged(initiator, peer); err != nil {
			return err
		}
	}

	r.begin("enable peer access")
	if !p.CanAccess {
		*kind = Refused
		return errors.New("the driver does not allow this GPU to access its peer (cuDeviceCanAccessPeer)")
	}
	*kind = Refused
	if err := initiator.ctx.EnablePeer(peer.ctx); err != nil {
		return err
	}
	if back {
		if err := peer.ctx.EnablePeer(initiator.ctx); err != nil {
			return fmt.Errorf("from the peer to the initiator: %w", err)
		}
	}
	*kind = Failed
	last, err := r.take(path{Write, initiator, initiator, peer, initiator.buffer, peer.buffer}, pattern{})
	if err != nil {
		return err
	}
	_, err = r.take(path{Read, initiator, peer, initiator, peer.buffer, initiator.buffer}, last)
	return err
}

// control verifies that a party gives back what the host wrote to it, without
// which it can't tell whether a peer's data arrived.
func (r run) control(p *party) error {
	data := newPattern(r.settings.Seed, p.bdf, p.bdf, H2D, Before)
	if err := p.put(p.buffer, data, r.windows); err != nil {
		return err
	}
	var c Check
	if err := p.inspect(p.buffer, comparison{want: data, size: r.settings.Size}, r.windows, &c); err != nil {
		return err
	}
	if c.Wrong > 0 {
		return fmt.Errorf("GPU %s does not give back what the host wrote to it: %d of %d words are wrong", p.bdf, c.Wrong, c.Bytes/wordSize)
	}
	return nil
}

// staged measures the copy in direction Write while peer access is off.
func (r run) staged(initiator, peer *party) error {
	r.begin("write: bandwidth through host memory")
	m, err := initiator.sample(Write, Staged, func() error {
		return initiator.stream.CopyPeer(peer.buffer, peer.ctx, initiator.buffer, initiator.ctx, r.settings.Size)
	})
	if err != nil {
		return err
	}
	*r.measurements = append(*r.measurements, m)
	return nil
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
		if e.Call == "cuInit" && (e.Code == cuda.NoDevice || e.Code == cuda.OperatingSystem) {
			p.Kind = NoGPU
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
