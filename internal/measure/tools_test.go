package measure

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/fake"
	"mkp2pimg/internal/golden"
)

// What the models of other tools say. They look for what those tools look for,
// on the same simulated GPUs, and for nothing else.
const (
	saysFine   = "fine"
	saysError  = "fails"
	saysWaived = "left out"
	saysHang   = "hangs"
)

// A tool says what it thinks of the pair of the first two GPUs of a system.
type tool func(t *testing.T, sys *fake.System) string

// Patience is a context that ends after many looks in vain at something that does
// not end, however fast the machine is.
type patience struct {
	context.Context
	left int
	done chan struct{}
}

// looks are more than it takes until the simulator's kernels stop to wait.
const looks = 1500

func newPatience(ctx context.Context) *patience {
	return &patience{Context: ctx, left: looks, done: make(chan struct{})}
}

func (p *patience) renew() { p.left = looks }

func (p *patience) Done() <-chan struct{} {
	if p.left--; p.left == 0 {
		close(p.done)
	}
	return p.done
}

func (p *patience) Err() error {
	select {
	case <-p.done:
		return errLate
	default:
		return nil
	}
}

// ours is what this package says.
func ours(t *testing.T, sys *fake.System) string {
	t.Helper()
	ctx := newPatience(t.Context())
	set := quick
	if l, ok := sys.Links[fake.Route{Initiator: 0, Peer: 1}]; ok && l.Alias > 0 {
		set.Window = 4 * toolSize // what goes wrong far away takes a large window to see, and time
	}
	p := ProbePair(ctx, sys, bdf0, bdf1, 0, set, func(Pair) { ctx.renew() })
	p.Ceiling = &Ceiling{WriteGBps: 0.0041, ReadGBps: 0.0041, Basis: "simulated"}
	_, v, _ := JudgePair(p, set)
	if len(sys.GPUs) == 2 {
		return string(v)
	}
	var bdfs []string
	var f Fabric
	for _, g := range sys.GPUs {
		bdfs = append(bdfs, g.Info.BDF)
		place := Place{BDF: g.Info.BDF, Root: fmt.Sprint(g.Root)}
		if g.Switch != 0 {
			place.Switch = fmt.Sprint(g.Switch)
		}
		f.Places = append(f.Places, place)
	}
	var done []Traffic
	for _, plan := range Plan(bdfs, f, set) {
		if plan.Shape != Collapse {
			continue
		}
		plan = ProbeTraffic(ctx, sys, plan, set, func(Traffic) { ctx.renew() })
		plan.Verdict, plan.Reason = JudgeTraffic(plan, done)
		done = append(done, plan)
		if plan.Verdict.Worse(v) {
			v = plan.Verdict
		}
	}
	return string(v)
}

// An other is one of the models at work.
type other struct {
	session
	ends  [2]*party
	bufs  [2]*buffer
	err   error
	waive bool
}

// newOther prepares GPUs 0 and 1 and peer access between them, where the driver
// allows it.
func newOther(t *testing.T, sys *fake.System) *other {
	t.Helper()
	ctx := newPatience(t.Context())
	o := &other{session: session{context: ctx, settings: quick, beat: ctx.renew}}
	devices, err := sys.Devices()
	require.NoError(t, err)
	for i, d := range devices[:2] {
		o.ends[i], err = o.join(d, sys.GPUs[i].Info.BDF)
		require.NoError(t, err)
		o.bufs[i], err = o.ends[i].buffer(toolSize)
		require.NoError(t, err)
	}
	can, err := devices[0].CanAccessPeer(devices[1])
	require.NoError(t, err)
	if o.waive = !can; can {
		o.err = errors.Join(o.ends[0].ctx.EnablePeer(o.ends[1].ctx), o.ends[1].ctx.EnablePeer(o.ends[0].ctx))
	}
	return o
}

// says returns what a tool says that ended with err.
func says(err error) string {
	switch {
	case err == nil:
		return saysFine
	case errors.Is(err, context.DeadlineExceeded):
		return saysHang
	}
	return saysError
}

