package intake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
	"mkp2pimg/internal/report"
)

// serverEnv names the store of a process that is only a server, on the socket that
// it has as descriptor 3.
const serverEnv = "MKP2PIMG_TEST_SERVER"

func TestMain(m *testing.M) {
	if name := os.Getenv(serverEnv); name != "" {
		fmt.Fprintln(os.Stderr, beServer(name))
		os.Exit(1)
	}
	storetest.Main(m)
}

// beServer serves until it is killed.
func beServer(name string) error {
	ctx := context.Background()
	s, err := store.Open(ctx, name)
	if err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	in := New(Config{
		Store: s, Judge: Judge{Summarise: judge.Summarise, Compare: judge.Judge, Learn: judge.Learn, Depth: judge.Depth},
		Night: func(t time.Time) string { return t.Format(time.DateOnly) },
		Known: func(string) bool { return true }, Admin: func(string) bool { return false },
		Addresses: limit.New(time.Microsecond, 1e6, 10), Runs: limit.New(time.Microsecond, 1e6, 1e4), // all nodes have one address
	})
	go in.Run(ctx)
	return http.Serve(l, in)
}

// load is nodes that deliver at the same time to a server that is killed.
type load struct {
	nodes, atOnce int
	chunks        int // of each node
	lines         int // of a chunk
	kills         int // on the way; and once more before all is delivered
}

// TestKill9 kills the server at random points of a load. What it has acknowledged
// must be there afterwards, once, byte for byte. MKP2PIMG_LOAD=1 makes the load
// that of a large lab and logs how it was borne.
func TestKill9(t *testing.T) {
	small := load{nodes: 30, atOnce: 10, chunks: 6, lines: 10, kills: 3}
	if os.Getenv("MKP2PIMG_LOAD") == "" {
		storetest.Each(t, func(t *testing.T, name string) { small.run(t, name) })
		return
	}
	large := load{nodes: 1000, atOnce: 100, chunks: 20, lines: 40}
	for _, large.kills = range []int{0, 8} {
		t.Run(fmt.Sprint(large.kills, "-kills"), func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, name string) { large.run(t, name) })
		})
	}
}

// client is a node that delivers.
type client struct {
	run    string
	chunks [][]byte
	acked  int // chunks that the server has acknowledged
}

func (l load) run(t *testing.T, name string) {
	clients := l.offer(t, name)
	server := startServer(t, name)
	total := l.nodes * l.chunks
	tally := &tally{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slots := make(chan struct{}, l.atOnce)
	http := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: l.atOnce}}
	began := time.Now()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for c.acked < len(c.chunks) && ctx.Err() == nil {
				slots <- struct{}{}
				sent := time.Now()
				err := c.post(ctx, http, server.url)
				took := time.Since(sent)
				<-slots
				if err == nil {
					tally.add(took)
				} else if ctx.Err() == nil {
					tally.fail(err)
					time.Sleep(10 * time.Millisecond) // the server is starting again
				}
			}
		})
	}
	points := make([]int, l.kills)
	for i := range points {
		points[i] = rand.IntN(total * 9 / 10)
	}
	slices.Sort(points)
	for _, point := range points {
		tally.waitFor(t, point)
		server.restart()
	}
	tally.waitFor(t, total*9/10)
	took := time.Since(began)
	server.kill()
	cancel()
	all.Wait()
	l.verify(t, name, clients)
	t.Logf("%d nodes, %d at once, chunks of %d KiB, killed %d times: %s, server's memory %d MiB at most, restarts %v",
		l.nodes, l.atOnce, len(clients[0].chunks[0])>>10, l.kills+1, tally.figures(took), server.peak>>20, server.down)
}

// offer offers a run to each node.
func (l load) offer(t *testing.T, name string) []*client {
	s, err := store.Open(t.Context(), name)
	require.NoError(t, err)
	defer s.Close()
	var clients []*client
	var all sync.WaitGroup
	for i := range l.nodes {
		c := &client{run: uuid.NewString(), chunks: l.report(i)}
		clients = append(clients, c)
		r := farm.Run{ID: c.run, Node: storetest.NodeName(i), Night: "2026-03-05", Offered: time.Now(), Deadline: time.Now().Add(24 * time.Hour)}
		all.Go(func() { assert.NoError(t, s.Offer(t.Context(), r, sha256.Sum256([]byte(c.run)))) })
	}
	all.Wait()
	return clients
}

// report is that of a node, in its chunks.
func (l load) report(i int) [][]byte {
	rng := rand.New(rand.NewPCG(9, uint64(i)))
	w := report.New()
	w.Start(report.RunStart{Name: "mkp2pimg", Version: "1.0", DUT: report.DUT{ID: storetest.NodeName(i)}})
	step := w.Step("bandwidth", "bandwidth")
	for range l.chunks * l.lines {
		step.Measurement(report.Measurement{Name: "write, ce", Value: 26 + rng.Float64(), Unit: "GB/s", HardwareID: fmt.Sprintf("0000:%02x:00.0", rng.IntN(256))})
	}
	step.End(report.StatusComplete)
	_ = w.End(report.StatusComplete, report.ResultPass) // a legal pair
	lines := slices.Collect(bytes.Lines(w.Bytes()))
	var chunks [][]byte
	for i := range l.chunks {
		chunks = append(chunks, slices.Concat(lines[i*len(lines)/l.chunks:(i+1)*len(lines)/l.chunks]...))
	}
	return chunks
}

