package kernels_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/fake"
	"mkp2pimg/internal/cuda/kernels"
)

func TestPattern(t *testing.T) {
	p, q := kernels.Pattern{Key: 7}, kernels.Pattern{Key: 1 << 60}
	seen := map[uint64]bool{}
	for i := range uint64(1 << 12) {
		w := p.Word(i << 20)
		assert.Equal(t, i<<20, p.Index(w))
		seen[w], seen[q.Word(i<<20)] = true, true
	}
	assert.Len(t, seen, 2<<12, "words that are equal")
	for range 1000 {
		i := rand.Uint64()
		assert.Equal(t, i, q.Index(q.Word(i)))
	}
	var b [64]byte
	p.Fill(b[:], 0)
	var tail [16]byte
	p.Fill(tail[:], 48)
	assert.Equal(t, b[48:], tail[:])
}

// FuzzMisplaced shows that a damaged word is taken for a word of another place
// only by chance.
func FuzzMisplaced(f *testing.F) {
	f.Add(uint64(1), uint64(3), uint8(0))
	f.Add(uint64(1<<63), uint64(1<<30), uint8(63))
	f.Fuzz(func(t *testing.T, key, i uint64, bit uint8) {
		p := kernels.Pattern{Key: key}
		i %= 1 << 34 // words of 128 GiB
		assert.NotEqual(t, i, p.Index(p.Word(i)^1<<(bit%64)))
	})
}

func TestChain(t *testing.T) {
	const base, size = 1 << 30, 1024
	b := make([]byte, size)
	kernels.Chain(b, base)
	at := cuda.Ptr(base)
	for i := range 20 {
		assert.Equal(t, kernels.ChainEnd(base, size, i), at)
		o := at - base
		at = cuda.Ptr(b[o]) | cuda.Ptr(b[o+1])<<8 | cuda.Ptr(b[o+2])<<16 | cuda.Ptr(b[o+3])<<24
	}
}

// A side is one GPU with all it needs to run a kernel.
type side struct {
	cuda.Context
	*kernels.Kernels
	q   cuda.Stream
	out *kernels.Slot
	mem cuda.Ptr
}

const bufferSize = 1 << 20

// pair returns the two GPUs of sys, with access to each other.
func pair(t *testing.T, sys *fake.System) [2]*side {
	var sides [2]*side
	devices, err := sys.Devices()
	require.NoError(t, err)
	for i := range sides {
		s := new(side)
		sides[i] = s
		s.Context, err = devices[i].Retain()
		require.NoError(t, err)
		s.Kernels, err = kernels.Load(s.Context, 4)
		require.NoError(t, err)
		s.q, err = s.NewStream()
		require.NoError(t, err)
		s.out, err = s.NewSlot()
		require.NoError(t, err)
		s.mem, err = s.Alloc(bufferSize)
		require.NoError(t, err)
	}
	require.NoError(t, sides[0].EnablePeer(sides[1].Context))
	require.NoError(t, sides[1].EnablePeer(sides[0].Context))
	return sides
}

// wait polls until all sides are done.
func wait(t *testing.T, sides ...*side) {
	for _, s := range sides {
		for n := 0; ; n++ {
			done, err := s.q.Done()
			require.NoError(t, err)
			if done {
				break
			}
			require.Less(t, n, 1000, "a kernel does not end")
		}
	}
}

func system() *fake.System {
	gpu := fake.GPU{Info: cuda.DeviceInfo{Memory: 1 << 30, SMs: 4}, HostGBps: 20, Copy: 1000, Latency: 300 * time.Nanosecond}
	return &fake.System{GPUs: []fake.GPU{gpu, gpu}, Default: fake.Link{GBps: 25, Latency: time.Microsecond}}
}

const poison = 0xb5c0ffee

