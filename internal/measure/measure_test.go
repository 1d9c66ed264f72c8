package measure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/fake"
)

const (
	bdf0 = "0000:41:00.0"
	bdf1 = "0000:42:00.0"
)

// system returns two GPUs with a link of 4 MB/s, 2 MB/s when staged. It is slow
// so that few copies fill the time of a sample.
func system() *fake.System {
	gpu := func(bdf string) fake.GPU {
		return fake.GPU{
			Info:     cuda.DeviceInfo{BDF: bdf, Name: "Simulated GPU", Memory: 1 << 30, SMs: 4, ComputeMajor: 8, ComputeMinor: 9},
			HostGBps: 0.005,
			Copy:     0.008,
			Latency:  300 * time.Nanosecond,
		}
	}
	return &fake.System{
		CUDA: 13000,
		GPUs: []fake.GPU{gpu(bdf0), gpu(bdf1)},
		Default: fake.Link{
			GBps: 0.004, StagedGBps: 0.002, Latency: time.Microsecond,
			Attributes: cuda.P2PAttributes{PerformanceRank: 1, Access: true},
		},
	}
}

// quick are settings for a test: the buffer is one window.
var quick = Settings{Size: 64 << 10, Samples: 10, Staged: true, Seed: 1, Window: 512 << 10, SlowFraction: DefaultSlowFraction}

// large returns quick with a buffer of several windows.
func large() Settings {
	set := quick
	set.Size = 9 << 20
	return set
}

func measurePair(t *testing.T, sys *fake.System, set Settings) Pair {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return ProbePair(ctx, sys, bdf0, bdf1, 0, set, func(Pair) {})
}

// medians returns the medians of measurements in the order that they were made.
func medians(ms []Measurement) map[string]float64 {
	all := map[string]float64{}
	for _, m := range ms {
		all[fmt.Sprintf("%s %s %s %s", m.Quantity, m.Direction, m.Method, m.Load)] = m.Median
	}
	return all
}

// near checks that got has the keys of want with about the same values.
func near(t *testing.T, want, got map[string]float64) {
	t.Helper()
	for name, v := range want {
		assert.InEpsilon(t, v, got[name], 0.01, name)
	}
	assert.Len(t, got, len(want), "%v", got)
}

func TestEnumerate(t *testing.T) {
	inv, err := Enumerate(system())
	require.NoError(t, err)
	assert.Equal(t, "13.0", inv.CUDAVersion)
	require.Len(t, inv.GPUs, 2)
	assert.Equal(t, bdf1, inv.GPUs[1].BDF)
}

func TestGoodPair(t *testing.T) {
	sys := system()
	set := quick
	set.Opposed, set.Latency, set.Sweep = true, true, []int64{4 << 10, 128 << 10}
	p := measurePair(t, sys, set)
	require.Nil(t, p.Problem)
	assert.Equal(t, OK, p.Verdict, p.Reason)
	assert.Equal(t, "write 0.00 GB/s, read 0.00 GB/s, data verified by its owner", p.Reason)
	assert.True(t, p.CanAccess)
	assert.Equal(t, 1, p.Attributes.PerformanceRank)
	assert.Empty(t, p.Step)
	near(t, map[string]float64{
		"bandwidth write staged ": 0.002, "bandwidth read staged ": 0.002,
		"bandwidth write ce ": 0.004, "bandwidth read ce ": 0.004, "bandwidth write sm ": 0.004, "bandwidth read sm ": 0.004,
		"bandwidth write ce opposed": 0.004, "bandwidth read ce opposed": 0.004, "bandwidth write sm opposed": 0.004, "bandwidth read sm opposed": 0.004,
		"bandwidth write ce total": 0.008, "bandwidth read ce total": 0.008, "bandwidth write sm total": 0.008, "bandwidth read sm total": 0.008,
		"load-latency read sm ": 1000, "flag-latency write sm ": 2000, "issue-rate write ce ": 0.004e9 / 16,
	}, medians(p.Measurements))
	for _, m := range append(p.Measurements, p.Sweep...) {
		assert.Len(t, m.Samples, set.Samples)
	}
	require.Len(t, p.Sweep, 8)
	for i, m := range p.Sweep {
		assert.Equal(t, set.Sweep[i%2], m.Size)
		assert.InEpsilon(t, 0.004, m.Median, 0.01)
	}
	seen := map[Phase]int{}
	for _, c := range p.Checks {
		seen[c.Phase]++
		assert.False(t, c.Failed())
		assert.Positive(t, c.Bytes)
	}
	assert.Equal(t, map[Phase]int{Before: 8, After: 12, Handshake: 2, Reached: 8, Together: 8, Swept: 16}, seen)
	assert.Equal(t, &Atomics{Want: 2 * atomicThreads * atomicAdds, Got: 2 * atomicThreads * atomicAdds}, p.Atomics)
	assert.True(t, p.Atomics.Work())
	require.Len(t, p.Ways, 4)
	for _, w := range p.Ways {
		assert.Equal(t, OK, w.Verdict)
		assert.InEpsilon(t, 2, w.OnOff, 0.01)
	}
	assert.Positive(t, p.VerifySeconds)
	assert.Less(t, p.VerifySeconds, p.Seconds)
	assert.Zero(t, sys.Allocations(), "memory left allocated")
}

