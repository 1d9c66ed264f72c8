// Package cuda is the small part of the CUDA driver API that is needed to
// measure copies within and between GPUs, as Go interfaces.
//
// Package libcuda implements it with NVIDIA's libcuda.so.1 and package fake with
// GPUs that exist only in memory. This package imports neither, so that
// programs which only read results can be linked statically.
package cuda

// A DeviceInfo describes a GPU.
type DeviceInfo struct {
	BDF          string `json:"bdf"`    // "0000:41:00.0"
	Name         string `json:"name"`   // "NVIDIA GeForce RTX 4090"
	UUID         string `json:"uuid"`   // "GPU-" and 36 characters
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