const (
	// toolSize is the buffer of the models; repeat is the length after which
	// nvbandwidth's pattern repeats.
	toolSize = 2 * repeat
	repeat   = 2 << 20
)

// nvbandwidth models device_to_device_memcpy_{write,read}_{ce,sm}: the context that
// issues the copies fills both buffers, the source with a pattern that repeats after
// 2 MiB, and compares the destination. All that through its own mapping of the peer.
// (Of 4 copies to warm up and 16 that are timed, one and two are done here.)
func nvbandwidth(t *testing.T, sys *fake.System) string {
	t.Helper()
	o := newOther(t, sys)
	if o.waive {
		return saysWaived
	}
	if o.err != nil {
		return saysError
	}
	pattern := make([]byte, toolSize)
	rng := rand.New(rand.NewPCG(0xbaadf00d, 0))
	for i := 0; i < repeat; i += 8 {
		binary.LittleEndian.PutUint64(pattern[i:], rng.Uint64())
	}
	copy(pattern[repeat:], pattern)
	self := o.ends[0]
	scratch, err := self.buffer(toolSize)
	require.NoError(t, err)
	host, err := self.allocHost(toolSize)
	require.NoError(t, err)
	blank, err := self.allocHost(toolSize) // of zeros; there it is 0xcafebabe
	require.NoError(t, err)

	for _, m := range []Method{CE, SM} {
		for _, p := range []path{{Write, m, self, o.bufs[0], o.bufs[1], toolSize}, {Read, m, self, o.bufs[1], o.bufs[0], toolSize}} {
			copy(host.Bytes, pattern)
			err := errors.Join(
				self.stream.Copy(p.to.ptr, blank.Ptr, toolSize),
				self.stream.Copy(p.from.ptr, host.Ptr, toolSize),
				p.issue(self.stream, 1+2),
				self.code.Copy(self.stream, scratch.ptr, p.to.ptr, toolSize, 1),
				self.stream.Copy(host.Ptr, scratch.ptr, toolSize))
			if err == nil {
				err = self.wait()
			}
			if err != nil {
				return says(err)
			}
			if !bytes.Equal(host.Bytes, pattern) {
				return saysError
			}
		}
	}
	return saysFine
}

// latencyTest models p2pBandwidthLatencyTest: cudaMemcpyPeerAsync, through host
// memory where there is no peer access, and no look at the data.
func latencyTest(t *testing.T, sys *fake.System) string {
	t.Helper()
	o := newOther(t, sys)
	if o.err != nil {
		return saysError
	}
	p := path{Write, Staged, o.ends[0], o.bufs[0], o.bufs[1], toolSize}
	err := p.issue(p.engine.stream, 3)
	if err == nil {
		err = p.engine.wait()
	}
	return says(err)
}

