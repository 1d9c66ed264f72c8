// Package libcuda implements [cuda.Driver] with NVIDIA's libcuda.so.1, without
// cgo. A program that links it needs the dynamic loader of glibc, as libcuda
// does.
package libcuda

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"mkp2pimg/internal/cuda"
)

// soname is the name that every release of libcuda answers to.
const soname = "libcuda.so.1"

// candidates are the names tried by Open: first as the dynamic loader finds it
// (LD_LIBRARY_PATH, ld.so.cache, default directories), then where containers
// and distributions put it without telling the loader.
var candidates = []string{
	soname,
	"/usr/local/nvidia/lib64/" + soname,
	"/usr/lib/x86_64-linux-gnu/" + soname,
	"/usr/lib/x86_64-linux-gnu/nvidia/current/" + soname,
	"/usr/lib64/" + soname,
	"/run/opengl-driver/lib/" + soname,
	"/usr/lib/wsl/lib/" + soname,
}

// A Driver is libcuda, loaded and initialised.
type Driver struct {
	api *api
}

var _ cuda.Driver = (*Driver)(nil)

// Open loads libcuda and calls cuInit. It tries only the given names, or the
// usual ones if there are none. It returns a [*cuda.LibraryError] if none can be
// loaded and a [*cuda.Error] if cuInit fails.
func Open(names ...string) (*Driver, error) {
	if len(names) == 0 {
		names = candidates
	}
	missing := new(cuda.LibraryError)
	for _, name := range names {
		a, err := load(name)
		if err != nil {
			missing.Tried = append(missing.Tried, cuda.Attempt{Name: name, Err: err})
			continue
		}
		d := &Driver{api: a}
		if err := a.check("cuInit", a.Init(0)); err != nil {
			return nil, err
		}
		return d, nil
	}
	return nil, missing
}

// Path returns the file that libcuda was loaded from, symbolic links resolved.
// NVIDIA ends its name with the release of the user-space driver.
func (d *Driver) Path() (string, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(maps)) {
		if i := strings.IndexByte(line, '/'); i >= 0 && strings.Contains(line[i:], "/libcuda.so") {
			return strings.TrimSpace(line[i:]), nil
		}
	}
	return "", errors.New("/proc/self/maps: no libcuda.so in it")
}

// Version implements [cuda.Driver].
func (d *Driver) Version() (int, error) {
	var v int32
	err := d.api.check("cuDriverGetVersion", d.api.DriverGetVersion(&v))
	return int(v), err
}

// Devices implements [cuda.Driver].
func (d *Driver) Devices() ([]cuda.Device, error) {
	var n int32
	if err := d.api.check("cuDeviceGetCount", d.api.DeviceGetCount(&n)); err != nil {
		return nil, err
	}
	devices := make([]cuda.Device, n)
	for i := range n {
		gpu := &gpu{api: d.api}
		if err := d.api.check("cuDeviceGet", d.api.DeviceGet(&gpu.handle, i)); err != nil {
			return nil, fmt.Errorf("GPU %d: %w", i, err)
		}
		devices[i] = gpu
	}
	return devices, nil
}

// check turns the result of call into an error.
func (a *api) check(call string, r result) error {
	if r == 0 {
		return nil
	}
	e := &cuda.Error{Call: call, Code: int(r)}
	var s *byte
	if a.GetErrorName(r, &s) == 0 {
		e.Name = unix.BytePtrToString(s)
	}
	if a.GetErrorString(r, &s) == 0 {
		e.Text = unix.BytePtrToString(s)
	}
	return e
}

type gpu struct {
	api    *api
	handle device
}

// Values of CUdevice_P2PAttribute, from cuda.h.
const (
	p2pPerformanceRank = 1
	p2pAccess          = 2
	p2pNativeAtomics   = 3
	p2pArrayAccess     = 4
)