// The owner's kernel verifies all of a buffer, the host windows of it.
func TestWhatIsVerified(t *testing.T) {
	sys := system()
	sys.Default.GBps = 0.4
	p := measurePair(t, sys, large())
	require.Equal(t, OK, p.Verdict, p.Reason)
	for _, c := range p.Checks {
		switch {
		case c.Phase != Before && c.Phase != After:
		case c.Reader == BySM:
			assert.Equal(t, large().Size, c.Bytes)
		default:
			assert.Less(t, c.Bytes, large().Size)
		}
	}
}

func TestReach(t *testing.T) {
	for _, tc := range []struct {
		name    string
		set     func(*Settings)
		memory  int64
		size    int64
		windows int // 0: more than one
	}{
		{"all that is free", func(s *Settings) { s.Window = 0 }, reserve + 4<<20, 2 << 20, 0},
		{"as much as asked for", func(*Settings) {}, 1 << 30, 512 << 10, 0},
		{"all of it verified", func(s *Settings) { s.Full = true }, 1 << 30, 512 << 10, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			set := quick
			set.Staged = false
			tc.set(&set)
			sys := system()
			sys.GPUs[1].Info.Memory = tc.memory
			p := measurePair(t, sys, set)
			require.Equal(t, OK, p.Verdict, p.Reason)
			assert.Equal(t, tc.size, p.Reach.Size)
			assert.Equal(t, tc.memory, p.Reach.Memory)
			if tc.windows > 0 {
				assert.Len(t, p.Reach.Windows, tc.windows)
			} else {
				assert.Greater(t, len(p.Reach.Windows), 1)
			}
		})
	}
}

