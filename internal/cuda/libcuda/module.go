package libcuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"mkp2pimg/internal/cuda"
)

// jitOption is a number of CUjit_option.
type jitOption int32

// Options of cuModuleLoadDataEx, from cuda.h.
const (
	jitErrorLogBuffer     jitOption = 5 // CU_JIT_ERROR_LOG_BUFFER
	jitErrorLogBufferSize jitOption = 6 // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
)

// LoadModule implements [cuda.Context]. Its error holds what the compiler says.
func (c *ctx) LoadModule(ptx string) (cuda.Module, error) {
	image, err := unix.BytePtrFromString(ptx)
	if err != nil {
		return nil, fmt.Errorf("PTX: %w", err)
	}
	log := make([]byte, 8192)
	options := []jitOption{jitErrorLogBuffer, jitErrorLogBufferSize}
	// The driver takes the values as void *: the address of the buffer, and its
	// size itself.
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	m := &code{ctx: c}
	err = c.do("cuModuleLoadDataEx", func() result {
		return c.api.ModuleLoadData(&m.handle, image, uint32(len(options)), &options[0], &values[0])
	})
	if err != nil {
		if e, ok := errors.AsType[*cuda.Error](err); ok {
			e.Log = strings.TrimSpace(text(log))
		}
		return nil, err
	}
	return m, nil
}

type code struct {
	ctx    *ctx
	handle module
}

func (m *code) Function(name string) (cuda.Function, error) {
	s, err := unix.BytePtrFromString(name)
	if err != nil {
		return nil, fmt.Errorf("kernel %q: %w", name, err)
	}
	f := &function{name: name}
	err = m.ctx.do("cuModuleGetFunction", func() result { return m.ctx.api.ModuleGetFunction(&f.handle, m.handle, s) })
	if err != nil {
		return nil, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}

func (m *code) Unload() error {
	return m.ctx.do("cuModuleUnload", func() result { return m.ctx.api.ModuleUnload(m.handle) })
}

type function struct {
	name   string
	handle kernel
}

func (f *function) Name() string { return f.name }

// Launch implements [cuda.Stream]. The driver copies the parameters before it
// returns.
func (q *queue) Launch(f cuda.Function, blocks, threads int, params ...uint64) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	args := make([]unsafe.Pointer, len(params)+1) // one more, so that it has a first
	for i := range params {
		pin.Pin(&params[i])
		args[i] = unsafe.Pointer(&params[i])
	}
	err := q.ctx.do("cuLaunchKernel", func() result {
		return q.ctx.api.LaunchKernel(f.(*function).handle, uint32(blocks), 1, 1, uint32(threads), 1, 1, 0, q.handle, &args[0], nil)
	})
	if err != nil {
		return fmt.Errorf("kernel %s: %w", f.Name(), err)
	}
	return nil
}