func (g *gpu) Info() (cuda.DeviceInfo, error) {
	a := g.api
	var info cuda.DeviceInfo
	var bdf [16]byte
	if err := a.check("cuDeviceGetPCIBusId", a.DeviceGetBusID(&bdf[0], int32(len(bdf)), g.handle)); err != nil {
		return info, err
	}
	info.BDF = strings.ToLower(text(bdf[:]))
	var name [256]byte
	if err := a.check("cuDeviceGetName", a.DeviceGetName(&name[0], int32(len(name)), g.handle)); err != nil {
		return info, err
	}
	info.Name = text(name[:])
	var id [16]byte
	if err := a.check("cuDeviceGetUuid_v2", a.DeviceGetUUID(&id, g.handle)); err != nil {
		return info, err
	}
	info.UUID = fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	var memory uint64
	if err := a.check("cuDeviceTotalMem_v2", a.DeviceTotalMem(&memory, g.handle)); err != nil {
		return info, err
	}
	info.Memory = int64(memory)
	for _, at := range []struct {
		dst *int
		id  cuda.Attribute
	}{
		{&info.SMs, cuda.SMCount},
		{&info.CopyEngines, cuda.CopyEngineCount},
		{&info.ComputeMajor, cuda.ComputeMajor},
		{&info.ComputeMinor, cuda.ComputeMinor},
	} {
		var err error
		if *at.dst, err = g.Attribute(at.id); err != nil {
			return info, err
		}
	}
	return info, nil
}

func (g *gpu) Attribute(id cuda.Attribute) (int, error) {
	var v int32
	if err := g.api.check("cuDeviceGetAttribute", g.api.DeviceAttribute(&v, int32(id), g.handle)); err != nil {
		return 0, fmt.Errorf("attribute %d: %w", id, err)
	}
	return int(v), nil
}

func (g *gpu) CanAccessPeer(peer cuda.Device) (bool, error) {
	var can int32
	err := g.api.check("cuDeviceCanAccessPeer", g.api.DeviceCanAccessPeer(&can, g.handle, peer.(*gpu).handle))
	return can != 0, err
}

func (g *gpu) P2PAttributes(peer cuda.Device) (cuda.P2PAttributes, error) {
	var v [p2pArrayAccess + 1]int32
	for id := int32(p2pPerformanceRank); id <= p2pArrayAccess; id++ {
		err := g.api.check("cuDeviceGetP2PAttribute", g.api.DeviceP2PAttribute(&v[id], id, g.handle, peer.(*gpu).handle))
		if err != nil {
			return cuda.P2PAttributes{}, fmt.Errorf("attribute %d: %w", id, err)
		}
	}
	return cuda.P2PAttributes{
		PerformanceRank: int(v[p2pPerformanceRank]),
		Access:          v[p2pAccess] != 0,
		NativeAtomics:   v[p2pNativeAtomics] != 0,
		ArrayAccess:     v[p2pArrayAccess] != 0,
	}, nil
}

func (g *gpu) Retain() (cuda.Context, error) {
	c := &ctx{api: g.api, device: g.handle}
	if err := g.api.check("cuDevicePrimaryCtxRetain", g.api.PrimaryCtxRetain(&c.handle, g.handle)); err != nil {
		return nil, err
	}
	return c, nil
}

// text returns the bytes of b before the first zero.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

type ctx struct {
	api    *api
	device device
	handle context
}

// do runs f with the context current. CUDA keeps the current context per
// thread, so the goroutine must not move to another one in between.
func (c *ctx) do(call string, f func() result) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := c.api.check("cuCtxSetCurrent", c.api.CtxSetCurrent(c.handle)); err != nil {
		return err
	}
	return c.api.check(call, f())
}

func (c *ctx) EnablePeer(peer cuda.Context) error {
	return c.do("cuCtxEnablePeerAccess", func() result {
		return c.api.CtxEnablePeerAccess(peer.(*ctx).handle, 0)
	})
}

func (c *ctx) DisablePeer(peer cuda.Context) error {
	return c.do("cuCtxDisablePeerAccess", func() result {
		return c.api.CtxDisablePeer(peer.(*ctx).handle)
	})
}

func (c *ctx) MemInfo() (free, total int64, err error) {
	var f, t uint64
	err = c.do("cuMemGetInfo_v2", func() result { return c.api.MemGetInfo(&f, &t) })
	return int64(f), int64(t), err
}

func (c *ctx) Alloc(n int64) (cuda.Ptr, error) {
	var p ptr
	err := c.do("cuMemAlloc_v2", func() result { return c.api.MemAlloc(&p, uint64(n)) })
	return cuda.Ptr(p), err
}

func (c *ctx) Free(p cuda.Ptr) error {
	return c.do("cuMemFree_v2", func() result { return c.api.MemFree(ptr(p)) })
}

