// Package fake implements [cuda.Driver] with GPUs that exist only in memory.
//
// Time is virtual: an operation takes its size divided by the speed of the
// link, and events show that time, so that tests of bandwidths are exact and
// quick. Data really moves, through the faults that a test asks for.
package fake

import (
	"fmt"
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
	Default Link

	mu      sync.Mutex
	next    cuda.Ptr
	memory  []*allocation
	mirrors map[mirror][]byte
	copies  map[Route]int // of each link, in both directions
}

// A GPU is one simulated GPU.
type GPU struct {
	Info     cuda.DeviceInfo
	HostGBps float64 // to and from pinned host memory
	Copy     float64 // GB/s within its memory

	Retain *cuda.Error // if set, the context can't be had
	Local  Fault       // of copies within its memory and to and from the host
}

// A Route is an ordered pair of indexes into GPUs.
type Route struct{ Initiator, Peer int }

// A Link is how the engines of one GPU reach the memory of another.
type Link struct {
	GBps       float64
	StagedGBps float64 // with peer access off
	Attributes cuda.P2PAttributes

	NoAccess bool        // cuDeviceCanAccessPeer says no
	Enable   *cuda.Error // what cuCtxEnablePeerAccess fails with
	Mirror   bool        // the mapping leads to private memory instead of the peer's
	Write    Fault
	Read     Fault
}

// A Fault is what goes wrong with the data of a copy.
type Fault struct {
	Kind  Kind
	After int // copies on the link that go well first
	// Offset and Size bound the damage within the copied range; Size zero
	// means all of it.
	Offset, Size int64
	Shift        int64       // for Shift
	Err          *cuda.Error // for Fail
}

// Kind is the kind of a [Fault].
type Kind int

// The kinds of faults.
const (
	None  Kind = iota
	Drop       // bytes are not written
	Clear      // zeros arrive
	Ones       // all bits set arrive, as from an absent PCIe device
	Flip       // one bit of each 4 KiB is flipped
	Shift      // bytes come from Shift further on in the source
	Fail       // the copy fails with Err
	Hang       // the copy never ends
)

type allocation struct {
	base  cuda.Ptr
	data  []byte
	owner int // index of the GPU, or host
}

const host = -1

type mirror struct {
	initiator int
	of        *allocation
}

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

// allocate returns n bytes owned by the GPU owner, or host. Addresses leave a
// gap behind each allocation so that an overrun is found.
func (s *System) allocate(owner int, n int64) *allocation {
	s.mu.Lock()
	defer s.mu.Unlock()
	const gap = 1 << 20
	s.next += gap
	a := &allocation{base: s.next, data: make([]byte, n), owner: owner}
	s.next += cuda.Ptr(n)
	s.memory = append(s.memory, a)
	return a
}

func (s *System) free(p cuda.Ptr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.memory, func(a *allocation) bool { return a.base == p })
	if i < 0 {
		return &cuda.Error{Call: "cuMemFree_v2", Code: cuda.InvalidValue, Name: "CUDA_ERROR_INVALID_VALUE", Text: "invalid argument"}
	}
	s.memory = slices.Delete(s.memory, i, i+1)
	return nil
}

// Allocations returns the number of allocations not yet freed, host memory
// included.
func (s *System) Allocations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.memory)
}

func (s *System) find(p cuda.Ptr, n int64) (*allocation, error) {
	for _, a := range s.memory {
		if p >= a.base && p+cuda.Ptr(n) <= a.base+cuda.Ptr(len(a.data)) {
			return a, nil
		}
	}
	return nil, fmt.Errorf("fake: no allocation holds %d bytes at %#x", n, p)
}

type gpu struct {
	sys   *System
	index int
}

func (g *gpu) Info() (cuda.DeviceInfo, error) { return g.sys.GPUs[g.index].Info, nil }

func (g *gpu) CanAccessPeer(peer cuda.Device) (bool, error) {
	return !g.sys.link(Route{g.index, peer.(*gpu).index}).NoAccess, nil
}

func (g *gpu) P2PAttributes(peer cuda.Device) (cuda.P2PAttributes, error) {
	return g.sys.link(Route{g.index, peer.(*gpu).index}).Attributes, nil
}

func (g *gpu) Attribute(a cuda.Attribute) (int, error) { return 0, nil }

func (g *gpu) Retain() (cuda.Context, error) {
	if err := g.sys.GPUs[g.index].Retain; err != nil {
		return nil, err
	}
	return &ctx{gpu: g, peers: map[int]bool{}}, nil
}

type ctx struct {
	*gpu
	peers  map[int]bool
	broken *cuda.Error // sticky, as errors of execution are
	used   int64       // bytes of device memory
}

func (c *ctx) EnablePeer(peer cuda.Context) error {
	p := peer.(*ctx).index
	if err := c.sys.link(Route{c.index, p}).Enable; err != nil {
		return err
	}
	c.peers[p] = true
	return nil
}

func (c *ctx) DisablePeer(peer cuda.Context) error {
	p := peer.(*ctx).index
	if !c.peers[p] {
		return &cuda.Error{Call: "cuCtxDisablePeerAccess", Code: cuda.PeerNotEnabled, Name: "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", Text: "peer access has not been enabled"}
	}
	delete(c.peers, p)
	return nil
}

func (c *ctx) MemInfo() (free, total int64, err error) {
	total = c.sys.GPUs[c.index].Info.Memory
	return total - c.used, total, nil
}

func (c *ctx) LoadModule(ptx string) (cuda.Module, error) { return module{}, nil }

type module struct{}

func (module) Function(name string) (cuda.Function, error) { return function(name), nil }
func (module) Unload() error                               { return nil }

type function string

func (f function) Name() string { return string(f) }

func (s *stream) Launch(f cuda.Function, blocks, threads int, params ...uint64) error {
	return fmt.Errorf("fake: kernel %s is not simulated", f.Name())
}

func (s *stream) Wait(e cuda.Event) error {
	s.clock = max(s.clock, e.(*event).at)
	return nil
}

func (c *ctx) Alloc(n int64) (cuda.Ptr, error) {
	if c.used+n > c.sys.GPUs[c.index].Info.Memory {
		return 0, &cuda.Error{Call: "cuMemAlloc_v2", Code: cuda.OutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"}
	}
	c.used += n
	return c.sys.allocate(c.index, n).base, nil
}

func (c *ctx) Free(p cuda.Ptr) error { return c.sys.free(p) }

func (c *ctx) AllocHost(n int64) (cuda.HostMemory, error) {
	a := c.sys.allocate(host, n)
	return cuda.HostMemory{Ptr: a.base, Bytes: a.data}, nil
}

func (c *ctx) FreeHost(h cuda.HostMemory) error { return c.sys.free(h.Ptr) }

func (c *ctx) NewStream() (cuda.Stream, error) { return &stream{ctx: c}, nil }

func (c *ctx) NewEvent() (cuda.Event, error) { return new(event), nil }

func (c *ctx) Release() error { return nil }

type event struct{ at time.Duration }

func (e *event) Since(start cuda.Event) (time.Duration, error) {
	return e.at - start.(*event).at, nil
}

func (e *event) Close() error { return nil }

type stream struct {
	ctx   *ctx
	clock time.Duration
	hung  bool
}

func (s *stream) Record(e cuda.Event) error {
	e.(*event).at = s.clock
	return nil
}

func (s *stream) Done() (bool, error) {
	if s.ctx.broken != nil {
		return false, s.ctx.broken
	}
	return !s.hung, nil
}

func (s *stream) Close() error { return nil }
