// Package fake implements [cuda.Driver] with GPUs that exist only in memory.
//
// Time is virtual: copies and kernels share the links between the GPUs, and
// events show the time that results, so that tests of bandwidths are exact and
// quick. Data really moves, through the faults that a test asks for. Kernels of
// package kernels are known by name and do in Go what the PTX does.
//
// A stream's work is done when the host asks whether it is done. Time also passes
// while the host asks in vain, 10 ms each time, so that a kernel that waits with a
// timeout ends.
package fake

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"mkp2pimg/internal/cuda"
)

// A System is a driver with its GPUs. Fill in the exported fields before the
// first call; GPUs and links keep their identity by index in GPUs.
type System struct {
	CUDA  int // Version, 1000*major + 10*minor
	GPUs  []GPU
	Links map[Route]Link // pairs that differ from Default
	// Default is the link of each ordered pair not in Links.
	Default  Link
	Collapse Collapse

	mu       sync.Mutex
	next     cuda.Ptr
	memory   []*allocation
	copies   map[Route]int // of each link, in both directions
	contexts map[int]*ctx
	broken   map[int]*cuda.Error // by GPU: errors of execution stay
	clock
}

// A GPU is one simulated GPU.
type GPU struct {
	Info       cuda.DeviceInfo
	Attributes map[cuda.Attribute]int // those that Info does not tell
	HostGBps   float64                // to and from pinned host memory
	Copy       float64                // GB/s within its memory
	Port       float64                // GB/s in and out, of all copies together; 0: no limit
	Latency    time.Duration          // of a load from its own memory

	// Switch is the PCIe switch above the GPU, if not 0, and Root the root port
	// above that, for Collapse.
	Switch, Root int

	Retain *cuda.Error // if set, the context can't be had
	Load   *cuda.Error // if set, no module can be loaded
	Local  Fault       // of copies within its memory and to and from the host
}

// A Route is an ordered pair of indexes into GPUs.
type Route struct{ Initiator, Peer int }

// A Link is how the engines and kernels of one GPU reach the memory of another.
type Link struct {
	GBps       float64
	ReadGBps   float64 // if not 0, for reads
	SMGBps     float64 // if not 0, for kernels
	StagedGBps float64 // with peer access off
	Latency    time.Duration
	Attributes cuda.P2PAttributes
	// From Throttle of time on, the link does only ThrottledGBps.
	Throttle      time.Duration
	ThrottledGBps float64

	NoAccess bool        // cuDeviceCanAccessPeer says no
	Enable   *cuda.Error // what cuCtxEnablePeerAccess fails with
	Mirror   bool        // the mapping leads to private memory instead of the peer's
	Offset   int64       // the mapping is that many bytes too far
	Alias    int64       // if not 0, the mapping repeats itself after that many bytes
	Write    Fault
	Read     Fault

	LoseFlag  int  // if not 0, the number of the flag that is written in vain
	FlagFirst bool // flags overtake the data before them
	Atomics   AtomicKind
}

// AtomicKind is what becomes of atomic operations on a peer's memory.
type AtomicKind int

// The kinds of atomic operations.
const (
	AtomicsWork AtomicKind = iota
	AtomicsFail            // the kernel ends with an error
	AtomicsLost            // every other one has no effect, and nothing tells
)

// Collapse is what happens to writes when Sources GPUs or more under one switch
// write to GPUs under two or more other root ports at once: each gets no more
// than GBps. Zero Sources: nothing.
type Collapse struct {
	Sources int
	GBps    float64
}

// A Fault is what goes wrong with the data of a copy.
type Fault struct {
	Kind  Kind
	Only  Engine // which accesses it befalls
	After int    // copies on the link that go well first
	// Offset and Size bound the damage within the copied range; Size zero
	// means all of it. Single words, such as flags, suffer only from faults
	// without Size.
	Offset, Size int64
	Shift        int64       // for Shift
	Err          *cuda.Error // for Fail
}

// Engine is what moves data.
type Engine int

// The engines.
const (
	Any Engine = iota
	CE         // copy engines
	SM         // kernels
)

// Kind is the kind of a [Fault].
type Kind int

// The kinds of faults.
const (
	None  Kind = iota
	Drop       // writes are lost; reads show what was there at the first read
	Clear      // zeros arrive
	Ones       // all bits set arrive, as from an absent PCIe device
	Flip       // one bit of each 4 KiB is flipped
	Shift      // bytes come from Shift further on in the source
	Fail       // the copy fails with Err
	Hang       // the copy never ends
)

// Version implements [cuda.Driver].
func (s *System) Version() (int, error) { return s.CUDA, nil }

// Devices implements [cuda.Driver].
func (s *System) Devices() ([]cuda.Device, error) {
	var devices []cuda.Device
	for i := range s.GPUs {
		devices = append(devices, &gpu{s, i})
	}
	return devices, nil
}

func (s *System) link(r Route) Link {
	if l, ok := s.Links[r]; ok {
		return l
	}
	return s.Default
}

// Allocations returns the number of allocations not yet freed, host memory
// included.
func (s *System) Allocations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.memory)
}

