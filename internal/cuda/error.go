package cuda

import (
	"fmt"
	"strings"
)

// Values of CUresult, from the CUDA driver API reference.
const (
	InvalidValue      = 1
	OutOfMemory       = 2
	StubLibrary       = 34
	DeviceUnavailable = 46
	NoDevice          = 100 // the driver runs but shows no GPU
	NoBinaryForGPU    = 209
	ECCUncorrectable  = 214
	PeerAccessDenied  = 217 // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
	InvalidPTX        = 218
	NVLinkError       = 220 // CUDA_ERROR_NVLINK_UNCORRECTABLE
	NoJITCompiler     = 221 // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
	UnsupportedPTX    = 222 // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	JITDisabled       = 223 // CUDA_ERROR_JIT_COMPILATION_DISABLED
	OperatingSystem   = 304 // what cuInit says if the kernel module is not loaded
	NotFound          = 500
	NotReady          = 600
	IllegalAddress    = 700
	PeerEnabled       = 704 // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
	PeerNotEnabled    = 705 // CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
	LaunchFailed      = 719
	SystemNotReady    = 802
	VersionMismatch   = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
)

// advice tells, by CUresult, what usually lies behind an error and what to do.
var advice = map[int]string{
	OutOfMemory:       "another process may hold the memory: end it, or copy less",
	StubLibrary:       "this is the CUDA toolkit's stub for linking: use the libcuda of the driver",
	DeviceUnavailable: "another process uses the GPU in exclusive mode, or its compute mode is prohibited: see nvidia-smi -q -d COMPUTE",
	NoDevice:          "the nvidia kernel module has no GPU, or CUDA_VISIBLE_DEVICES hides them",
	NoBinaryForGPU:    "the GPU is older than the code for it, which needs compute capability 7.5 (Turing) or newer",
	ECCUncorrectable:  "the GPU's memory has an error that ECC can't correct: look for Xid 48, 63, 64, 94 and 95 in the kernel log; reset the GPU",
	NVLinkError:       "NVLink lost data: look for Xid 74 in the kernel log; check the bridge or the switches",
	NoJITCompiler:     "libnvidia-ptxjitcompiler.so.1 of the driver's release is missing: install it beside libcuda.so.1",
	UnsupportedPTX:    "the driver is older than CUDA 11.0: install a newer one",
	JITDisabled:       "CUDA_DISABLE_PTX_JIT or CUDA_DISABLE_JIT is set: unset it",
	OperatingSystem:   "the nvidia kernel module is not loaded, or /dev/nvidia* is missing",
	IllegalAddress:    "a kernel met an address that its GPU can't reach: look for Xid 31 (MMU fault) and IOMMU faults in the kernel log",
	LaunchFailed:      "the GPU stopped the work: look for Xid messages in the kernel log",
	SystemNotReady:    "GPUs behind NVSwitch wait for nvidia-fabricmanager: start it",
	VersionMismatch:   "libcuda and the nvidia kernel module must be of the same release",
}

// Advice returns what usually lies behind the error and what to do, or nothing.
func (e *Error) Advice() string { return advice[e.Code] }

// An Error is a call of the CUDA driver API that failed.
type Error struct {
	Call string // "cuMemAlloc_v2"
	Code int    // CUresult
	Name string // "CUDA_ERROR_OUT_OF_MEMORY", by cuGetErrorName
	Text string // "out of memory", by cuGetErrorString
	Log  string // what the JIT compiler says, if it was asked
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	}
	text := fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
	if e.Log != "" {
		text += ": " + e.Log
	}
	return text
}

// A LibraryError says that no usable libcuda was found.
type LibraryError struct {
	Tried []Attempt
}

// An Attempt is a try to load a library.
type Attempt struct {
	Name string // as given to dlopen
	Err  error
}

func (e *LibraryError) Error() string {
	var missing, broken []string
	for _, a := range e.Tried {
		// What dlopen says, in all versions of glibc, of a file that is not there: of
		// this one, or of another that it needs.
		text := a.Err.Error()
		gone, own := strings.HasSuffix(text, "No such file or directory"), strings.HasPrefix(text, a.Name+": ")
		switch {
		case gone && own:
			missing = append(missing, a.Name)
		case gone:
			broken = append(broken, a.Name+" needs "+text)
		default:
			broken = append(broken, text)
		}
	}
	text := "no usable libcuda, the user-space part of NVIDIA's driver"
	if len(broken) > 0 {
		text += ": " + strings.Join(broken, "; ")
	}
	if len(missing) > 0 {
		text += ": not found as " + strings.Join(missing, ", ")
	}
	return text
}
