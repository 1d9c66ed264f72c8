package libcuda

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
)

// stub builds testdata/stub.c, a libcuda that needs no GPU.
func stub(t *testing.T) string {
	t.Helper()
	// The loader gives a library that it has, by its name, in place of another.
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	if bytes.Contains(maps, []byte("/libcuda.so.1")) || bytes.Contains(maps, []byte("/libcuda.so.5")) {
		t.Skip("the real libcuda is loaded in this process")
	}
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler to build a stand-in for libcuda with")
	}
	so := filepath.Join(t.TempDir(), "libcuda.so.0.0.0")
	out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-o", so, "testdata/stub.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return so
}

func TestOpenSaysWhatWasTried(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, os.WriteFile(empty, nil, 0o644))
	_, err := Open("/nonexistent/libcuda.so.1", empty, "libc.so.6")
	var missing *cuda.LibraryError
	require.ErrorAs(t, err, &missing)
	require.Len(t, missing.Tried, 3)
	assert.ErrorContains(t, missing.Tried[0].Err, "No such file")
	assert.ErrorContains(t, missing.Tried[1].Err, "file too short")
	assert.ErrorContains(t, missing.Tried[2].Err, "libc.so.6 is no libcuda")
	assert.ErrorContains(t, missing.Tried[2].Err, "cuGetErrorName")
}

func TestInitErrors(t *testing.T) {
	so := stub(t)
	setenvC(t, "STUB_INIT", "704")
	_, err := Open(so)
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.Error{Call: "cuInit", Code: 704, Name: "CUDA_ERROR_STUB", Text: "already enabled"}, *e)
	setenvC(t, "STUB_INIT", "4242")
	_, err = Open(so)
	assert.EqualError(t, err, "cuInit: CUDA error 4242", "an error that libcuda has no name for")
}

func TestCalls(t *testing.T) {
	so := stub(t)
	d, err := Open("/nonexistent/libcuda.so.1", so)
	require.NoError(t, err)
	path, err := d.Path()
	require.NoError(t, err)
	assert.Equal(t, so, path)
	v, err := d.Version()
	require.NoError(t, err)
	assert.Equal(t, 12040, v)

	devices, err := d.Devices()
	require.NoError(t, err)
	require.Len(t, devices, 2)
	info, err := devices[1].Info()
	require.NoError(t, err)
	assert.Equal(t, cuda.DeviceInfo{
		BDF: "0000:a1:00.0", Name: "Stub 1", UUID: "10111213-1415-1617-1819-1a1b1c1d1e1f", Memory: 32 << 30,
		SMs: 1016, CopyEngines: 1040, ComputeMajor: 1075, ComputeMinor: 1076,
	}, info)
	for _, tc := range []struct {
		from, to int
		can      bool
		rank     int
	}{{0, 1, true, 1}, {1, 0, false, 10}} {
		can, err := devices[tc.from].CanAccessPeer(devices[tc.to])
		require.NoError(t, err)
		assert.Equal(t, tc.can, can)
		attributes, err := devices[tc.from].P2PAttributes(devices[tc.to])
		require.NoError(t, err)
		assert.Equal(t, cuda.P2PAttributes{PerformanceRank: tc.rank, NativeAtomics: true}, attributes)
	}

	a, err := devices[0].Retain()
	require.NoError(t, err)
	b, err := devices[1].Retain()
	require.NoError(t, err)
	require.NoError(t, a.EnablePeer(b))
	var e *cuda.Error
	require.ErrorAs(t, a.EnablePeer(b), &e)
	assert.Equal(t, cuda.Error{Call: "cuCtxEnablePeerAccess", Code: 704, Name: "CUDA_ERROR_STUB", Text: "already enabled"}, *e)
	require.NoError(t, a.DisablePeer(b))
	require.ErrorAs(t, a.DisablePeer(b), &e)
	assert.Equal(t, cuda.PeerNotEnabled, e.Code)
	free, total, err := b.MemInfo()
	require.NoError(t, err)
	assert.EqualValues(t, 16<<30, free)
	assert.EqualValues(t, 32<<30, total)
	mode, err := devices[1].Attribute(cuda.ComputeModeNow)
	require.NoError(t, err)
	assert.Equal(t, 1020, mode)
	_, err = a.Alloc(2 << 30)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.OutOfMemory, e.Code)

	// One goroutine per context: each call must make its own context current.
	const n = 4096
	var group sync.WaitGroup
	for i, c := range []cuda.Context{a, b} {
		group.Go(func() {
			for range 100 {
				exercise(t, c, uint32(0x01010101*(i+1)), n)
			}
		})
	}
	group.Wait()

	h, err := a.AllocHost(2 * n)
	require.NoError(t, err)
	copy(h.Bytes, bytes.Repeat([]byte{7}, n))
	s, err := a.NewStream()
	require.NoError(t, err)
	require.NoError(t, s.CopyPeer(h.Ptr+n, b, h.Ptr, a, n))
	assert.Equal(t, h.Bytes[:n], h.Bytes[n:])
	require.NoError(t, s.Close())
	require.NoError(t, a.FreeHost(h))
	require.NoError(t, a.Release())
	require.NoError(t, b.Release())
}

