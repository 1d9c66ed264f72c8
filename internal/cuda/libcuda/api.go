package libcuda

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Handles and types of cuda.h, as the C ABI of 64-bit Linux passes them.
type (
	result  int32   // CUresult
	device  int32   // CUdevice
	context uintptr // CUcontext
	stream  uintptr // CUstream
	event   uintptr // CUevent
	module  uintptr // CUmodule
	kernel  uintptr // CUfunction
	ptr     uint64  // CUdeviceptr
)

// api holds the functions used. The tag is the exported symbol, with the
// version suffix that cuda.h adds by macro. All of them exist from CUDA 11.4
// (driver 470) to CUDA 13 with these signatures.
type api struct {
	GetErrorName   func(result, **byte) result `sym:"cuGetErrorName"`
	GetErrorString func(result, **byte) result `sym:"cuGetErrorString"`

	Init             func(flags uint32) result                        `sym:"cuInit"`
	DriverGetVersion func(version *int32) result                      `sym:"cuDriverGetVersion"`
	DeviceGetCount   func(count *int32) result                        `sym:"cuDeviceGetCount"`
	DeviceGet        func(d *device, ordinal int32) result            `sym:"cuDeviceGet"`
	DeviceGetName    func(name *byte, n int32, d device) result       `sym:"cuDeviceGetName"`
	DeviceGetUUID    func(uuid *[16]byte, d device) result            `sym:"cuDeviceGetUuid_v2"`
	DeviceGetBusID   func(id *byte, n int32, d device) result         `sym:"cuDeviceGetPCIBusId"`
	DeviceTotalMem   func(bytes *uint64, d device) result             `sym:"cuDeviceTotalMem_v2"`
	DeviceAttribute  func(v *int32, attribute int32, d device) result `sym:"cuDeviceGetAttribute"`

	DeviceCanAccessPeer func(can *int32, d, peer device) result                `sym:"cuDeviceCanAccessPeer"`
	DeviceP2PAttribute  func(v *int32, attribute int32, d, peer device) result `sym:"cuDeviceGetP2PAttribute"`
	CtxEnablePeerAccess func(peer context, flags uint32) result                `sym:"cuCtxEnablePeerAccess"`
	CtxDisablePeer      func(peer context) result                              `sym:"cuCtxDisablePeerAccess"`

	PrimaryCtxRetain  func(c *context, d device) result `sym:"cuDevicePrimaryCtxRetain"`
	PrimaryCtxRelease func(d device) result             `sym:"cuDevicePrimaryCtxRelease_v2"`
	CtxSetCurrent     func(context) result              `sym:"cuCtxSetCurrent"`

	MemAlloc     func(p *ptr, n uint64) result                          `sym:"cuMemAlloc_v2"`
	MemFree      func(ptr) result                                       `sym:"cuMemFree_v2"`
	MemHostAlloc func(p *unsafe.Pointer, n uint64, flags uint32) result `sym:"cuMemHostAlloc"`
	MemFreeHost  func(unsafe.Pointer) result                            `sym:"cuMemFreeHost"`
	MemGetInfo   func(free, total *uint64) result                       `sym:"cuMemGetInfo_v2"`

	MemcpyAsync     func(dst, src ptr, n uint64, s stream) result                             `sym:"cuMemcpyAsync"`
	MemcpyPeerAsync func(dst ptr, dc context, src ptr, sc context, n uint64, s stream) result `sym:"cuMemcpyPeerAsync"`
	MemsetD32Async  func(dst ptr, word uint32, words uint64, s stream) result                 `sym:"cuMemsetD32Async"`

	StreamCreate    func(s *stream, flags uint32) result         `sym:"cuStreamCreate"`
	StreamQuery     func(stream) result                          `sym:"cuStreamQuery"`
	StreamWaitEvent func(s stream, e event, flags uint32) result `sym:"cuStreamWaitEvent"`
	StreamDestroy   func(stream) result                          `sym:"cuStreamDestroy_v2"`

	ModuleLoadData    func(m *module, image *byte, n uint32, options *jitOption, values *uintptr) result                                                         `sym:"cuModuleLoadDataEx"`
	ModuleGetFunction func(k *kernel, m module, name *byte) result                                                                                               `sym:"cuModuleGetFunction"`
	ModuleUnload      func(module) result                                                                                                                        `sym:"cuModuleUnload"`
	LaunchKernel      func(k kernel, gridX, gridY, gridZ, blockX, blockY, blockZ, shared uint32, s stream, params *unsafe.Pointer, extra *unsafe.Pointer) result `sym:"cuLaunchKernel"`

	EventCreate      func(e *event, flags uint32) result        `sym:"cuEventCreate"`
	EventRecord      func(event, stream) result                 `sym:"cuEventRecord"`
	EventElapsedTime func(ms *float32, start, end event) result `sym:"cuEventElapsedTime"`
	EventDestroy     func(event) result                         `sym:"cuEventDestroy_v2"`
}

// load opens the library called name and looks up each function of the api.
func load(name string) (*api, error) {
	lib, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	a := new(api)
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		symbol := v.Type().Field(i).Tag.Get("sym")
		addr, err := purego.Dlsym(lib, symbol)
		if err != nil {
			return nil, fmt.Errorf("%s is no libcuda of CUDA 11.4 or later: %w", name, err)
		}
		purego.RegisterFunc(v.Field(i).Addr().Interface(), addr)
	}
	return a, nil
}
