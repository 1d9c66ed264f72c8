package libcuda

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

// The tests in this file run on the GPUs of the machine, by themselves and, if
// there are two, as pairs, and print what they measure:
//
//	go test -c -o gpu.test ./internal/cuda/libcuda && ./gpu.test -test.v -test.run GPU
//
// They skip without a driver or GPU.

const (
	gpuBuffer = 512 << 20 // the default of nvbandwidth
	gpuLoops  = 16
	gpuPoison = 0xb5c0ffee
	gpuWait   = 20 * time.Second
)

// A card is a GPU of the machine with what the tests need of it.
type card struct {
	cuda.Context
	*kernels.Kernels
	device cuda.Device
	info   cuda.DeviceInfo
	q      cuda.Stream
	out    *kernels.Slot
	gate   *kernels.Gate
	mem    cuda.Ptr // gpuBuffer bytes
}

// cards returns up to n GPUs, or skips the test if there are fewer.
func cards(t *testing.T, n int) []*card {
	t.Helper()
	d, err := Open()
	if missing, ok := errors.AsType[*cuda.LibraryError](err); ok {
		t.Skip(missing)
	}
	if e, ok := errors.AsType[*cuda.Error](err); ok {
		t.Skipf("%v: %s", e, e.Advice())
	}
	require.NoError(t, err)
	devices, err := d.Devices()
	require.NoError(t, err)
	if len(devices) < n {
		t.Skipf("%d GPUs, but the test needs %d", len(devices), n)
	}
	var cs []*card
	for _, device := range devices[:n] {
		c := &card{device: device}
		c.info, err = device.Info()
		require.NoError(t, err)
		c.Context, err = device.Retain()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Release()) })
		c.Kernels, err = kernels.Load(c.Context, c.info.SMs)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Unload()) })
		c.q, err = c.NewStream()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.q.Close()) })
		c.out, err = c.NewSlot()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.out.Close()) })
		c.gate, err = c.NewGate()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.gate.Close()) })
		c.mem = c.buffer(t, gpuBuffer)
		cs = append(cs, c)
	}
	return cs
}

func (c *card) buffer(t *testing.T, n int64) cuda.Ptr {
	p, err := c.Alloc(n)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Free(p)) })
	return p
}

func (c *card) pinned(t *testing.T, n int64) cuda.HostMemory {
	h, err := c.AllocHost(n)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.FreeHost(h)) })
	return h
}

