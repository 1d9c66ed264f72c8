// Package cuda is the small part of the CUDA driver API that is needed to
// measure copies within and between GPUs, as Go interfaces.
//
// Package libcuda implements it with NVIDIA's libcuda.so.1 and package fake with
// GPUs that exist only in memory. This package imports neither, so that
// programs which only read results can be linked statically.
//
// Implementations are safe for use from any goroutine: each method makes its
// context current on the thread it happens to run on. Errors of the driver are
// of type [*Error].
package cuda

import (
	"sync/atomic"
	"time"
	"unsafe"
)

// A Driver is a CUDA driver after cuInit.
type Driver interface {
	// Version returns the newest CUDA version that the driver supports, as
	// 1000*major + 10*minor.
	Version() (int, error)
	// Devices returns the visible GPUs in the driver's order.
	Devices() ([]Device, error)
}

// A Device is a GPU.
type Device interface {
	Info() (DeviceInfo, error)
	// CanAccessPeer tells whether contexts of this device may access the
	// memory of peer, according to the driver.
	CanAccessPeer(peer Device) (bool, error)
	P2PAttributes(peer Device) (P2PAttributes, error)
	Attribute(Attribute) (int, error)
	// Retain returns the device's primary context and keeps it alive until
	// its Release.
	Retain() (Context, error)
}

// A Context is the primary context of a device.
type Context interface {
	// EnablePeer lets this context access all memory of peer, one way.
	EnablePeer(peer Context) error
	// DisablePeer undoes EnablePeer.
	DisablePeer(peer Context) error
	// MemInfo returns the free and the total bytes of the device's memory.
	MemInfo() (free, total int64, err error)
	// Alloc returns n bytes of the device's memory.
	Alloc(n int64) (Ptr, error)
	Free(Ptr) error
	// AllocHost returns n bytes of pinned host memory that the engines and the
	// kernels of each context can use, at HostMemory.Ptr.
	AllocHost(n int64) (HostMemory, error)
	FreeHost(HostMemory) error
	// NewStream returns a stream that does not wait for the default stream.
	NewStream() (Stream, error)
	NewEvent() (Event, error)
	// LoadModule compiles the PTX for the device.
	LoadModule(ptx string) (Module, error)
	Release() error
}

// A Module is code, loaded into a context.
type Module interface {
	// Function returns the kernel called name.
	Function(name string) (Function, error)
	// Unload frees the module, whose functions must not run any more.
	Unload() error
}

// A Function is a kernel of a [Module].
type Function interface{ Name() string }

// A Stream executes operations of its context one after the other. Its methods
// queue an operation and return; errors of the execution come with Done or with
// any later call on the context.
type Stream interface {
	// Copy copies n bytes between any two places that the stream's context can
	// access directly.
	Copy(dst, src Ptr, n int64) error
	// CopyPeer copies n bytes of src, in the memory of srcCtx, to dst, in the
	// memory of dstCtx. The driver takes the data through host memory unless
	// peer access is enabled.
	CopyPeer(dst Ptr, dstCtx Context, src Ptr, srcCtx Context, n int64) error
	// Fill sets n bytes at dst, a multiple of 4, to copies of word.
	Fill(dst Ptr, word uint32, n int64) error
	// Launch runs f of this stream's context, in blocks of threads each. All
	// parameters of our kernels are 64 bits wide.
	Launch(f Function, blocks, threads int, params ...uint64) error
	Record(Event) error
	// Wait lets what is queued from now on begin no earlier than when the event,
	// recorded before on any stream of any context, has passed.
	Wait(Event) error
	// Done tells whether all queued operations have ended. It does not wait.
	Done() (bool, error)
	Close() error
}

// An Event marks a place in a stream.
type Event interface {
	// Since returns the GPU time between two recorded events that have passed.
	Since(start Event) (time.Duration, error)
	Close() error
}

// A Ptr is an address of the unified address space that all GPUs and the host
// share.
type Ptr uint64

// HostMemory is pinned host memory.
type HostMemory struct {
	Ptr   Ptr
	Bytes []byte
}

// Load returns the 32-bit word at offset, which a kernel may be writing.
func (h HostMemory) Load(offset int) uint32 { return h.word(offset).Load() }

// Store sets the 32-bit word at offset, which a kernel may be reading.
func (h HostMemory) Store(offset int, v uint32) { h.word(offset).Store(v) }

func (h HostMemory) word(offset int) *atomic.Uint32 {
	_ = h.Bytes[offset : offset+4]
	return (*atomic.Uint32)(unsafe.Pointer(&h.Bytes[offset]))
}

// An Attribute is a number of CUdevice_attribute.
type Attribute int

// Attributes, from the CUDA driver API reference.
const (
	ClockRate       Attribute = 13 // kHz, the highest
	SMCount         Attribute = 16
	ComputeModeNow  Attribute = 20 // a [ComputeMode]
	MemoryClockRate Attribute = 36 // kHz, the highest
	MemoryBusWidth  Attribute = 37 // bits
	L2CacheSize     Attribute = 38 // bytes
	CopyEngineCount Attribute = 40
	ComputeMajor    Attribute = 75
	ComputeMinor    Attribute = 76
)

// A ComputeMode tells who may create contexts on a device (CUcomputemode).
type ComputeMode int

// The compute modes.
const (
	SharedMode           ComputeMode = 0 // any number of processes
	ProhibitedMode       ComputeMode = 2 // nobody
	ExclusiveProcessMode ComputeMode = 3 // one process at a time
)

// A DeviceInfo describes a GPU.
type DeviceInfo struct {
	BDF          string `json:"bdf"`    // "0000:41:00.0"
	Name         string `json:"name"`   // "NVIDIA GeForce RTX 4090"
	UUID         string `json:"uuid"`   // 36 characters, without the "GPU-" of nvidia-smi
	Memory       int64  `json:"memory"` // bytes
	SMs          int    `json:"sms"`    // streaming multiprocessors
	ComputeMajor int    `json:"compute_major"`
	ComputeMinor int    `json:"compute_minor"`
	CopyEngines  int    `json:"copy_engines"`
}

// P2PAttributes are the answers of cuDeviceGetP2PAttribute for an ordered pair.
type P2PAttributes struct {
	PerformanceRank int  `json:"performance_rank"` // relative, lower is better
	Access          bool `json:"access"`
	NativeAtomics   bool `json:"native_atomics"`
	ArrayAccess     bool `json:"array_access"`
}