// TestFaults shows that each way a link can fail gets its verdict, and that no
// bandwidth covers up wrong data.
func TestFaults(t *testing.T) {
	sticky := &cuda.Error{Call: "cuStreamQuery", Code: cuda.LaunchFailed, Name: "CUDA_ERROR_LAUNCH_FAILED", Text: "unspecified launch failure"}
	denied := &cuda.Error{Call: "cuCtxEnablePeerAccess", Code: cuda.PeerAccessDenied, Name: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", Text: "peer access is not supported between these two devices"}
	for _, tc := range []struct {
		name    string
		damage  func(*fake.Link)
		verdict Verdict
		reason  string      // part of it
		ways    []Verdict   // write and read by CE, write and read by SM
		kinds   []WrongKind // of which the first wrong word is
		phase   Phase       // of the first failed check
		mirror  bool
	}{
		{name: "writes go to a private mirror", damage: func(l *fake.Link) { l.Mirror = true },
			verdict: WrongData, ways: []Verdict{WrongData, WrongData, WrongData, WrongData}, kinds: []WrongKind{Unwritten}, phase: Before, mirror: true, reason: "its mapping of the peer leads elsewhere"},
		{name: "writes are lost", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop} },
			verdict: WrongData, ways: []Verdict{WrongData, OK, WrongData, OK}, kinds: []WrongKind{Unwritten}, phase: Before, reason: "write by ce, before the load"},
		{name: "reads give zeros, writes are fine", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Clear} },
			verdict: WrongData, ways: []Verdict{OK, WrongData, OK, WrongData}, kinds: []WrongKind{Zero}, phase: Before, reason: "read by ce, before the load"},
		{name: "reads give all ones", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Ones} },
			verdict: WrongData, ways: []Verdict{OK, WrongData, OK, WrongData}, kinds: []WrongKind{Ones}, phase: Before},
		{name: "only stores of kernels are lost", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop, Only: fake.SM, Size: 4096} },
			verdict: WrongData, ways: []Verdict{OK, OK, WrongData, OK}, kinds: []WrongKind{Unwritten}, phase: Before, reason: "write by sm"},
		{name: "only reads of the copy engine are wrong", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Clear, Only: fake.CE} },
			verdict: WrongData, ways: []Verdict{OK, WrongData, OK, OK}, kinds: []WrongKind{Zero}, phase: Before, reason: "read by ce"},
		{name: "one bit per page is flipped in reads", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Flip} },
			verdict: WrongData, kinds: []WrongKind{Foreign}, phase: Before},
		{name: "the first page is not written", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop, Size: 4096} },
			verdict: WrongData, kinds: []WrongKind{Unwritten}, phase: Before, reason: "the first at offset 0x0"},
		{name: "the last page is not written", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, Offset: quick.Size - 4096, Size: 4096}
		}, verdict: WrongData, kinds: []WrongKind{Unwritten}, phase: Before, reason: "0xf000"},
		{name: "the mapping is off by 4 KiB", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Shift, Shift: 4096} },
			verdict: WrongData, kinds: []WrongKind{Misplaced}, phase: Before, reason: "misplaced from 0x1000"},
		{name: "the mapping repeats itself behind the buffers", damage: func(l *fake.Link) { l.Alias = 128 << 10 },
			verdict: WrongData, ways: []Verdict{WrongData, OK, OK, OK}, kinds: []WrongKind{Misplaced, Unwritten}, phase: Reached, reason: "all over the peer's memory"},
		{name: "a page goes stale under load", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, Only: fake.CE, Size: 4096, After: 1}
		}, verdict: WrongData, kinds: []WrongKind{Stale}, phase: After},
		{name: "writes stop after the first", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, After: 1}
		}, verdict: WrongData, kinds: []WrongKind{Stale}, phase: After, reason: "write by ce, after the load"},
		{name: "data is damaged under load only", damage: func(l *fake.Link) {
			l.Read = fake.Fault{Kind: fake.Flip, After: 19}
		}, verdict: WrongData, kinds: []WrongKind{Foreign}, phase: After, reason: "read by ce, after the load"},
		{name: "wrong data on a fast link", damage: func(l *fake.Link) {
			l.GBps = 0.04
			l.Read = fake.Fault{Kind: fake.Clear, Size: 8}
		}, verdict: WrongData, kinds: []WrongKind{Zero}, phase: Before, reason: "1 of"},
		{name: "flags overtake their data", damage: func(l *fake.Link) { l.FlagFirst = true },
			verdict: WrongData, ways: []Verdict{OK, OK, WrongData, OK}, phase: Handshake, reason: "write by sm, announced by a flag"},
		{name: "a flag is lost", damage: func(l *fake.Link) { l.LoseFlag = 7 },
			verdict: Hang, ways: []Verdict{OK, OK, Hang, OK}, phase: Handshake, reason: "flags never came"},
		{name: "a copy fails", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Fail, Err: sticky} },
			verdict: Unusable, ways: []Verdict{Unusable}, reason: "CUDA_ERROR_LAUNCH_FAILED"},
		{name: "a copy fails under load", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Fail, Err: sticky, After: 18} },
			verdict: Unusable, ways: []Verdict{OK, Unusable}, reason: "read by ce: bandwidth"},
		{name: "wrong data in one direction, failure in the other", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Clear}
			l.Read = fake.Fault{Kind: fake.Fail, Err: sticky}
		}, verdict: WrongData, kinds: []WrongKind{Zero}, phase: Before},
		{name: "no access", damage: func(l *fake.Link) { l.NoAccess = true },
			verdict: Unusable, reason: "cuDeviceCanAccessPeer"},
		{name: "access granted, then refused", damage: func(l *fake.Link) { l.Enable = denied },
			verdict: Unusable, reason: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
		{name: "slower than through host memory", damage: func(l *fake.Link) { l.GBps = 0.0019 },
			verdict: Slow, ways: []Verdict{Slow, Slow, OK, OK}, reason: "is slower than through host memory"},
		{name: "no atomics", damage: func(l *fake.Link) { l.Atomics = fake.AtomicsFail }, verdict: OK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			link := sys.Default
			tc.damage(&link)
			sys.Links = map[fake.Route]fake.Link{{Initiator: 0, Peer: 1}: link}
			p := measurePair(t, sys, quick)
			assert.Equal(t, tc.verdict, p.Verdict, p.Reason)
			assert.Contains(t, p.Reason, tc.reason)
			if tc.ways != nil {
				var ways []Verdict
				for _, w := range p.Ways {
					ways = append(ways, w.Verdict)
				}
				assert.Equal(t, tc.ways, ways)
			}

			i := slices.IndexFunc(p.Checks, Check.Failed)
			if tc.phase == "" {
				assert.Equal(t, -1, i)
				return
			}
			require.GreaterOrEqual(t, i, 0)
			failed := p.Checks[i]
			assert.Equal(t, tc.phase, failed.Phase)
			assert.Equal(t, tc.mirror, failed.Mirror)
			assert.False(t, failed.SourceDamaged)
			if tc.kinds != nil {
				require.NotNil(t, failed.First)
				assert.Contains(t, tc.kinds, failed.First.Kind)
			}
			if tc.phase == Before {
				_, measured := lookup(p.Measurements, failed.Direction, failed.Method)
				assert.False(t, measured, "copies were repeated although their target is unknown")
			}
		})
	}
}