// finish waits until the streams of the cards are empty.
func finish(t *testing.T, cs ...*card) {
	t.Helper()
	for end := time.Now().Add(gpuWait); len(cs) > 0; {
		done, err := cs[0].q.Done()
		require.NoError(t, err)
		if done {
			cs = cs[1:]
		} else {
			require.True(t, time.Now().Before(end), "the GPU is still busy after %v", gpuWait)
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// speed returns the median GB/s of five samples of what issue queues, gpuBuffer
// bytes in each loop. The driver may not be able to queue staged copies behind a
// gate.
func (c *card) speed(t *testing.T, gated bool, issue func(loops int) error) float64 {
	t.Helper()
	start, err := c.NewEvent()
	require.NoError(t, err)
	end, err := c.NewEvent()
	require.NoError(t, err)
	var gbps []float64
	for range 5 {
		c.gate.Shut()
		if gated {
			require.NoError(t, c.Hold(c.q, c.gate, time.Second))
		}
		require.NoError(t, issue(4))
		require.NoError(t, c.q.Record(start))
		require.NoError(t, issue(gpuLoops))
		require.NoError(t, c.q.Record(end))
		c.gate.Open()
		finish(t, c)
		assert.False(t, c.gate.Late(), "the host was slower than the gate's timeout")
		d, err := end.Since(start)
		require.NoError(t, err)
		gbps = append(gbps, gpuBuffer*gpuLoops/float64(d))
	}
	require.NoError(t, start.Close())
	require.NoError(t, end.Close())
	slices.Sort(gbps)
	return gbps[len(gbps)/2]
}

func (c *card) ce(dst, src cuda.Ptr) func(int) error {
	return func(loops int) error {
		for range loops {
			if err := c.q.Copy(dst, src, gpuBuffer); err != nil {
				return err
			}
		}
		return nil
	}
}

func (c *card) sm(dst, src cuda.Ptr) func(int) error {
	return func(loops int) error { return c.Copy(c.q, dst, src, gpuBuffer, loops) }
}

func TestGPUAnswers(t *testing.T) {
	c := cards(t, 1)[0]
	t.Logf("%+v", c.info)
	for _, a := range []cuda.Attribute{cuda.ClockRate, cuda.ComputeModeNow, cuda.MemoryClockRate, cuda.MemoryBusWidth, cuda.L2CacheSize} {
		v, err := c.device.Attribute(a)
		require.NoError(t, err)
		t.Logf("attribute %d: %d", a, v)
	}
	free, total, err := c.MemInfo()
	require.NoError(t, err)
	assert.Less(t, free, total)

	_, err = c.Alloc(total + 1<<30)
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.OutOfMemory, e.Code)
	_, err = c.LoadModule(".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { nonsense; }\n")
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.InvalidPTX, e.Code)
	assert.Contains(t, e.Log, "line 4", "what the compiler says")
	t.Log(err)
	_, err = c.LoadModule(".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n")
	require.ErrorAs(t, err, &e)
	assert.Contains(t, []int{cuda.UnsupportedPTX, cuda.InvalidPTX}, e.Code)
	t.Logf("%v; %s", err, e.Advice())
}

func TestGPUHostAndLocalSpeed(t *testing.T) {
	c := cards(t, 1)[0]
	h := c.pinned(t, gpuBuffer)
	other := c.buffer(t, gpuBuffer)
	for _, m := range []struct {
		name     string
		dst, src cuda.Ptr
	}{{"H2D", c.mem, h.Ptr}, {"D2H", h.Ptr, c.mem}, {"local", other, c.mem}} {
		t.Logf("%-6s CE %8.2f GB/s", m.name, c.speed(t, true, c.ce(m.dst, m.src)))
		t.Logf("%-6s SM %8.2f GB/s", m.name, c.speed(t, true, c.sm(m.dst, m.src)))
	}
}

// TestGPUVerify damages memory in each way that verify tells apart.
func TestGPUVerify(t *testing.T) {
	c := cards(t, 1)[0]
	const n = gpuBuffer - 48 // not a multiple of a stride
	p, old := kernels.Pattern{Key: 1<<63 | 12345}, kernels.Pattern{Key: 999}
	expect := kernels.Expectation{Pattern: p, Total: gpuBuffer, Previous: old, Poison: gpuPoison}
	h := c.pinned(t, 1<<16)
	check := func() kernels.Verified {
		require.NoError(t, c.Verify(c.q, c.out, c.mem, n, expect))
		finish(t, c)
		return c.out.Verified()
	}
	require.NoError(t, c.Fill(c.q, c.mem, p, 0, gpuBuffer))
	assert.Equal(t, kernels.Verified{}, check())
	for _, offset := range []int64{0, n/2&^15 - 1<<15, gpuBuffer - 1<<16} {
		require.NoError(t, c.q.Copy(h.Ptr, c.mem+cuda.Ptr(offset), 1<<16))
		finish(t, c)
		want := make([]byte, 1<<16)
		p.Fill(want, offset)
		assert.Equal(t, want, h.Bytes, "the GPU's pattern is not the host's at %#x", offset)
	}

	at := func(offset int64) cuda.Ptr { return c.mem + cuda.Ptr(offset) }
	require.NoError(t, c.q.Fill(at(4096), gpuPoison, 4096))
	require.NoError(t, c.q.Fill(at(1<<20), 0, 1<<20))
	require.NoError(t, c.q.Fill(at(5<<20), ^uint32(0), 64))
	require.NoError(t, c.Fill(c.q, at(7<<20), old, 7<<20, 1<<20))
	require.NoError(t, c.Fill(c.q, at(9<<20), p, 1<<20, 4096))
	require.NoError(t, c.q.Fill(at(n-4), 1, 4))
	got := check()
	assert.Equal(t, kernels.Verified{
		Poison: 512, Zero: 1 << 17, Ones: 8, Stale: 1 << 17, Misplaced: 512, Foreign: 1,
		First: 4096, Last: n - 8,
	}, got)

	// A window in the middle, with its own place in the pattern.
	expect.Offset = 2 << 20
	require.NoError(t, c.Verify(c.q, c.out, at(2<<20), 1<<20, expect))
	finish(t, c)
	assert.Equal(t, kernels.Verified{}, c.out.Verified())
	require.NoError(t, c.Verify(c.q, c.out, at(7<<20), 1<<20, kernels.Expectation{Pattern: p, Offset: 7 << 20, Total: gpuBuffer, Poison: gpuPoison}))
	finish(t, c)
	assert.Equal(t, kernels.Verified{Foreign: 1 << 17, First: 7 << 20, Last: 8<<20 - 8}, c.out.Verified())

	// All wrong, which must not take long either.
	require.NoError(t, c.q.Fill(c.mem, gpuPoison, gpuBuffer))
	expect.Offset = 0
	assert.Equal(t, kernels.Verified{Poison: n / 8, Last: n - 8}, check())
	took, err := c.out.Elapsed()
	require.NoError(t, err)
	t.Logf("verifying %d MiB that are all wrong: %v", gpuBuffer>>20, took)
}

func TestGPUVerifySpeed(t *testing.T) {
	c := cards(t, 1)[0]
	free, _, err := c.MemInfo()
	require.NoError(t, err)
	size := min(16<<30, free/2&^(1<<20-1))
	mem := c.buffer(t, size)
	p := kernels.Pattern{Key: 77}
	require.NoError(t, c.Fill(c.q, mem, p, 0, size))
	finish(t, c)
	fastest := func(run func() error) time.Duration {
		best := time.Duration(1 << 62)
		for range 7 {
			require.NoError(t, run())
			finish(t, c)
			d, err := c.out.Elapsed()
			require.NoError(t, err)
			best = min(best, d)
		}
		return best
	}
	read := fastest(func() error { return c.Read(c.q, c.out, mem, size) })
	verify := fastest(func() error {
		return c.Verify(c.q, c.out, mem, size, kernels.Expectation{Pattern: p, Total: size, Poison: gpuPoison})
	})
	assert.Equal(t, kernels.Verified{}, c.out.Verified())
	gbps := func(d time.Duration) float64 { return float64(size) / float64(d) }
	t.Logf("%d MiB: read %v, %.0f GB/s; verify %v, %.0f GB/s; ratio %.3f", size>>20, read, gbps(read), verify, gbps(verify), float64(verify)/float64(read))

	sum := func() uint64 {
		require.NoError(t, c.Read(c.q, c.out, mem, 1<<20))
		finish(t, c)
		return c.out.Sum()
	}
	var want uint64
	for i := range uint64(1 << 17) {
		want ^= p.Word(i)
	}
	assert.Equal(t, want, sum())
}

// latency returns the nanoseconds of a load by c from the chain at base: the mean
// over all multiprocessors, as nvbandwidth does it, and the least and the most of
// them.
func (c *card) latency(t *testing.T, base cuda.Ptr, sys bool) string {
	const total = 1_000_000
	var ns []float64
	var sum float64
	each := total / c.info.SMs
	seen := map[int]bool{}
	for block := range c.info.SMs {
		require.NoError(t, c.Chase(c.q, c.out, base, each, block, sys))
		finish(t, c)
		got := c.out.Chased()
		assert.Equal(t, kernels.ChainEnd(base, 2<<20, each), got.End)
		seen[got.SM] = true
		d, err := c.out.Elapsed()
		require.NoError(t, err)
		ns = append(ns, float64(d)/float64(each))
		sum += float64(d) / float64(each)
	}
	return fmt.Sprintf("mean %.1f ns, %.1f to %.1f, of %d multiprocessors", sum/float64(c.info.SMs), slices.Min(ns), slices.Max(ns), len(seen))
}

// chain lays a chain of 2 MiB out at mem, by the GPU.
func (c *card) chain(t *testing.T, mem cuda.Ptr) cuda.Ptr {
	h := c.pinned(t, 2<<20)
	kernels.Chain(h.Bytes, mem)
	require.NoError(t, c.q.Copy(mem, h.Ptr, 2<<20))
	finish(t, c)
	return mem
}

func TestGPULatency(t *testing.T) {
	c := cards(t, 1)[0]
	mem, host := c.chain(t, c.buffer(t, 2<<20)), c.chain(t, c.pinned(t, 2<<20).Ptr)
	for _, sys := range []bool{false, true} {
		t.Logf("own memory, sys %v: %s", sys, c.latency(t, mem, sys))
		t.Logf("host memory, sys %v: %s", sys, c.latency(t, host, sys))
	}
}

// TestGPUFlagsOnOne exchanges flags between two streams of one GPU.
func TestGPUFlagsOnOne(t *testing.T) {
	a := cards(t, 1)[0]
	b := *a
	var err error
	b.q, err = a.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.q.Close()) })
	b.out, err = a.NewSlot()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.out.Close()) })
	b.mem = a.mem + gpuBuffer/2
	exchange(t, a, &b)
}