// exercise fills n bytes of device memory with word, copies them to the host and
// compares.
func exercise(t *testing.T, c cuda.Context, word uint32, n int64) {
	p, err := c.Alloc(n)
	assert.NoError(t, err)
	h, err := c.AllocHost(n)
	assert.NoError(t, err)
	s, err := c.NewStream()
	assert.NoError(t, err)
	assert.NoError(t, s.Fill(p, word, n))
	assert.NoError(t, s.Copy(h.Ptr, p, n))
	assert.Equal(t, bytes.Repeat([]byte{byte(word)}, int(n)), h.Bytes)
	assert.NoError(t, s.Close())
	assert.NoError(t, c.FreeHost(h))
	assert.NoError(t, c.Free(p))
}

func TestStreamsAndEvents(t *testing.T) {
	d, err := Open(stub(t))
	require.NoError(t, err)
	devices, err := d.Devices()
	require.NoError(t, err)
	c, err := devices[0].Retain()
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)
	done, err := s.Done()
	require.NoError(t, err)
	assert.False(t, done, "not ready is no error")
	done, err = s.Done()
	require.NoError(t, err)
	assert.True(t, done)

	start, err := c.NewEvent()
	require.NoError(t, err)
	end, err := c.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(start))
	require.NoError(t, s.Wait(start))
	require.NoError(t, s.Record(end))
	elapsed, err := end.Since(start)
	require.NoError(t, err)
	assert.Equal(t, 1500*time.Microsecond, elapsed)
	require.NoError(t, start.Close())
	require.NoError(t, end.Close())
	require.NoError(t, s.Close())
	require.NoError(t, c.Release())
}

func TestModules(t *testing.T) {
	d, err := Open(stub(t))
	require.NoError(t, err)
	devices, err := d.Devices()
	require.NoError(t, err)
	c, err := devices[0].Retain()
	require.NoError(t, err)
	s, err := c.NewStream()
	require.NoError(t, err)

	_, err = c.LoadModule("nonsense")
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.InvalidPTX, e.Code)
	assert.Equal(t, "line 1: no .version in 8 bytes", e.Log, "what the compiler says")
	_, err = c.LoadModule("a\x00b")
	require.Error(t, err, "a text that C would cut short")

	m, err := c.LoadModule(".version 7.0 .entry add")
	require.NoError(t, err)
	_, err = m.Function("other")
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.NotFound, e.Code)
	assert.ErrorContains(t, err, "kernel other")
	f, err := m.Function("add")
	require.NoError(t, err)
	assert.Equal(t, "add", f.Name())
	h, err := c.AllocHost(8)
	require.NoError(t, err)
	require.NoError(t, s.Launch(f, 7, 32, uint64(h.Ptr), 1, 2, 3))
	assert.EqualValues(t, 1+10*2+100*3+1000*7+1000000*32, h.Load(0))
	assert.ErrorContains(t, s.Launch(f, 7, 0, uint64(h.Ptr), 1, 2, 3), "kernel add: cuLaunchKernel")
	require.NoError(t, c.FreeHost(h))
	require.NoError(t, m.Unload())
}