type gpu struct {
	sys   *System
	index int
}

func (g *gpu) Info() (cuda.DeviceInfo, error) { return g.sys.GPUs[g.index].Info, nil }

func (g *gpu) Attribute(a cuda.Attribute) (int, error) {
	info := g.sys.GPUs[g.index].Info
	switch a {
	case cuda.SMCount:
		return info.SMs, nil
	case cuda.CopyEngineCount:
		return info.CopyEngines, nil
	case cuda.ComputeMajor:
		return info.ComputeMajor, nil
	case cuda.ComputeMinor:
		return info.ComputeMinor, nil
	}
	return g.sys.GPUs[g.index].Attributes[a], nil
}

func (g *gpu) CanAccessPeer(peer cuda.Device) (bool, error) {
	return !g.sys.link(Route{g.index, peer.(*gpu).index}).NoAccess, nil
}

func (g *gpu) P2PAttributes(peer cuda.Device) (cuda.P2PAttributes, error) {
	return g.sys.link(Route{g.index, peer.(*gpu).index}).Attributes, nil
}

func (g *gpu) Retain() (cuda.Context, error) {
	if err := g.sys.GPUs[g.index].Retain; err != nil {
		return nil, err
	}
	g.sys.mu.Lock()
	defer g.sys.mu.Unlock()
	c := g.sys.contexts[g.index]
	if c == nil {
		if g.sys.contexts == nil {
			g.sys.contexts = map[int]*ctx{}
		}
		c = &ctx{gpu: g, peers: map[int]bool{}}
		g.sys.contexts[g.index] = c
	}
	c.users++
	return c, nil
}

// A ctx is the primary context of a GPU.
type ctx struct {
	*gpu
	users int
	peers map[int]bool
	used  int64 // bytes of device memory
}

// lock locks the system for a call, unless an error of execution broke the
// context. The caller unlocks it if err is nil.
func (c *ctx) lock() error {
	c.sys.mu.Lock()
	if err := c.sys.broken[c.index]; err != nil {
		c.sys.mu.Unlock()
		return err
	}
	return nil
}

func failure(call string, code int, name, text string) *cuda.Error {
	return &cuda.Error{Call: call, Code: code, Name: "CUDA_ERROR_" + name, Text: text}
}

func (c *ctx) EnablePeer(peer cuda.Context) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.sys.mu.Unlock()
	p := peer.(*ctx).index
	if err := c.sys.link(Route{c.index, p}).Enable; err != nil {
		return err
	}
	if c.peers[p] {
		return failure("cuCtxEnablePeerAccess", cuda.PeerEnabled, "PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled")
	}
	c.peers[p] = true
	return nil
}

func (c *ctx) DisablePeer(peer cuda.Context) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.sys.mu.Unlock()
	p := peer.(*ctx).index
	if !c.peers[p] {
		return failure("cuCtxDisablePeerAccess", cuda.PeerNotEnabled, "PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled")
	}
	delete(c.peers, p)
	return nil
}

func (c *ctx) MemInfo() (free, total int64, err error) {
	if err := c.lock(); err != nil {
		return 0, 0, err
	}
	defer c.sys.mu.Unlock()
	total = c.sys.GPUs[c.index].Info.Memory
	return total - c.used, total, nil
}

func (c *ctx) Alloc(n int64) (cuda.Ptr, error) {
	if err := c.lock(); err != nil {
		return 0, err
	}
	defer c.sys.mu.Unlock()
	if c.used+n > c.sys.GPUs[c.index].Info.Memory {
		return 0, failure("cuMemAlloc_v2", cuda.OutOfMemory, "OUT_OF_MEMORY", "out of memory")
	}
	c.used += n
	return c.sys.allocate(c.index, n).base, nil
}

func (c *ctx) Free(p cuda.Ptr) error {
	if err := c.lock(); err != nil {
		return err
	}
	defer c.sys.mu.Unlock()
	n, err := c.sys.free(p)
	c.used -= n
	return err
}

func (c *ctx) AllocHost(n int64) (cuda.HostMemory, error) {
	if err := c.lock(); err != nil {
		return cuda.HostMemory{}, err
	}
	defer c.sys.mu.Unlock()
	a := c.sys.allocate(host, n)
	return cuda.HostMemory{Ptr: a.base, Bytes: a.data}, nil
}

func (c *ctx) FreeHost(h cuda.HostMemory) error {
	c.sys.mu.Lock()
	defer c.sys.mu.Unlock()
	_, err := c.sys.free(h.Ptr)
	return err
}

func (c *ctx) NewStream() (cuda.Stream, error) {
	if err := c.lock(); err != nil {
		return nil, err
	}
	defer c.sys.mu.Unlock()
	s := &stream{ctx: c}
	c.sys.streams = append(c.sys.streams, s)
	return s, nil
}

func (c *ctx) NewEvent() (cuda.Event, error) {
	if err := c.lock(); err != nil {
		return nil, err
	}
	defer c.sys.mu.Unlock()
	return &event{sys: c.sys}, nil
}