func TestAtomics(t *testing.T) {
	for _, tc := range []struct {
		kind  fake.AtomicKind
		work  bool
		error string
	}{{fake.AtomicsWork, true, ""}, {fake.AtomicsLost, false, ""}, {fake.AtomicsFail, false, "CUDA_ERROR_LAUNCH_FAILED"}} {
		sys := system()
		sys.Default.Atomics = tc.kind
		p := measurePair(t, sys, quick)
		assert.Equal(t, OK, p.Verdict, p.Reason)
		assert.Equal(t, tc.work, p.Atomics.Work())
		assert.Contains(t, p.Atomics.Error, tc.error)
	}
}

// What is wrong on the way back is not held against the way there.
func TestOtherOrderIsJudgedByItself(t *testing.T) {
	for _, damage := range []func(*fake.Link){
		func(l *fake.Link) { l.Mirror = true },
		func(l *fake.Link) { l.LoseFlag = 7 },
		func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Flip} },
	} {
		sys := system()
		link := sys.Default
		damage(&link)
		sys.Links = map[fake.Route]fake.Link{{Initiator: 1, Peer: 0}: link}
		set := quick
		set.Opposed, set.Latency = true, true
		p := measurePair(t, sys, set)
		assert.Equal(t, OK, p.Verdict, p.Reason)
	}
}

// A flag that gets lost after the handshakes have gone well is not passed over.
func TestFlagLostLater(t *testing.T) {
	for there, want := range map[fake.Route]Verdict{{Initiator: 0, Peer: 1}: Hang, {Initiator: 1, Peer: 0}: OK} {
		sys := system()
		link := sys.Default
		link.LoseFlag = handshakeRounds + 1
		sys.Links = map[fake.Route]fake.Link{there: link}
		set := quick
		set.Latency = true
		p := measurePair(t, sys, set)
		assert.Equal(t, want, p.Verdict, p.Reason)
		if want == Hang {
			assert.Contains(t, p.Reason, "1800 flags never came")
		}
	}
}

// More than there is was asked for: that says nothing about the link.
func TestWindowLargerThanMemory(t *testing.T) {
	set := quick
	set.Window = 2 << 30
	p := measurePair(t, system(), set)
	assert.Equal(t, Inconclusive, p.Verdict, p.Reason)
	assert.Equal(t, NoMemory, p.Problem.Kind)
	assert.Contains(t, p.Reason, "not the 2147483648 of the window")
}

