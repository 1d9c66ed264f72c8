package measure

import (
	"context"
	"errors"
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

// system returns two GPUs with a link of 0.4 GB/s, 0.2 GB/s when staged. It is
// slow so that few copies fill the time of a sample.
func system() *fake.System {
	gpu := func(bdf string) fake.GPU {
		return fake.GPU{
			Info:     cuda.DeviceInfo{BDF: bdf, Name: "Simulated GPU", Memory: 1 << 30, SMs: 128, ComputeMajor: 8, ComputeMinor: 9},
			HostGBps: 0.5,
			Copy:     0.8,
		}
	}
	return &fake.System{
		CUDA: 13000,
		GPUs: []fake.GPU{gpu(bdf0), gpu(bdf1)},
		Default: fake.Link{
			GBps: 0.4, StagedGBps: 0.2,
			Attributes: cuda.P2PAttributes{PerformanceRank: 1, Access: true},
		},
	}
}

// quick are settings for a test: the buffer is one window.
var quick = Settings{Size: 1 << 20, Samples: 10, Staged: true, Seed: 1}

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
	return ProbePair(ctx, sys, bdf0, bdf1, set, func(Pair) {})
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
	p := measurePair(t, sys, large())
	require.Nil(t, p.Problem)
	assert.Equal(t, OK, p.Verdict)
	assert.Equal(t, "write 0.40 GB/s, read 0.40 GB/s, data verified by its owner", p.Reason)
	assert.True(t, p.CanAccess)
	assert.Equal(t, 1, p.Attributes.PerformanceRank)
	assert.Empty(t, p.Step)
	require.Len(t, p.Measurements, 3)
	for i, want := range []struct {
		d    Direction
		m    Method
		gbps float64
	}{{Write, Staged, 0.2}, {Write, CE, 0.4}, {Read, CE, 0.4}} {
		m := p.Measurements[i]
		assert.Equal(t, want.d, m.Direction)
		assert.Equal(t, want.m, m.Method)
		assert.Equal(t, GBps, m.Unit)
		assert.Len(t, m.Samples, quick.Samples)
		assert.InDelta(t, want.gbps, m.Median, 0.001)
	}
	require.Len(t, p.Checks, 4)
	for _, c := range p.Checks {
		assert.Zero(t, c.Wrong)
		assert.Positive(t, c.Bytes)
		assert.Less(t, c.Bytes, large().Size, "windows only")
	}
	assert.Zero(t, sys.Allocations(), "memory left allocated")
}

func TestFullVerifiesTheWholeBuffer(t *testing.T) {
	set := large()
	set.Full = true
	for _, c := range measurePair(t, system(), set).Checks {
		assert.Equal(t, set.Size, c.Bytes)
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
		reason  string    // part of it
		kind    WrongKind // of the first wrong word
		phase   Phase     // of the failed check
		mirror  bool
	}{
		{name: "writes go to a private mirror", damage: func(l *fake.Link) { l.Mirror = true },
			verdict: WrongData, kind: Unwritten, phase: Before, mirror: true, reason: "its mapping of the peer leads elsewhere"},
		{name: "writes are lost", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop} },
			verdict: WrongData, kind: Unwritten, phase: Before, reason: "write, before the load"},
		{name: "reads give zeros, writes are fine", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Clear} },
			verdict: WrongData, kind: Zero, phase: Before, reason: "read, before the load"},
		{name: "reads give all ones", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Ones} },
			verdict: WrongData, kind: Ones, phase: Before},
		{name: "one bit per page is flipped in reads", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Flip} },
			verdict: WrongData, kind: Foreign, phase: Before},
		{name: "the first page is not written", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Drop, Size: 4096} },
			verdict: WrongData, kind: Unwritten, phase: Before, reason: "the first at offset 0x0"},
		{name: "the last page is not written", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, Offset: quick.Size - 4096, Size: 4096}
		}, verdict: WrongData, kind: Unwritten, phase: Before, reason: "0xff000"},
		{name: "the mapping is off by 4 KiB", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Shift, Shift: 4096} },
			verdict: WrongData, kind: Misplaced, phase: Before, reason: "misplaced from 0x1000"},
		{name: "a page goes stale under load", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, Size: 4096, After: 5}
		}, verdict: OK}, // later copies of the same data repair nothing and harm nothing
		{name: "writes stop after the first", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Drop, After: 1}
		}, verdict: WrongData, kind: Stale, phase: After, reason: "write, after the load"},
		{name: "data is damaged under load only", damage: func(l *fake.Link) {
			l.Read = fake.Fault{Kind: fake.Flip, After: 8}
		}, verdict: WrongData, kind: Foreign, phase: After, reason: "read, after the load"},
		{name: "wrong data on a fast link", damage: func(l *fake.Link) {
			l.GBps = 4
			l.Read = fake.Fault{Kind: fake.Clear, Size: 8}
		}, verdict: WrongData, kind: Zero, phase: Before, reason: "1 of"},
		{name: "a copy fails", damage: func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Fail, Err: sticky} },
			verdict: Unusable, reason: "CUDA_ERROR_LAUNCH_FAILED"},
		{name: "a copy fails under load", damage: func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Fail, Err: sticky, After: 8} },
			verdict: Unusable, reason: "read: bandwidth"},
		{name: "wrong data in one direction, failure in the other", damage: func(l *fake.Link) {
			l.Write = fake.Fault{Kind: fake.Clear}
			l.Read = fake.Fault{Kind: fake.Fail, Err: sticky}
		}, verdict: WrongData, kind: Zero, phase: Before},
		{name: "no access", damage: func(l *fake.Link) { l.NoAccess = true },
			verdict: Unusable, reason: "cuDeviceCanAccessPeer"},
		{name: "access granted, then refused", damage: func(l *fake.Link) { l.Enable = denied },
			verdict: Unusable, reason: "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
		{name: "slower than through host memory", damage: func(l *fake.Link) { l.GBps = 0.19 },
			verdict: Slow, reason: "write 0.19 GB/s is slower than through host memory, 0.20 GB/s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			link := sys.Default
			tc.damage(&link)
			sys.Links = map[fake.Route]fake.Link{{Initiator: 0, Peer: 1}: link}
			p := measurePair(t, sys, quick)
			assert.Equal(t, tc.verdict, p.Verdict, p.Reason)
			assert.Contains(t, p.Reason, tc.reason)

			var failed *Check
			for i := range p.Checks {
				if p.Checks[i].Wrong > 0 {
					failed = &p.Checks[i]
					break
				}
			}
			if tc.verdict != WrongData {
				assert.Nil(t, failed)
				return
			}
			require.NotNil(t, failed)
			assert.Equal(t, tc.kind, failed.First.Kind)
			assert.Equal(t, tc.phase, failed.Phase)
			assert.Equal(t, tc.mirror, failed.Mirror)
			assert.False(t, failed.SourceDamaged)
			if tc.phase == Before {
				_, measured := lookup(p.Measurements, failed.Direction, CE)
				assert.False(t, measured, "copies were repeated although their target is unknown")
			}
		})
	}
}

