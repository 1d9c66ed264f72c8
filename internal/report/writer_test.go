package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/golden"
)

// tick is a clock that moves on by a second per reading.
func tick() func() time.Time {
	t := time.Date(2026, 3, 5, 12, 0, 0, 123456000, time.UTC)
	return func() time.Time {
		t = t.Add(time.Second)
		return t
	}
}

// sample writes one artifact of every kind.
func sample(opts ...Option) *Writer {
	w := New(append([]Option{Clock(tick())}, opts...)...)
	w.Start(RunStart{
		Name: "mkp2pimg", Version: "0.1", CommandLine: "p2pinit",
		Parameters: map[string]any{"p2p.plan": "full"},
		DUT: DUT{ID: "node7", Name: "node7",
			Platforms: []PlatformInfo{{"EPYC 9374F"}},
			Software:  []SoftwareInfo{{ID: "kernel", Name: "linux", Version: "6.12.117", Type: "SYSTEM"}},
			Hardware:  []HardwareInfo{{ID: "0000:01:00.0", Name: "10de:2684", PartType: "GPU"}},
		},
	})
	w.Log(Info, "boot took %d s", 4)
	s := w.Step("bandwidth", "measure P2P bandwidth")
	s.Measurement(Measurement{
		Name: "p2p-write", Value: 26.3, Unit: "GB/s", HardwareID: "0000:01:00.0",
		Subcomponent: &Subcomponent{Name: "0000:01:00.0 -> 0000:02:00.0", Type: "BUS"},
		Validators:   []Validator{{"floor", GreaterThanOrEqual, 20.0}},
		Metadata:     map[string]any{"samples": 10},
	})
	q := s.Series(SeriesStart{Name: "link-speed", Unit: "GT/s"})
	q.Add(16)
	q.Add(32)
	q.End()
	s.Diagnosis(Diagnosis{Verdict: "P2P-LINK", Type: DiagnosisPass, Message: "x16 at 32 GT/s"})
	s.Error("p2pbw-exit", "p2pbw ended with %d", 3)
	s.Log(Warning, "one <warm> GPU")
	s.File(File{DisplayName: "dmesg", URI: "file:///run/mkp2pimg/dmesg.txt", ContentType: "text/plain"})
	s.Extension("note", map[string]int{"a": 1})
	s.Extension("list", []int{1, 2})
	s.End(StatusComplete)
	r := w.Step("report", "deliver the report")
	r.Extension(ExtVerdict, Verdict{"P2P-READY", "2 of 2 pairs"})
	r.End(StatusComplete)
	return w
}

func TestWriterGolden(t *testing.T) {
	w := sample()
	require.NoError(t, w.End(StatusComplete, ResultPass))
	golden.Equal(t, "testdata/sample.jsonl", w.Bytes())
	assert.Empty(t, Check(w.Bytes()))
}

func TestLegal(t *testing.T) {
	legal := map[[2]string]bool{
		{"COMPLETE", "PASS"}: true, {"COMPLETE", "FAIL"}: true,
		{"ERROR", "NOT_APPLICABLE"}: true, {"SKIP", "NOT_APPLICABLE"}: true,
	}
	for _, s := range []Status{StatusComplete, StatusError, StatusSkip, "", "DONE"} {
		for _, r := range []Result{ResultPass, ResultFail, ResultNotApplicable, ""} {
			assert.Equal(t, legal[[2]string{string(s), string(r)}], Legal(s, r), "%s/%s", s, r)
		}
	}
}

func TestEnd(t *testing.T) {
	w := New()
	require.ErrorContains(t, w.End(StatusComplete, ResultNotApplicable), "can't end as COMPLETE with NOT_APPLICABLE")
	require.NoError(t, w.End(StatusError, ResultNotApplicable))
	require.ErrorContains(t, w.End(StatusError, ResultNotApplicable), "ended before")
	n := len(w.Bytes())
	w.Log(Info, "too late")
	assert.Len(t, w.Bytes(), n)
}

func TestLateArtifactsAreNoted(t *testing.T) {
	w := New()
	s := w.Step("facts", "gather facts")
	s.End(StatusError)
	s.End(StatusComplete)
	s.Log(Info, "back again")
	s.Extension("facts", map[string]int{})
	run, err := Parse(bytes.NewReader(w.Bytes()))
	require.NoError(t, err)
	assert.Equal(t, StatusError, run.Step("facts").Status)
	assert.Empty(t, run.Step("facts").Logs)
	require.Len(t, run.Logs, 1)
	assert.Contains(t, run.Logs[0].Message, "step facts went on after its end")
}

func TestUnencodableValueBecomesError(t *testing.T) {
	w := New()
	s := w.Step("bandwidth", "b")
	s.Measurement(Measurement{Name: "x", Value: math.NaN()})
	s.Extension("bad", make(chan int))
	run, err := Parse(bytes.NewReader(w.Bytes()))
	require.NoError(t, err)
	require.Len(t, run.Errors, 2)
	assert.Contains(t, run.Errors[0].Message, "NaN")
	assert.Equal(t, "bandwidth", run.Errors[1].Step)
}