// TestVerify lets every kind of wrong word be told apart.
func TestVerify(t *testing.T) {
	const n = bufferSize
	p, old := kernels.Pattern{Key: 5}, kernels.Pattern{Key: 6}
	for _, tc := range []struct {
		name   string
		damage func(*fake.Link)
		want   kernels.Verified
	}{
		{"right", func(*fake.Link) {}, kernels.Verified{}},
		{"lost", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop, Offset: 4096, Size: 8192} },
			kernels.Verified{Poison: 1024, First: 4096, Last: 4096 + 8192 - 8}},
		{"mirror", func(l *fake.Link) { l.Mirror = true }, kernels.Verified{Poison: n / 8, Last: n - 8}},
		{"zeros", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Clear, Offset: n - 8, Size: 8} },
			kernels.Verified{Zero: 1, First: n - 8, Last: n - 8}},
		{"ones", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Ones, Size: 16} }, kernels.Verified{Ones: 2, Last: 8}},
		{"flips", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Flip} }, kernels.Verified{Foreign: n / 4096, Last: n - 4096}},
		{"offset window", func(l *fake.Link) { l.Offset = 65536 },
			kernels.Verified{Poison: 8192, Misplaced: n/8 - 8192, Last: n - 8}},
		{"aliasing", func(l *fake.Link) { l.Alias = n / 2 },
			kernels.Verified{Misplaced: n / 16, Poison: n / 16, Last: n - 8}},
		{"copy engines only", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Clear, Only: fake.CE} }, kernels.Verified{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(&sys.Default)
			ab := pair(t, sys)
			a, b := ab[0], ab[1]
			require.NoError(t, b.q.Fill(b.mem, poison, n))
			require.NoError(t, a.Fill(a.q, a.mem, p, 0, n))
			wait(t, a, b)
			require.NoError(t, a.Copy(a.q, b.mem, a.mem, n, 2))
			wait(t, a)
			require.NoError(t, b.Verify(b.q, b.out, b.mem, n, kernels.Expectation{Pattern: p, Total: n, Previous: old, Poison: poison}))
			wait(t, b)
			assert.Equal(t, tc.want, b.out.Verified())
		})
	}
	sys := system()
	a := pair(t, sys)[0]
	require.NoError(t, a.Fill(a.q, a.mem, old, 4096, 4096))
	require.NoError(t, a.Verify(a.q, a.out, a.mem, 4096, kernels.Expectation{Pattern: p, Offset: 4096, Total: n, Previous: old, Poison: poison}))
	wait(t, a)
	assert.Equal(t, kernels.Verified{Stale: 512, First: 4096, Last: 8184}, a.out.Verified())
	took, err := a.out.Elapsed()
	require.NoError(t, err)
	assert.Positive(t, took)
	assert.ErrorContains(t, a.Verify(a.q, a.out, a.mem, 8, kernels.Expectation{}), "multiple of 16")
}

func TestCopySpeed(t *testing.T) {
	sys := system()
	sys.Default.SMGBps = 20
	ab := pair(t, sys)
	a, b := ab[0], ab[1]
	start, err := a.NewEvent()
	require.NoError(t, err)
	end, err := a.NewEvent()
	require.NoError(t, err)
	gate, err := a.NewGate()
	require.NoError(t, err)
	for _, s := range ab {
		require.NoError(t, s.Hold(s.q, gate, time.Second))
	}
	require.NoError(t, a.q.Record(start))
	require.NoError(t, a.Copy(a.q, b.mem, a.mem, bufferSize, 8))
	require.NoError(t, a.q.Record(end))
	require.NoError(t, b.q.Wait(start))
	require.NoError(t, b.Copy(b.q, b.mem, a.mem, bufferSize, 8)) // the same direction
	done, err := a.q.Done()
	require.NoError(t, err)
	assert.False(t, done)
	gate.Open()
	wait(t, a, b)
	assert.False(t, gate.Late())
	took, err := end.Since(start)
	require.NoError(t, err)
	assert.InDelta(t, 10, 8*bufferSize/float64(took), 0.01, "half of the link")

	gate.Shut()
	require.NoError(t, a.Hold(a.q, gate, 20*time.Millisecond))
	wait(t, a)
	assert.True(t, gate.Late())
	require.NoError(t, gate.Close())
}

