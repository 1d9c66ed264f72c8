package fake

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
)

const size = 1 << 20

// A node is one GPU with a stream and memory.
type node struct {
	cuda.Context
	q          cuda.Stream
	mem        cuda.Ptr
	start, end cuda.Event
}

// nodes returns all GPUs of sys, each with access to all others.
func nodes(t *testing.T, sys *System) []*node {
	devices, err := sys.Devices()
	require.NoError(t, err)
	var ns []*node
	for _, d := range devices {
		n := new(node)
		n.Context, err = d.Retain()
		require.NoError(t, err)
		n.q, err = n.NewStream()
		require.NoError(t, err)
		n.mem, err = n.Alloc(size)
		require.NoError(t, err)
		n.start, err = n.NewEvent()
		require.NoError(t, err)
		n.end, err = n.NewEvent()
		require.NoError(t, err)
		ns = append(ns, n)
	}
	for _, a := range ns {
		for _, b := range ns {
			if a != b {
				require.NoError(t, a.EnablePeer(b.Context))
			}
		}
	}
	return ns
}

// timed queues a copy of size bytes between two events.
func (n *node) timed(t *testing.T, dst, src cuda.Ptr) {
	require.NoError(t, n.q.Record(n.start))
	require.NoError(t, n.q.Copy(dst, src, size))
	require.NoError(t, n.q.Record(n.end))
}

func (n *node) gbps(t *testing.T) float64 {
	done, err := n.q.Done()
	require.NoError(t, err)
	require.True(t, done)
	d, err := n.end.Since(n.start)
	require.NoError(t, err)
	return size / float64(d)
}

func (n *node) bytes(t *testing.T, p cuda.Ptr) []byte {
	h, err := n.AllocHost(size)
	require.NoError(t, err)
	require.NoError(t, n.q.Copy(h.Ptr, p, size))
	done, err := n.q.Done()
	require.NoError(t, err)
	require.True(t, done)
	return bytes.Clone(h.Bytes)
}

func system(gpus int) *System {
	s := &System{Default: Link{GBps: 25}}
	for range gpus {
		s.GPUs = append(s.GPUs, GPU{Info: cuda.DeviceInfo{Memory: 1 << 28}, HostGBps: 20, Copy: 1000})
	}
	return s
}

func TestLinksAreShared(t *testing.T) {
	type copying struct{ engine, to, from int }
	for _, tc := range []struct {
		name   string
		change func(*System)
		copies []copying
		want   []float64
	}{
		{"alone", func(*System) {}, []copying{{0, 1, 0}}, []float64{25}},
		{"both ways", func(*System) {}, []copying{{0, 1, 0}, {1, 0, 1}}, []float64{25, 25}},
		{"the same way, by either end", func(*System) {}, []copying{{0, 1, 0}, {1, 1, 0}}, []float64{12.5, 12.5}},
		{"slower reads", func(s *System) { s.Default.ReadGBps = 20 }, []copying{{0, 0, 1}}, []float64{20}},
		{"one of three links is slow", func(s *System) { s.Links = map[Route]Link{{0, 2}: {GBps: 3}} },
			[]copying{{0, 2, 0}, {1, 2, 1}}, []float64{3, 25}},
		{"all to one", func(s *System) { s.GPUs[3].Port = 25 }, []copying{{0, 3, 0}, {1, 3, 1}}, []float64{12.5, 12.5}},
		{"throttled", func(s *System) { s.Default.ThrottledGBps = 2 }, []copying{{0, 1, 0}}, []float64{2}},
		{"collapse", collapse, []copying{{0, 2, 0}, {1, 3, 1}}, []float64{2.7, 2.7}},
		{"collapse: one root", collapse, []copying{{0, 2, 0}, {1, 2, 1}}, []float64{25, 25}},
		{"collapse: one source", collapse, []copying{{0, 2, 0}, {2, 3, 2}}, []float64{25, 25}},
		{"collapse: reads", collapse, []copying{{2, 2, 0}, {3, 3, 1}}, []float64{25, 25}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system(4)
			tc.change(sys)
			ns := nodes(t, sys)
			for _, c := range tc.copies {
				ns[c.engine].timed(t, ns[c.to].mem, ns[c.from].mem)
			}
			for i, c := range tc.copies {
				assert.InDelta(t, tc.want[i], ns[c.engine].gbps(t), 0.01, "%v", c)
			}
		})
	}
}