// exchange runs all kernels that need two sides.
func exchange(t *testing.T, a, b *card) {
	const rounds, timeout = 10_000, 5 * time.Second
	zero := func() {
		for _, c := range []*card{a, b} {
			require.NoError(t, c.q.Fill(c.mem, 0, 1<<20))
			finish(t, c)
		}
	}
	zero()
	require.NoError(t, a.PingPong(a.q, a.out, a.mem, b.mem, rounds, true, timeout))
	require.NoError(t, b.PingPong(b.q, b.out, b.mem, a.mem, rounds, false, timeout))
	finish(t, a, b)
	for _, c := range []*card{a, b} {
		got := c.out.Exchanged()
		assert.Equal(t, rounds, got.Rounds)
		assert.False(t, got.TimedOut)
		t.Logf("flag round trip %v", got.Elapsed/rounds)
	}

	zero()
	ch := kernels.Channel{Data: b.mem + 4096, Flag: b.mem, Ack: a.mem, Words: 65536 / 8, Rounds: 1000, Seed: 42}
	require.NoError(t, a.Produce(a.q, a.out, ch, timeout))
	require.NoError(t, b.Consume(b.q, b.out, ch, timeout))
	finish(t, a, b)
	for _, c := range []*card{a, b} {
		got := c.out.Exchanged()
		assert.Equal(t, ch.Rounds, got.Rounds)
		assert.False(t, got.TimedOut)
		assert.Zero(t, got.Wrong)
		t.Logf("64 KiB and a flag: %v", got.Elapsed/time.Duration(ch.Rounds))
	}
	// A producer of other data is found out, and one that is not there waited for
	// in vain.
	zero()
	other := ch
	other.Seed, ch.Rounds, other.Rounds = 43, 3, 3
	require.NoError(t, a.Produce(a.q, a.out, other, timeout))
	require.NoError(t, b.Consume(b.q, b.out, ch, timeout))
	finish(t, a, b)
	assert.EqualValues(t, 3*ch.Words, b.out.Exchanged().Wrong)
	assert.Zero(t, b.out.Exchanged().WrongRound)
	zero()
	require.NoError(t, b.Consume(b.q, b.out, ch, 100*time.Millisecond))
	require.NoError(t, a.PingPong(a.q, a.out, a.mem, b.mem+4096, 1, true, 100*time.Millisecond))
	finish(t, a, b)
	assert.True(t, b.out.Exchanged().TimedOut)
	assert.True(t, a.out.Exchanged().TimedOut)
	assert.Zero(t, a.out.Exchanged().Rounds)

	zero()
	for _, c := range []*card{a, b} {
		require.NoError(t, c.Atomics(c.q, c.out, b.mem, 256, 1000))
	}
	finish(t, a, b)
	var want kernels.Atomics
	for _, c := range []*card{a, b} {
		got := c.out.Atomics()
		want.Added += got.Added
		want.Swapped += got.Swapped
	}
	h := b.pinned(t, 16)
	require.NoError(t, b.q.Copy(h.Ptr, b.mem, 16))
	finish(t, b)
	assert.EqualValues(t, want.Added, h.Load(0))
	assert.EqualValues(t, want.Swapped, h.Load(8))
	assert.EqualValues(t, 2*256*1000, want.Added)
	t.Logf("atomics: %+v", want)
}