func TestChase(t *testing.T) {
	sys := system()
	ab := pair(t, sys)
	a, b := ab[0], ab[1]
	h, err := b.AllocHost(bufferSize)
	require.NoError(t, err)
	kernels.Chain(h.Bytes, b.mem)
	require.NoError(t, b.q.Copy(b.mem, h.Ptr, bufferSize))
	wait(t, b)
	require.NoError(t, a.Chase(a.q, a.out, b.mem, 1000, 3, false))
	wait(t, a)
	assert.Equal(t, kernels.ChainEnd(b.mem, bufferSize, 1000), a.out.Chased().End)
	took, err := a.out.Elapsed()
	require.NoError(t, err)
	assert.Equal(t, time.Millisecond, took)
}

func TestFlags(t *testing.T) {
	for _, tc := range []struct {
		name    string
		damage  func(*fake.Link)
		rounds  int
		late    bool
		wrong   bool
		pingOff bool // the data is wrong, not the flags
	}{
		{"right", func(*fake.Link) {}, 10, false, false, false},
		{"a flag is lost", func(l *fake.Link) { l.LoseFlag = 5 }, 4, true, false, false},
		{"all writes are lost", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop} }, 0, true, false, false},
		{"flags overtake data", func(l *fake.Link) { l.FlagFirst = true }, 10, false, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(&sys.Default)
			ab := pair(t, sys)
			a, b := ab[0], ab[1]
			flags := cuda.Ptr(bufferSize - 64)
			require.NoError(t, a.PingPong(a.q, a.out, a.mem, b.mem, 10, true, time.Second))
			require.NoError(t, b.PingPong(b.q, b.out, b.mem, a.mem, 10, false, time.Second))
			wait(t, a, b)
			assert.Equal(t, tc.rounds, a.out.Exchanged().Rounds)
			assert.Equal(t, tc.late, a.out.Exchanged().TimedOut)
			if !tc.late {
				assert.Equal(t, 20*time.Microsecond, a.out.Exchanged().Elapsed)
			}

			c := kernels.Channel{Data: b.mem + 4096, Flag: b.mem + flags, Ack: a.mem + flags, Words: 1024, Rounds: 10, Seed: 3}
			require.NoError(t, a.Produce(a.q, a.out, c, time.Second))
			require.NoError(t, b.Consume(b.q, b.out, c, time.Second))
			wait(t, a, b)
			got := b.out.Exchanged()
			assert.Equal(t, tc.rounds, got.Rounds)
			assert.Equal(t, tc.late, got.TimedOut)
			assert.Equal(t, tc.wrong, got.Wrong > 0)
			assert.Zero(t, got.WrongRound)
		})
	}
}

func TestAtomics(t *testing.T) {
	for kind, want := range map[fake.AtomicKind]int{fake.AtomicsWork: 2 * 32 * 100, fake.AtomicsLost: 32*100 + 32*50} {
		sys := system()
		sys.Default.Atomics = kind
		ab := pair(t, sys)
		for _, s := range ab {
			require.NoError(t, s.Atomics(s.q, s.out, ab[1].mem, 32, 100))
		}
		wait(t, ab[:]...)
		h, err := ab[1].AllocHost(16)
		require.NoError(t, err)
		require.NoError(t, ab[1].q.Copy(h.Ptr, ab[1].mem, 16))
		wait(t, ab[1])
		assert.EqualValues(t, want, h.Load(0))
		assert.EqualValues(t, want, h.Load(8))
		assert.EqualValues(t, 3200, ab[0].out.Atomics().Added)
	}
	sys := system()
	sys.Default.Atomics = fake.AtomicsFail
	ab := pair(t, sys)
	require.NoError(t, ab[0].Atomics(ab[0].q, ab[0].out, ab[1].mem, 32, 1))
	_, err := ab[0].q.Done()
	var e *cuda.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, cuda.LaunchFailed, e.Code)
	_, err = ab[0].Alloc(1)
	assert.ErrorAs(t, err, &e, "the context stays broken")
}