func TestOneWayPair(t *testing.T) {
	sys := system()
	sys.Links = map[fake.Route]fake.Link{{Initiator: 1, Peer: 0}: {NoAccess: true, StagedGBps: 0.2}}
	assert.Equal(t, OK, measurePair(t, sys, quick).Verdict)
	back := ProbePair(t.Context(), sys, bdf1, bdf0, quick, func(Pair) {})
	assert.Equal(t, Unusable, back.Verdict)
	assert.False(t, back.CanAccess)
	m, ok := lookup(back.Measurements, Write, Staged)
	require.True(t, ok, "what remains without P2P")
	assert.InDelta(t, 0.2, m.Median, 0.001)
}

func TestFloor(t *testing.T) {
	for _, tc := range []struct {
		floor float64
		want  Verdict
	}{{0, OK}, {0.39, OK}, {0.41, Slow}} {
		set := quick
		set.MinGBps = tc.floor
		assert.Equal(t, tc.want, measurePair(t, system(), set).Verdict, "floor %v", tc.floor)
	}
}

// errLate is the cause of the context in the tests of hangs.
var errLate = errors.Join(errors.New("no answer"), context.DeadlineExceeded)

func TestHang(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(*fake.Link)
		step   string
	}{
		{"first write", func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Hang} }, "write: verify one copy"},
		{"read under load", func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Hang, After: 8} }, "read: bandwidth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sys := system()
			tc.damage(&sys.Default)
			// The watch ends the context when the step that hangs has begun, as a
			// deadline would some time later.
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var last Pair
			p := ProbePair(ctx, sys, bdf0, bdf1, quick, func(p Pair) {
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
		{"out of memory", func(s *fake.System) { s.GPUs[1].Info.Memory = 1 << 19 }, "GPU 0000:42:00.0: 1048576 bytes of its memory"},
		{"exclusive mode", func(s *fake.System) {
			s.GPUs[0].Retain = &cuda.Error{Call: "cuDevicePrimaryCtxRetain", Code: cuda.DeviceUnavailable, Name: "CUDA_ERROR_DEVICE_UNAVAILABLE", Text: "CUDA-capable device(s) is/are busy or unavailable"}
		}, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
		{"GPU gone", func(s *fake.System) { s.GPUs = s.GPUs[:1] }, "no GPU at 0000:42:00.0"},
		{"the source GPU spoils its own memory", func(s *fake.System) { s.GPUs[0].Local = fake.Fault{Kind: fake.Clear, Size: 8} }, "GPU 0000:41:00.0 does not give back what the host wrote to it"},
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
	require.Len(t, d.Measurements, 3)
	for i, want := range []struct {
		d    Direction
		gbps float64
	}{{H2D, 0.5}, {D2H, 0.5}, {Local, 0.8}} {
		assert.Equal(t, want.d, d.Measurements[i].Direction)
		assert.InDelta(t, want.gbps, d.Measurements[i].Median, 0.01)
	}
	assert.Zero(t, sys.Allocations())

	sys.GPUs[0].Local = fake.Fault{Kind: fake.Hang}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	d = ProbeDevice(ctx, sys, bdf0, quick, func(Device) {})
	assert.Equal(t, Hang, d.Verdict)
	assert.Equal(t, "h2d: bandwidth", d.Step)
}