func TestGPUGate(t *testing.T) {
	c := cards(t, 1)[0]
	require.NoError(t, c.Hold(c.q, c.gate, 50*time.Millisecond))
	finish(t, c)
	assert.True(t, c.gate.Late(), "nobody opened the gate, yet the stream went on")
	c.gate.Shut()
	require.NoError(t, c.Hold(c.q, c.gate, gpuWait))
	done, err := c.q.Done()
	require.NoError(t, err)
	assert.False(t, done)
	c.gate.Open()
	finish(t, c)
	assert.False(t, c.gate.Late())
}

// TestGPUPairs measures and verifies all ordered pairs of the first two GPUs.
func TestGPUPairs(t *testing.T) {
	cs := cards(t, 2)
	for _, pair := range [][2]*card{{cs[0], cs[1]}, {cs[1], cs[0]}} {
		a, b := pair[0], pair[1]
		can, err := a.device.CanAccessPeer(b.device)
		require.NoError(t, err)
		attributes, err := a.device.P2PAttributes(b.device)
		require.NoError(t, err)
		t.Logf("%s to %s: access %v, %+v", a.info.BDF, b.info.BDF, can, attributes)
		if !can {
			continue
		}
		staged := a.speed(t, false, func(loops int) error {
			for range loops {
				if err := a.q.CopyPeer(b.mem, b.Context, a.mem, a.Context, gpuBuffer); err != nil {
					return err
				}
			}
			return nil
		})
		t.Logf("staged   %8.2f GB/s", staged)
		require.NoError(t, a.EnablePeer(b.Context))
		require.NoError(t, b.EnablePeer(a.Context))
		t.Logf("CE write %8.2f GB/s", a.speed(t, true, a.ce(b.mem, a.mem)))
		t.Logf("CE read  %8.2f GB/s", a.speed(t, true, a.ce(a.mem, b.mem)))
		t.Logf("SM write %8.2f GB/s", a.speed(t, true, a.sm(b.mem, a.mem)))
		t.Logf("SM read  %8.2f GB/s", a.speed(t, true, a.sm(a.mem, b.mem)))
		mem := b.chain(t, b.buffer(t, 2<<20))
		for _, sys := range []bool{false, true} {
			t.Logf("latency, sys %v: %s", sys, a.latency(t, mem, sys))
		}
		p := kernels.Pattern{Key: 31}
		require.NoError(t, b.q.Fill(b.mem, gpuPoison, gpuBuffer))
		require.NoError(t, a.Fill(a.q, a.mem, p, 0, gpuBuffer))
		finish(t, a, b)
		require.NoError(t, a.sm(b.mem, a.mem)(1))
		finish(t, a)
		require.NoError(t, b.Verify(b.q, b.out, b.mem, gpuBuffer, kernels.Expectation{Pattern: p, Total: gpuBuffer, Poison: gpuPoison}))
		finish(t, b)
		assert.Equal(t, kernels.Verified{}, b.out.Verified())
		exchange(t, a, b)
		require.NoError(t, a.DisablePeer(b.Context))
		require.NoError(t, b.DisablePeer(a.Context))
	}
}