// post delivers the next chunk; the error is one of the network.
func (c *client) post(ctx context.Context, h *http.Client, server string) error {
	r, err := http.NewRequestWithContext(ctx, "POST", fmt.Sprintf("%s/v1/runs/%s/chunks/%d", server, c.run, c.acked), bytes.NewReader(gzipped(c.chunks[c.acked])))
	if err != nil {
		return err
	}
	r.Header = http.Header{"Authorization": {"Bearer " + c.run}, "Content-Type": {contentType}, "Content-Encoding": {"gzip"}}
	res, err := h.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var p store.Progress
	if err := json.Unmarshal(text, &p); err != nil || res.StatusCode != http.StatusOK || p.Next != c.acked+1 {
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	c.acked = p.Next
	return nil
}

// verify holds the store against what was acknowledged.
func (l load) verify(t *testing.T, name string, clients []*client) {
	s, err := store.Open(t.Context(), name)
	require.NoError(t, err)
	defer s.Close()
	for _, c := range clients {
		r, err := s.Run(t.Context(), c.run)
		require.NoError(t, err)
		from, err := s.Report(t.Context(), c.run)
		require.NoError(t, err)
		text, err := io.ReadAll(from)
		require.NoError(t, err)
		// The last one may be there although nobody heard of that.
		require.Contains(t, []int{c.acked, c.acked + 1}, r.Chunks)
		require.True(t, bytes.Equal(slices.Concat(c.chunks[:r.Chunks]...), text), "run %s is not what was sent", c.run)
		require.Equal(t, r.Chunks == len(c.chunks), r.State == farm.Complete)
	}
}

// tally counts what the clients see.
type tally struct {
	mu     sync.Mutex
	took   []time.Duration // of the requests that were acknowledged
	failed int
	last   error
}

func (c *tally) add(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took = append(c.took, took)
}

func (c *tally) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
	c.last = err
}

// waitFor waits until n chunks were acknowledged.
func (c *tally) waitFor(t *testing.T, n int) {
	t.Helper()
	if !assert.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.took) >= n
	}, 10*time.Minute, time.Millisecond) {
		c.mu.Lock()
		defer c.mu.Unlock()
		t.Fatalf("%d of %d chunks; the last error: %v", len(c.took), n, c.last)
	}
}

func (c *tally) figures(took time.Duration) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	n := len(c.took)
	return fmt.Sprintf("%d acknowledged in %v, %.0f requests/s, p50 %v, p99 %v, longest %v, %d cut off",
		n, took.Round(time.Millisecond), float64(n)/took.Seconds(), c.took[n/2].Round(10*time.Microsecond),
		c.took[n*99/100].Round(10*time.Microsecond), c.took[n-1].Round(10*time.Microsecond), c.failed)
}

// server is a process of its own.
type server struct {
	t      *testing.T
	name   string
	socket *os.File
	url    string
	cmd    *exec.Cmd
	out    *bytes.Buffer
	peak   int             // most memory that any of them had, in bytes
	down   []time.Duration // from the kill to the first answer
}

func startServer(t *testing.T, name string) *server {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	require.NoError(t, err)
	s := &server{t: t, name: name, socket: socket, url: "http://" + l.Addr().String()}
	s.start()
	t.Cleanup(func() {
		s.kill()
		assert.NoError(t, socket.Close())
	})
	return s
}

func (s *server) start() {
	program, err := os.Executable()
	require.NoError(s.t, err)
	s.cmd, s.out = exec.CommandContext(context.WithoutCancel(s.t.Context()), program), &bytes.Buffer{}
	s.cmd.Env = append(os.Environ(), serverEnv+"="+s.name)
	s.cmd.ExtraFiles = []*os.File{s.socket}
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	require.NoError(s.t, s.cmd.Start())
}

var peakLine = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// kill ends the process as it stands.
func (s *server) kill() {
	if s.cmd.ProcessState != nil {
		return
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid)); err == nil {
		if m := peakLine.FindSubmatch(status); m != nil {
			kib, _ := strconv.Atoi(string(m[1])) // digits
			s.peak = max(s.peak, kib<<10)
		}
	}
	require.NoError(s.t, s.cmd.Process.Kill())
	_ = s.cmd.Wait() // it was killed
	assert.Empty(s.t, s.out.String())
}

func (s *server) restart() {
	killed := time.Now()
	s.kill()
	s.start()
	for {
		c, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(s.t, err) // it waits in the socket's queue
		_, err = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		require.NoError(s.t, err)
		n, _ := c.Read(make([]byte, 1))
		require.NoError(s.t, c.Close())
		if n == 1 {
			break
		}
	}
	s.down = append(s.down, time.Since(killed).Round(time.Millisecond))
}
