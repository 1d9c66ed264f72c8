package cuda

import (
	"fmt"
	"strings"
)

// Values of CUresult, from the CUDA driver API reference.
const (
	InvalidValue        = 1
	OutOfMemory         = 2
	StubLibrary         = 34  // libcuda is the linker stub of the CUDA toolkit
	DeviceUnavailable   = 46  // in use by another process in exclusive mode, or prohibited
	NoDevice            = 100 // the driver runs but shows no GPU
	PeerAccessDenied    = 217 // CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
	OperatingSystem     = 304 // what cuInit says if the kernel module is not loaded
	PeerAlreadyEnabled  = 704
	TooManyPeers        = 711
	LaunchFailed        = 719
	SystemNotReady      = 802 // NVSwitch systems without a running fabric manager
	VersionMismatch     = 803 // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: libcuda is not the kernel module's
	CompatNotSupported  = 804
	UnknownDriverFailed = 999
)

// An Error is a call of the CUDA driver API that failed.
type Error struct {
	Call string // "cuMemAlloc_v2"
	Code int    // CUresult
	Name string // "CUDA_ERROR_OUT_OF_MEMORY", by cuGetErrorName
	Text string // "out of memory", by cuGetErrorString
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	}
	return fmt.Sprintf("%s: %s (%s, %d)", e.Call, e.Text, e.Name, e.Code)
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
		// What dlopen says, in all versions of glibc, of a file that is not there.
		if strings.HasSuffix(a.Err.Error(), "No such file or directory") {
			missing = append(missing, a.Name)
		} else {
			broken = append(broken, a.Err.Error())
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