// failures are the ways in which peer-to-peer was seen to fail, as the simulator
// has them.
var failures = []struct {
	name   string
	damage func(*fake.System)
}{
	{"none", func(*fake.System) {}},
	{"writes vanish (an IOMMU that translates)", onLink(func(l *fake.Link) { l.Write.Kind = fake.Drop })},
	{"reads give zeros (an IOMMU that translates)", onLink(func(l *fake.Link) { l.Read.Kind = fake.Clear })},
	{"reads give all ones (the device left the bus)", onLink(func(l *fake.Link) { l.Read.Kind = fake.Ones })},
	{"writes land in a private mirror of the peer", onLink(func(l *fake.Link) { l.Mirror = true })},
	{"only a kernel's loads are wrong", onLink(func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Clear, Only: fake.SM, Size: 4096} })},
	{"only a kernel's stores are wrong", onLink(func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Flip, Only: fake.SM} })},
	{"the mapping is 4 MiB too far", onLink(func(l *fake.Link) { l.Offset = 4 << 20 })},
	{"the window repeats itself after 2 MiB", onLink(func(l *fake.Link) { l.Alias = 2 << 20 })},
	{"the window repeats itself behind the test's buffer", onLink(func(l *fake.Link) { l.Alias = 3 * repeat })},
	{"a page stays what it was at first", onLink(func(l *fake.Link) { l.Read = fake.Fault{Kind: fake.Drop, Size: 4096} })},
	{"a bit in each page flips under load", onLink(func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Flip, After: 3} })},
	{"flags overtake the data before them", onLink(func(l *fake.Link) { l.FlagFirst = true })},
	{"a flag is lost", onLink(func(l *fake.Link) { l.LoseFlag = 7 })},
	{"a copy never ends", onLink(func(l *fake.Link) { l.Write = fake.Fault{Kind: fake.Hang, After: 2} })},
	{"a copy fails", onLink(func(l *fake.Link) {
		l.Write = fake.Fault{Kind: fake.Fail, Err: &cuda.Error{Call: "cuStreamQuery", Code: cuda.LaunchFailed}}
	})},
	{"the driver grants one direction only", onLink(func(l *fake.Link) { l.NoAccess = true })},
	{"slower than through host memory", onLink(func(l *fake.Link) { l.GBps = l.StagedGBps * 0.9 })},
	{"the link runs at half of its width", onLink(func(l *fake.Link) { l.GBps /= 2; l.StagedGBps /= 2 })},
	{"the link slows down under load", onLink(func(l *fake.Link) { l.Throttle, l.ThrottledGBps = 50*time.Millisecond, l.GBps/4 })},
	{"writes collapse when two GPUs of a switch write to two roots", func(s *fake.System) {
		for i := range 2 {
			g := s.GPUs[i]
			g.Info.BDF = fmt.Sprintf("0000:c%d:00.0", i)
			s.GPUs = append(s.GPUs, g)
			s.GPUs[i].Switch, s.GPUs[i].Root = 1, 1
			s.GPUs[2+i].Root = 2 + i
		}
		s.Collapse = fake.Collapse{Sources: 2, GBps: s.Default.GBps / 10}
	}},
}

// onLink returns a change of the link from GPU 0 to GPU 1.
func onLink(change func(*fake.Link)) func(*fake.System) {
	return func(s *fake.System) {
		l := s.Default
		change(&l)
		s.Links = map[fake.Route]fake.Link{{Initiator: 0, Peer: 1}: l}
	}
}

// TestWhatToolsSay shows that this package flags each way to fail, and makes the
// table in docs/measuring.md that tells which others would.
func TestWhatToolsSay(t *testing.T) {
	tools := []struct {
		name string
		says tool
	}{{"mkp2pimg", ours}, {"nvbandwidth", nvbandwidth}, {"p2pBandwidthLatencyTest", latencyTest}}
	var b strings.Builder
	b.WriteString("| what is wrong |")
	for _, tool := range tools {
		b.WriteString(" " + tool.name + " |")
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(tools)) + "|\n")
	for _, f := range failures {
		fmt.Fprintf(&b, "| %s |", f.name)
		for i, tool := range tools {
			sys := system()
			f.damage(sys)
			said := tool.says(t, sys)
			if i == 0 && f.name != "none" {
				assert.NotEqual(t, string(OK), said, f.name)
				assert.NotEqual(t, string(Inconclusive), said, f.name)
			}
			fmt.Fprintf(&b, " %s |", said)
		}
		b.WriteString("\n")
	}
	goldenPart(t, "../../docs/measuring.md", "what tools say", b.String())
}

// goldenPart compares text with the part of a page between two comments of a
// name, with flag -update it replaces that.
func goldenPart(t *testing.T, page, name, text string) {
	t.Helper()
	whole, err := os.ReadFile(page)
	require.NoError(t, err)
	head, rest, ok := strings.Cut(string(whole), "<!-- "+name+" -->\n")
	require.True(t, ok, "%s: no comment %q", page, name)
	_, tail, ok := strings.Cut(rest, "<!-- end -->\n")
	require.True(t, ok, "%s: no end of %q", page, name)
	golden.Equal(t, page, head+"<!-- "+name+" -->\n"+text+"<!-- end -->\n"+tail)
}