func (c *ctx) LoadModule(string) (cuda.Module, error) {
	if err := c.sys.GPUs[c.index].Load; err != nil {
		return nil, err
	}
	return module{}, nil
}

func (c *ctx) Release() error {
	c.sys.mu.Lock()
	defer c.sys.mu.Unlock()
	if c.users--; c.users == 0 {
		delete(c.sys.contexts, c.index)
	}
	return nil
}

type module struct{}

func (module) Function(name string) (cuda.Function, error) {
	if programs[name] == nil {
		return nil, fmt.Errorf("kernel %s: %w", name, failure("cuModuleGetFunction", cuda.NotFound, "NOT_FOUND", "named symbol not found"))
	}
	return function(name), nil
}

func (module) Unload() error { return nil }

type function string

func (f function) Name() string { return string(f) }

type event struct {
	sys              *System
	recorded, passed int // how often
	at               float64
}

func (e *event) Since(start cuda.Event) (time.Duration, error) {
	e.sys.mu.Lock()
	defer e.sys.mu.Unlock()
	b := start.(*event)
	for _, x := range []*event{b, e} {
		if x.recorded == 0 {
			return 0, failure("cuEventElapsedTime", 400, "INVALID_HANDLE", "invalid resource handle")
		}
		if x.passed < x.recorded {
			return 0, failure("cuEventElapsedTime", cuda.NotReady, "NOT_READY", "device not ready")
		}
	}
	return time.Duration(e.at - b.at), nil
}

func (e *event) Close() error { return nil }

// A stream is a queue of programs.
type stream struct {
	ctx   *ctx
	queue []program
	thread
}

func (s *stream) submit(p program) error {
	if err := s.ctx.lock(); err != nil {
		return err
	}
	defer s.ctx.sys.mu.Unlock()
	s.queue = append(s.queue, p)
	return nil
}

func (s *stream) Copy(dst, src cuda.Ptr, n int64) error {
	return s.submit(func(t *thread) { s.transfer(t, dst, src, n, 1, CE) })
}

// CopyPeer returns, where peer access is off, only when the copy has ended, as seen
// with driver 580: behind a stream that is held back that is never.
func (s *stream) CopyPeer(dst cuda.Ptr, dstCtx cuda.Context, src cuda.Ptr, srcCtx cuda.Context, n int64) error {
	d, p := dstCtx.(*ctx).index, srcCtx.(*ctx).index
	if d == p || s.ctx.peers[d] || s.ctx.peers[p] {
		return s.Copy(dst, src, n)
	}
	err := s.submit(func(t *thread) { s.staged(t, Route{s.ctx.index, d + p - s.ctx.index}, dst, src, n) })
	if err != nil {
		return err
	}
	if err := s.ctx.lock(); err != nil {
		return err
	}
	defer s.ctx.sys.mu.Unlock()
	s.ctx.sys.run()
	for s.busy() && s.ctx.sys.broken[s.ctx.index] == nil && !s.stuck() {
		s.ctx.sys.idle()
	}
	return nil
}

// stuck tells whether the stream waits for what no time brings. Only a test that
// expects its end by other means meets it.
func (s *stream) stuck() bool {
	return s.running() && math.IsInf(s.wait.deadline, 1) && len(s.ctx.sys.flows) == 0
}

func (s *stream) Fill(dst cuda.Ptr, word uint32, n int64) error {
	return s.submit(func(t *thread) { s.fill(t, dst, word, n) })
}

func (s *stream) Launch(f cuda.Function, blocks, threads int, params ...uint64) error {
	run, params := programs[f.Name()], slices.Clone(params)
	return s.submit(func(t *thread) { run(s, t, grid{blocks, threads}, params) })
}

func (s *stream) Record(e cuda.Event) error {
	m := e.(*event)
	if err := s.ctx.lock(); err != nil {
		return err
	}
	m.recorded++
	s.ctx.sys.mu.Unlock()
	return s.submit(func(*thread) {
		m.passed++
		m.at = s.ctx.sys.now
	})
}

func (s *stream) Wait(e cuda.Event) error {
	m := e.(*event)
	if err := s.ctx.lock(); err != nil {
		return err
	}
	want := m.recorded
	s.ctx.sys.mu.Unlock()
	return s.submit(func(t *thread) { t.until(func() bool { return m.passed >= want }, forever) })
}

func (s *stream) Done() (bool, error) {
	if err := s.ctx.lock(); err != nil {
		return false, err
	}
	defer s.ctx.sys.mu.Unlock()
	s.ctx.sys.run()
	if s.busy() {
		s.ctx.sys.idle()
	}
	if err := s.ctx.sys.broken[s.ctx.index]; err != nil {
		return false, err
	}
	return !s.busy(), nil
}

func (s *stream) busy() bool { return s.running() || len(s.queue) > 0 }

func (s *stream) Close() error {
	s.ctx.sys.mu.Lock()
	defer s.ctx.sys.mu.Unlock()
	s.ctx.sys.streams = slices.DeleteFunc(s.ctx.sys.streams, func(x *stream) bool { return x == s })
	return nil
}