// hostAllocFlags are CU_MEMHOSTALLOC_PORTABLE, pinned for all contexts, and
// CU_MEMHOSTALLOC_DEVICEMAP, mapped for kernels: with unified addressing, which
// 64-bit Linux always has, at the address that the host uses.
const hostAllocFlags = 1 | 2

func (c *ctx) AllocHost(n int64) (cuda.HostMemory, error) {
	var p unsafe.Pointer
	err := c.do("cuMemHostAlloc", func() result { return c.api.MemHostAlloc(&p, uint64(n), hostAllocFlags) })
	if err != nil {
		return cuda.HostMemory{}, err
	}
	return cuda.HostMemory{Ptr: cuda.Ptr(uintptr(p)), Bytes: unsafe.Slice((*byte)(p), n)}, nil
}

func (c *ctx) FreeHost(h cuda.HostMemory) error {
	return c.do("cuMemFreeHost", func() result { return c.api.MemFreeHost(unsafe.Pointer(unsafe.SliceData(h.Bytes))) })
}

// streamNonBlocking is CU_STREAM_NON_BLOCKING.
const streamNonBlocking = 1

func (c *ctx) NewStream() (cuda.Stream, error) {
	q := &queue{ctx: c}
	if err := c.do("cuStreamCreate", func() result { return c.api.StreamCreate(&q.handle, streamNonBlocking) }); err != nil {
		return nil, err
	}
	return q, nil
}

func (c *ctx) NewEvent() (cuda.Event, error) {
	m := &mark{ctx: c}
	if err := c.do("cuEventCreate", func() result { return c.api.EventCreate(&m.handle, 0) }); err != nil {
		return nil, err
	}
	return m, nil
}

func (c *ctx) Release() error {
	return c.api.check("cuDevicePrimaryCtxRelease_v2", c.api.PrimaryCtxRelease(c.device))
}

type queue struct {
	ctx    *ctx
	handle stream
}

func (q *queue) Copy(dst, src cuda.Ptr, n int64) error {
	return q.ctx.do("cuMemcpyAsync", func() result {
		return q.ctx.api.MemcpyAsync(ptr(dst), ptr(src), uint64(n), q.handle)
	})
}

func (q *queue) CopyPeer(dst cuda.Ptr, dstCtx cuda.Context, src cuda.Ptr, srcCtx cuda.Context, n int64) error {
	return q.ctx.do("cuMemcpyPeerAsync", func() result {
		return q.ctx.api.MemcpyPeerAsync(ptr(dst), dstCtx.(*ctx).handle, ptr(src), srcCtx.(*ctx).handle, uint64(n), q.handle)
	})
}

func (q *queue) Fill(dst cuda.Ptr, word uint32, n int64) error {
	return q.ctx.do("cuMemsetD32Async", func() result {
		return q.ctx.api.MemsetD32Async(ptr(dst), word, uint64(n)/4, q.handle)
	})
}

func (q *queue) Record(e cuda.Event) error {
	return q.ctx.do("cuEventRecord", func() result {
		return q.ctx.api.EventRecord(e.(*mark).handle, q.handle)
	})
}

func (q *queue) Wait(e cuda.Event) error {
	return q.ctx.do("cuStreamWaitEvent", func() result {
		return q.ctx.api.StreamWaitEvent(q.handle, e.(*mark).handle, 0)
	})
}

func (q *queue) Done() (bool, error) {
	var busy bool
	err := q.ctx.do("cuStreamQuery", func() result {
		r := q.ctx.api.StreamQuery(q.handle)
		if busy = r == cuda.NotReady; busy {
			return 0
		}
		return r
	})
	return !busy && err == nil, err
}

func (q *queue) Close() error {
	return q.ctx.do("cuStreamDestroy_v2", func() result { return q.ctx.api.StreamDestroy(q.handle) })
}

type mark struct {
	ctx    *ctx
	handle event
}

func (m *mark) Since(start cuda.Event) (time.Duration, error) {
	var ms float32
	err := m.ctx.do("cuEventElapsedTime", func() result {
		return m.ctx.api.EventElapsedTime(&ms, start.(*mark).handle, m.handle)
	})
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

func (m *mark) Close() error {
	return m.ctx.do("cuEventDestroy_v2", func() result { return m.ctx.api.EventDestroy(m.handle) })
}
