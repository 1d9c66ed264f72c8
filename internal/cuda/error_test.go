package cuda

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestErrorText(t *testing.T) {
	assert.EqualError(t,
		&Error{Call: "cuMemAlloc_v2", Code: OutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"},
		"cuMemAlloc_v2: out of memory (CUDA_ERROR_OUT_OF_MEMORY, 2)")
	assert.EqualError(t, &Error{Call: "cuInit", Code: 4242}, "cuInit: CUDA error 4242")
}

func TestLibraryErrorNamesWhatWasTried(t *testing.T) {
	assert.EqualError(t, &LibraryError{Tried: []Attempt{
		{"libcuda.so.1", errors.New("libcuda.so.1: cannot open shared object file: No such file or directory")},
		{"/a/libcuda.so.1", errors.New("/a/libcuda.so.1: file too short")},
		{"/c/libcuda.so.1", errors.New("librt.so.1: cannot open shared object file: No such file or directory")},
		{"/b/libcuda.so.1", errors.New("/b/libcuda.so.1: cannot open shared object file: No such file or directory")},
	}}, "no usable libcuda, the user-space part of NVIDIA's driver: /a/libcuda.so.1: file too short; "+
		"/c/libcuda.so.1 needs librt.so.1: cannot open shared object file: No such file or directory: not found as libcuda.so.1, /b/libcuda.so.1")
}