// collapse puts GPUs 0 and 1 under one switch and the others elsewhere.
func collapse(s *System) {
	s.GPUs[0].Switch, s.GPUs[1].Switch = 1, 1
	s.GPUs[2].Root, s.GPUs[3].Root = 2, 3
	s.Collapse = Collapse{Sources: 2, GBps: 2.7}
}

func TestThrottleBegins(t *testing.T) {
	sys := system(2)
	sys.Default.ThrottledGBps, sys.Default.Throttle = 5, time.Duration(size/25)
	ns := nodes(t, sys)
	ns[0].timed(t, ns[1].mem, ns[0].mem)
	assert.InDelta(t, 25, ns[0].gbps(t), 0.01)
	ns[0].timed(t, ns[1].mem, ns[0].mem)
	assert.InDelta(t, 5, ns[0].gbps(t), 0.01)
}

// TestWait shows that a stream waits for the event of another, as recorded when
// it was told to.
func TestWait(t *testing.T) {
	ns := nodes(t, system(2))
	require.NoError(t, ns[1].q.Wait(ns[0].end), "never recorded: nothing to wait for")
	ns[0].timed(t, ns[1].mem, ns[0].mem)
	require.NoError(t, ns[1].q.Wait(ns[0].end))
	require.NoError(t, ns[1].q.Record(ns[1].start))
	done, err := ns[1].q.Done()
	require.NoError(t, err)
	assert.True(t, done)
	gap, err := ns[1].start.Since(ns[0].end)
	require.NoError(t, err)
	assert.Zero(t, gap)
	require.NoError(t, ns[0].q.Record(ns[0].end))
	_, err = ns[0].end.Since(ns[0].start)
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.NotReady, e.Code)
}

func TestFaults(t *testing.T) {
	gone := failure("cuStreamQuery", cuda.LaunchFailed, "LAUNCH_FAILED", "unspecified launch failure")
	for _, tc := range []struct {
		name    string
		link    Link
		wrongAt []int // pages of what GPU 1 has after two writes of GPU 0
	}{
		{"none", Link{}, nil},
		{"after the first", Link{Write: Fault{Kind: Clear, After: 1, Size: 8}}, []int{0}},
		{"after the second", Link{Write: Fault{Kind: Clear, After: 2}}, nil},
		{"not of copy engines", Link{Write: Fault{Kind: Clear, Only: SM}}, nil},
		{"a page", Link{Write: Fault{Kind: Drop, Offset: 2 * pageSize, Size: pageSize}}, []int{2}},
		{"a window too far", Link{Offset: size - 2*pageSize}, pages(0, size/pageSize-2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system(2)
			tc.link.GBps = 25
			sys.Default = tc.link
			ns := nodes(t, sys)
			require.NoError(t, ns[0].q.Fill(ns[0].mem, 0x11111111, size))
			for range 2 {
				require.NoError(t, ns[0].q.Copy(ns[1].mem, ns[0].mem, size))
			}
			done, err := ns[0].q.Done()
			require.NoError(t, err)
			require.True(t, done)
			var wrong []int
			for i, page := 0, ns[1].bytes(t, ns[1].mem); len(page) > 0; i, page = i+1, page[pageSize:] {
				if page[0] != 0x11 {
					wrong = append(wrong, i)
				}
			}
			assert.Equal(t, tc.wrongAt, wrong)
		})
	}

	t.Run("a stale page", func(t *testing.T) {
		sys := system(2)
		sys.Default.Read = Fault{Kind: Drop, Offset: pageSize, Size: pageSize}
		ns := nodes(t, sys)
		var got []byte
		for _, word := range []uint32{0x11111111, 0x22222222} {
			require.NoError(t, ns[1].q.Fill(ns[1].mem, word, size))
			done, err := ns[1].q.Done()
			require.NoError(t, err)
			require.True(t, done)
			require.NoError(t, ns[0].q.Copy(ns[0].mem, ns[1].mem, size))
			got = ns[0].bytes(t, ns[0].mem)
		}
		assert.Equal(t, []byte{0x22, 0x11, 0x22}, []byte{got[0], got[pageSize], got[2*pageSize]})
	})
	t.Run("an error of execution stays", func(t *testing.T) {
		sys := system(2)
		sys.Default.Write = Fault{Kind: Fail, Err: gone}
		ns := nodes(t, sys)
		require.NoError(t, ns[0].q.Copy(ns[1].mem, ns[0].mem, size))
		_, err := ns[0].q.Done()
		assert.Equal(t, gone, err)
		_, err = ns[0].Alloc(8)
		assert.Equal(t, gone, err)
		_, err = ns[1].Alloc(8)
		assert.NoError(t, err, "of the other GPU")
	})
	t.Run("no end", func(t *testing.T) {
		sys := system(2)
		sys.Default.Read = Fault{Kind: Hang}
		ns := nodes(t, sys)
		require.NoError(t, ns[0].q.Copy(ns[0].mem, ns[1].mem, size))
		for range 1000 {
			done, err := ns[0].q.Done()
			require.NoError(t, err)
			require.False(t, done)
		}
		require.NoError(t, ns[0].q.Close())
	})
	t.Run("no access", func(t *testing.T) {
		ns := nodes(t, system(2))
		require.NoError(t, ns[0].DisablePeer(ns[1].Context))
		require.NoError(t, ns[0].q.Copy(ns[1].mem, ns[0].mem, size))
		_, err := ns[0].q.Done()
		var e *cuda.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, cuda.IllegalAddress, e.Code)
	})
}