func TestOneWayPair(t *testing.T) {
	sys := system()
	sys.Links = map[fake.Route]fake.Link{{Initiator: 1, Peer: 0}: {NoAccess: true, StagedGBps: 0.002}}
	assert.Equal(t, OK, measurePair(t, sys, quick).Verdict)
	back := ProbePair(t.Context(), sys, bdf1, bdf0, 0, quick, func(Pair) {})
	assert.Equal(t, Unusable, back.Verdict)
	assert.False(t, back.CanAccess)
	m, ok := lookup(back.Measurements, Write, Staged)
	require.True(t, ok, "what remains without P2P")
	assert.InEpsilon(t, 0.002, m.Median, 0.01)
}

// errLate is the cause of the context in the tests of hangs.
var errLate = errors.Join(errors.New("no answer"), context.DeadlineExceeded)

func TestHang(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(*fake.Link)
		step   string
	}{
		{"first write", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Hang} }, "write by ce: verify one copy"},
		{"read under load", func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Hang, After: 18} }, "read by ce: bandwidth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(&sys.Default)
			// The watch ends the context when the step that hangs has begun, as a
			// deadline would some time later.
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var last Pair
			p := ProbePair(ctx, sys, bdf0, bdf1, 0, quick, func(p Pair) {
				last = p
				if p.Step == tc.step {
					time.AfterFunc(100*time.Millisecond, func() { cancel(errLate) })
				}
			})
			assert.Equal(t, Hang, p.Verdict, p.Reason)
			assert.Equal(t, Timeout, p.Problem.Kind)
			assert.Equal(t, tc.step, p.Step)
			assert.Contains(t, p.Reason, tc.step)
			assert.Equal(t, tc.step, last.Step, "what a parent knows that has to kill the process")
		})
	}
}

func TestSetupFailuresAreInconclusive(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(*fake.System)
		reason string
	}{
		{"out of memory", func(s *fake.System) { s.GPUs[1].Info.Memory = 1 << 15 }, "GPU 0000:42:00.0: 65536 bytes of its memory"},
		{"exclusive mode", func(s *fake.System) {
			s.GPUs[0].Retain = &cuda.Error{Call: "cuDevicePrimaryCtxRetain", Code: cuda.DeviceUnavailable, Name: "CUDA_ERROR_DEVICE_UNAVAILABLE", Text: "CUDA-capable device(s) is/are busy or unavailable"}
		}, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
		{"GPU gone", func(s *fake.System) { s.GPUs = s.GPUs[:1] }, "no GPU at 0000:42:00.0"},
		{"the source GPU spoils its own memory", func(s *fake.System) { s.GPUs[0].Local = fake.Fault{Kind: fake.Clear, Size: 8} }, "GPU 0000:41:00.0 does not give back what was written to it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(sys)
			p := measurePair(t, sys, quick)
			assert.Equal(t, Inconclusive, p.Verdict)
			assert.Contains(t, p.Reason, tc.reason)
			assert.Zero(t, sys.Allocations(), "memory left allocated")
		})
	}
}

func TestProbeDevice(t *testing.T) {
	sys := system()
	d := ProbeDevice(t.Context(), sys, bdf0, quick, func(Device) {})
	require.Nil(t, d.Problem)
	assert.Equal(t, OK, d.Verdict)
	near(t, map[string]float64{
		"bandwidth h2d ce ": 0.005, "bandwidth d2h ce ": 0.005, "bandwidth local ce ": 0.008,
		"bandwidth h2d sm ": 0.005, "bandwidth d2h sm ": 0.005, "bandwidth local sm ": 0.008,
	}, medians(d.Measurements))
	assert.Zero(t, sys.Allocations())

	sys.GPUs[0].Local = fake.Fault{Kind: fake.Hang}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d = ProbeDevice(ctx, sys, bdf0, quick, func(Device) {})
	assert.Equal(t, Hang, d.Verdict)
	assert.Equal(t, "prepare 0000:41:00.0", d.Step)
}