func TestEverySinkGetsTheWholeReport(t *testing.T) {
	var early, late syncBuffer
	w := New()
	w.Attach("early", &early)
	w.Log(Info, "one")
	w.Attach("late", &late)
	w.Log(Info, "two")
	require.Empty(t, w.Flush(time.Minute))
	assert.Equal(t, string(w.Bytes()), early.String())
	assert.Equal(t, string(w.Bytes()), late.String())
	assert.Positive(t, early.syncs, "Flush syncs")
	require.Empty(t, w.Close(time.Minute))
	assert.True(t, early.closed)
}

func TestConcurrentSteps(t *testing.T) {
	var sink syncBuffer
	w := New()
	w.Attach("memory", &sink)
	w.Start(RunStart{Name: "n", Version: "1", DUT: DUT{ID: "d"}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := w.Step(fmt.Sprint("s", i), "work")
			q := s.Series(SeriesStart{Name: "v"})
			for j := range 20 {
				q.Add(j)
			}
			q.End()
			s.End(StatusComplete)
		})
	}
	wg.Wait()
	require.NoError(t, w.End(StatusComplete, ResultPass))
	require.Empty(t, w.Close(time.Minute))
	assert.Empty(t, Check([]byte(sink.String())))
}

// stuck never finishes a write, like a virtio port that nobody reads.
type stuck struct{ entered chan struct{} }

func (s stuck) Write([]byte) (int, error) {
	close(s.entered)
	select {}
}

func TestStuckSinkIsDropped(t *testing.T) {
	var good syncBuffer
	bad := stuck{make(chan struct{})}
	w := New(Stall(time.Millisecond))
	w.Attach("port", bad)
	w.Attach("file", &good)
	<-bad.entered
	errs := w.Flush(time.Minute)
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "port: no progress")

	w.Log(Info, "the run goes on")
	require.Len(t, w.Close(time.Minute), 1)
	assert.Equal(t, string(w.Bytes()), good.String())
	assert.Contains(t, good.String(), "report sink dropped: port")
}

func TestSlowSinkIsKept(t *testing.T) {
	gate := make(chan struct{})
	var slow gated
	slow.gate = gate
	w := New(Stall(time.Hour))
	w.Attach("serial", &slow)
	errs := w.Flush(time.Millisecond)
	require.Len(t, errs, 1)
	assert.ErrorContains(t, errs[0], "0 of 1 lines written")
	close(gate)
	require.Empty(t, w.Flush(time.Minute))
	assert.Equal(t, string(w.Bytes()), slow.String())
}

func TestFailingSinkIsDropped(t *testing.T) {
	for name, sink := range map[string]io.Writer{
		"write": failing{write: errors.New("no space left on device")},
		"sync":  failing{sync: errors.New("no space left on device")},
	} {
		t.Run(name, func(t *testing.T) {
			w := New()
			w.Attach("disk", sink)
			errs := w.Flush(time.Minute)
			require.Len(t, errs, 1)
			assert.ErrorContains(t, errs[0], "disk: "+name+": no space left on device")
		})
	}
}

func TestSinkThatCannotBeSyncedIsKept(t *testing.T) {
	port, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	require.NoError(t, err)
	require.ErrorIs(t, port.Sync(), syscall.EINVAL, "a character device")
	w := New()
	w.Attach("port", port)
	require.Empty(t, w.Close(time.Minute))
}

type failing struct{ write, sync error }

func (f failing) Write(p []byte) (int, error) { return len(p), f.write }
func (f failing) Sync() error                 { return f.sync }

// gated is a buffer whose writes wait for its gate.
type gated struct {
	syncBuffer
	gate chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	<-g.gate
	return g.syncBuffer.Write(p)
}

type syncBuffer struct {
	mu     sync.Mutex
	buf    bytes.Buffer
	syncs  int
	closed bool
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.syncs++
	return nil
}

func (b *syncBuffer) Close() error {
	b.closed = true
	return nil
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A secret is left out wherever it comes from.
func TestHide(t *testing.T) {
	w := New(Hide(func(line []byte) []byte { return bytes.ReplaceAll(line, []byte("secret"), []byte("…")) }))
	w.Start(RunStart{Name: "secret", Version: "1", DUT: DUT{ID: "x", Metadata: map[string]any{"secret": "a secret"}}})
	w.Log(Info, "%s", "the secret")
	s := w.Step("s", "secret")
	s.Extension("secret", map[string]string{"secret": "secret"})
	s.Error("secret", "secret")
	var sink bytes.Buffer
	w.Attach("sink", &sink)
	s.End(StatusComplete)
	require.NoError(t, w.End(StatusComplete, ResultPass))
	require.Empty(t, w.Close(time.Minute))
	assert.NotContains(t, sink.String(), "secret")
	assert.Contains(t, sink.String(), `"message":"the …"`)
	assert.Empty(t, Check(w.Bytes()))
}