func pages(from, to int) []int {
	var p []int
	for ; from < to; from++ {
		p = append(p, from)
	}
	return p
}

func TestContexts(t *testing.T) {
	sys := system(2)
	ns := nodes(t, sys)
	var e *cuda.Error
	require.ErrorAs(t, ns[0].EnablePeer(ns[1].Context), &e)
	assert.Equal(t, cuda.PeerEnabled, e.Code)
	_, err := ns[0].Alloc(1 << 28)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.OutOfMemory, e.Code)
	free, total, err := ns[0].MemInfo()
	require.NoError(t, err)
	assert.EqualValues(t, size, total-free)
	require.NoError(t, ns[0].Free(ns[0].mem))
	require.ErrorAs(t, ns[0].Free(ns[0].mem), &e)
	assert.Equal(t, cuda.InvalidValue, e.Code)
	assert.Equal(t, 1, sys.Allocations())
	m, err := ns[0].LoadModule("")
	require.NoError(t, err)
	_, err = m.Function("none")
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.NotFound, e.Code)

	require.NoError(t, ns[0].Release())
	devices, err := sys.Devices()
	require.NoError(t, err)
	again, err := devices[0].Retain()
	require.NoError(t, err)
	require.NoError(t, again.EnablePeer(ns[1].Context), "a new context")
	sys.GPUs[0].Retain = failure("cuDevicePrimaryCtxRetain", cuda.DeviceUnavailable, "DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable")
	_, err = devices[0].Retain()
	assert.ErrorAs(t, err, &e, "exclusive mode")
}

func TestStagedCopies(t *testing.T) {
	sys := system(2)
	sys.Default = Link{GBps: 25, StagedGBps: 9, Mirror: true}
	ns := nodes(t, sys)
	require.NoError(t, ns[0].q.Fill(ns[0].mem, 0x33333333, size))
	require.NoError(t, ns[0].DisablePeer(ns[1].Context))
	require.NoError(t, ns[1].DisablePeer(ns[0].Context))
	require.NoError(t, ns[0].q.Record(ns[0].start))
	require.NoError(t, ns[0].q.CopyPeer(ns[1].mem, ns[1].Context, ns[0].mem, ns[0].Context, size))
	require.NoError(t, ns[0].q.Record(ns[0].end))
	assert.InDelta(t, 9, ns[0].gbps(t), 0.01)
	assert.EqualValues(t, 0x33, ns[1].bytes(t, ns[1].mem)[size-1], "through host memory it arrives all the same")
}
