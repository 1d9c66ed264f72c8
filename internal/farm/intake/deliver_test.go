package intake

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/semaphore"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/limit"
	"mkp2pimg/internal/farm/store/storetest"
)

func TestDelivery(t *testing.T) {
	c := chunks("gpu-1", 3)
	type step struct {
		seq    string
		body   []byte
		status int
		want   string // of the answer's body
	}
	tests := map[string][]step{
		"in order": {
			{"0", c[0], 200, `{"next":1,"complete":false}`},
			{"1", c[1], 200, `{"next":2,"complete":false}`},
			{"2", c[2], 200, `{"next":3,"complete":true}`},
			{"2", c[2], 200, `{"next":3,"complete":true}`},
			{"3", c[0], 403, `{"error":"the run is over"}`},
		},
		"the answer was lost": {
			{"0", c[0], 200, `{"next":1,"complete":false}`},
			{"0", c[0], 200, `{"next":1,"complete":false}`},
			{"1", c[1], 200, `{"next":2,"complete":false}`},
			{"0", c[0], 200, `{"next":2,"complete":false}`},
		},
		"a gap": {
			{"1", c[1], 409, `{"error":"chunk 0 is expected first","next":0}`},
			{"0", c[0], 200, `{"next":1,"complete":false}`},
			{"2147483647", c[1], 409, `{"error":"chunk 1 is expected first","next":1}`},
		},
		"another report of the same run": {
			{"0", c[0], 200, `{"next":1,"complete":false}`},
			{"0", c[1], 409, `{"error":"a chunk of that number arrived before, with other bytes","next":1,"conflict":true}`},
			{"1", c[1], 200, `{"next":2,"complete":false}`},
		},
		"numbers": {
			{"-1", c[0], 400, `{"error":"\"-1\" is not the number of a chunk"}`},
			{"1e3", c[0], 400, `{"error":"\"1e3\" is not the number of a chunk"}`},
			{"2147483648", c[0], 400, `{"error":"\"2147483648\" is not the number of a chunk"}`},
			{"99999999999999999999", c[0], 400, `{"error":"\"99999999999999999999\" is not the number of a chunk"}`},
		},
		"no report": {
			{"0", nil, 400, `{"error":"a chunk is whole lines: the last one has no end"}`},
			{"0", bytes.TrimSpace(c[0]), 400, `{"error":"a chunk is whole lines: the last one has no end"}`},
			{"0", []byte("nvidia: loading\n"), 400, `{"error":"no report found: no line is an OCP Test and Validation artifact"}`},
			{"0", []byte("\x00\xff\n"), 400, `{"error":"no report found: no line is an OCP Test and Validation artifact"}`},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, store string) {
				l := newLab(t, store)
				run := l.offer("gpu-1")
				for i, s := range steps {
					w := l.post(run, s.seq, s.body)
					assert.Equal(t, s.status, w.Code, "step %d", i)
					assert.Equal(t, s.want+"\n", w.Body.String(), "step %d", i)
					assert.Equal(t, "application/json", w.Header().Get("Content-Type"))
				}
				assert.Empty(t, l.log.String())
			})
		})
	}
}

func TestDeliveredByteForByte(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	assert.Equal(t, farm.Offered, l.run(run).State)
	c := chunks("gpu-1", 3)
	c[1] = append(c[1], "\xff\x00 text of a console\r\n"...)
	for i, encoding := range []string{"gzip", "zstd", "identity"} {
		body := map[string]func([]byte) []byte{"gzip": gzipped, "zstd": zstded, "identity": bytes.Clone}[encoding](c[i])
		l.sleep(time.Second)
		require.Equal(t, http.StatusOK, l.post(run, fmt.Sprint(i), body, "Content-Encoding", encoding).Code)
		if i == 0 {
			r := l.run(run)
			assert.Equal(t, farm.Running, r.State)
			assert.Equal(t, "facts", r.Stage)
		}
	}
	want := string(slices.Concat(c...))
	assert.Equal(t, want, l.stored(run))
	r := l.run(run)
	assert.Equal(t, farm.Complete, r.State)
	assert.Equal(t, int64(len(want)), r.Bytes)
	assert.Equal(t, 3, r.Chunks)
	assert.Equal(t, "report", r.Stage)
	assert.Equal(t, []time.Time{begin.Add(time.Second), begin.Add(3 * time.Second), begin.Add(3 * time.Second)}, []time.Time{r.Started, r.Updated, r.Ended})
}

func TestBodies(t *testing.T) {
	good := chunks("gpu-1", 1)[0]
	zeros := bytes.Repeat([]byte{0}, 64<<20)
	long := append(bytes.Replace(good, []byte("ACS redirects"), bytes.Repeat([]byte("x"), MaxChunk-len(good)), 1), '\n')
	tests := map[string]struct {
		encoding, contentType string
		body                  []byte
		status                int
		want                  string
	}{
		"bomb of gzip":      {"gzip", contentType, gzipped(zeros), 413, "at most 4194304 bytes are taken at once"},
		"bomb of zstd":      {"zstd", contentType, zstded(zeros), 413, "at most 4194304 bytes are taken at once"},
		"window of 2 GiB":   {"zstd", contentType, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 0, 0, 0}, 400, "the body can't be unpacked"},
		"too large":         {"", contentType, zeros[:MaxChunk+overhead+1], 413, "at most 4259840 bytes are taken at once"},
		"one line too long": {"gzip", contentType, gzipped(append(long, long...)), 413, "at most 4194304 bytes"},
		"not gzip":          {"gzip", contentType, good, 400, "the body is not gzip"},
		"half of gzip":      {"gzip", contentType, gzipped(good)[:100], 400, "the body can't be unpacked: unexpected EOF"},
		"not zstd":          {"zstd", contentType, good, 400, "the body can't be unpacked"},
		"half of zstd":      {"zstd", contentType, zstded(good)[:100], 400, "the body can't be unpacked"},
		"encoding":          {"br", contentType, good, 415, `Content-Encoding "br" is none of gzip, zstd and identity`},
		"two encodings":     {"gzip, gzip", contentType, gzipped(gzipped(good)), 415, "Content-Encoding"},
		"type":              {"", "text/html", good, 415, "Content-Type must be application/x-ndjson"},
		"no type":           {"", "", good, 415, "Content-Type must be application/x-ndjson"},
		"charset":           {"", contentType + "; charset=utf-8", good, 200, ""},
		"large":             {"", contentType, long, 200, ""},
		"gzip in two parts": {"gzip", contentType, append(gzipped(good[:50]), gzipped(good[50:])...), 200, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, sqlite(t))
			run := l.offer("gpu-1")
			w := l.post(run, "0", tt.body, "Content-Encoding", tt.encoding, "Content-Type", tt.contentType)
			assert.Equal(t, tt.status, w.Code)
			f := answered(t, w)
			assert.Contains(t, f.Error, tt.want)
			if tt.status != 200 {
				assert.NotEmpty(t, f.Error)
				assert.Empty(t, l.stored(run))
			}
		})
	}
}

func TestReportIsBounded(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	line := append(bytes.Replace(lines("gpu-1")[1], []byte(`"version":"1.0"`), []byte(`"version":"`+strings.Repeat("x", MaxChunk-1000)+`"`), 1), '\n')
	line = slices.Clip(line)
	n := 64<<20/len(line) + 1
	for i := range n {
		w := l.post(run, fmt.Sprint(i), zstded(line), "Content-Encoding", "zstd")
		if i == n-1 {
			assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
			assert.Equal(t, "the report would exceed 64 MiB", answered(t, w).Error)
			break
		}
		require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	}
	assert.Equal(t, n-1, l.run(run).Chunks)
}

func TestTokens(t *testing.T) {
	name := sqlite(t)
	l := newLab(t, name)
	run, other := l.offer("gpu-1"), l.offer("gpu-2")
	c := chunks("gpu-1", 2)
	path := "/v1/runs/" + run + "/chunks/"
	tests := map[string]struct {
		path, authorization string
		status              int
	}{
		"none":                    {path + "0", "", 401},
		"wrong":                   {path + "0", "Bearer " + nodeToken, 401},
		"of another run":          {path + "0", "Bearer " + nodeToken + "gpu-2", 401},
		"for another run":         {"/v1/runs/" + other + "/chunks/0", "Bearer " + nodeToken + "gpu-1", 401},
		"the administrator's":     {path + "0", "Bearer " + adminToken, 401},
		"in another scheme":       {path + "0", "Basic " + nodeToken + "gpu-1", 401},
		"in the query":            {path + "0?access_token=" + nodeToken + "gpu-1", "", 401},
		"for no run":              {"/v1/runs/" + uuid.NewString() + "/chunks/0", "Bearer " + nodeToken + "gpu-1", 404},
		"read without":            {"/v1/runs/" + run, "", 401},
		"read another run":        {"/v1/runs/" + other, "Bearer " + nodeToken + "gpu-1", 401},
		"a night, with a node's":  {"/v1/nights/2026-03-05", "Bearer " + nodeToken + "gpu-1", 401},
		"a report, with a node's": {"/v1/runs/" + run + "/report", "Bearer " + nodeToken + "gpu-1", 401},
	}
	for name, tt := range tests {
		method := "GET"
		if strings.Contains(tt.path, "/chunks/") {
			method = "POST"
		}
		w := l.call(method, tt.path, "", c[0], "Authorization", tt.authorization)
		assert.Equal(t, tt.status, w.Code, name)
		assert.NotContains(t, w.Body.String(), nodeToken, name)
	}
	assert.Empty(t, l.stored(run))

	t.Run("after the run", func(t *testing.T) {
		progress := func() int { return l.call("GET", "/v1/runs/"+run, nodeToken+"gpu-1", nil).Code }
		assert.Equal(t, 200, l.post(run, "0", c[0]).Code)
		assert.Equal(t, 200, l.post(run, "1", c[1], "authorization", "bearer "+nodeToken+"gpu-1").Code)
		l.sleep(9 * time.Minute)
		assert.Equal(t, 200, l.post(run, "1", c[1]).Code, "the last chunk again")
		assert.Equal(t, 409, l.post(run, "1", c[0]).Code, "another in its place")
		assert.Equal(t, 200, progress())
		l.sleep(2 * time.Minute)
		assert.Equal(t, 403, l.post(run, "1", c[1]).Code)
		assert.Equal(t, 403, l.post(run, "2", c[1]).Code)
		assert.Equal(t, 403, progress())
		assert.Equal(t, string(slices.Concat(c...)), l.stored(run))
	})
	t.Run("not kept", func(t *testing.T) {
		files, err := filepath.Glob(name + "*")
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, f := range files {
			data, err := os.ReadFile(f)
			require.NoError(t, err)
			assert.False(t, bytes.Contains(data, []byte(nodeToken)), f)
		}
	})
}

func TestSameChunkAtOnce(t *testing.T) {
	c := chunks("gpu-1", 2)
	tests := map[string]struct {
		body func(i int) []byte
		want map[int]int // answers by status
	}{
		"same bytes":  {func(int) []byte { return c[0] }, map[int]int{200: 40}},
		"other bytes": {func(i int) []byte { return append(bytes.Clone(c[0]), fmt.Sprintf("# %d\n", i)...) }, map[int]int{200: 1, 409: 39}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, store string) {
				l := newLab(t, store)
				run := l.offer("gpu-1")
				got, bodies := map[int]int{}, map[int][]byte{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range 40 {
					all.Go(func() {
						w := l.post(run, "0", tt.body(i))
						mu.Lock()
						defer mu.Unlock()
						got[w.Code]++
						bodies[w.Code] = tt.body(i)
					})
				}
				all.Wait()
				assert.Equal(t, tt.want, got)
				assert.Equal(t, string(bodies[200]), l.stored(run))
				assert.Equal(t, 1, l.run(run).Chunks)
			})
		})
	}
}

func TestPaths(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store string) {
		l := newLab(t, store)
		run := l.offer("gpu-1")
		for path, want := range map[string]int{
			"/":                               404,
			"/v1/":                            404,
			"/v1/runs":                        404,
			"/v1/runs/":                       404,
			"/v1/runs/" + run + "/":           404,
			"/v1/runs/" + run + "/chunks":     404,
			"/v1/runs/%2e%2e%2f%2e%2e%2fetc":  404,
			"/v1/runs/..%2fnights":            404,
			"/v1/runs/%00":                    404,
			"/v1/runs/%ff%fe":                 404,
			"/v1/runs/x'%20OR%20'1'='1":       404,
			"/v1/runs/x';DROP%20TABLE%20runs": 404,
			"/v1/runs/x/report":               404,
			"/v1/nights/tonight":              400,
			"/v1/nights/2026-03-05'--":        400,
			"/v1/nights/2026-02-30":           400,
			"/v1/nights/%00":                  400,
			"/v1/nodes/gpu-1'--/runs":         200, // a name that Known takes, of no run
			"/v1/nodes/%00/runs":              404,
			"/v1/nodes/gpu-1/runs?night=%27":  400,
		} {
			w := l.call("GET", path, adminToken, nil)
			assert.Equal(t, want, w.Code, path)
			if want != http.StatusOK {
				assert.NotEmpty(t, answered(t, w).Error, path)
			}
		}
		w := l.call("PUT", "/v1/runs/"+run, adminToken, nil)
		assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
		assert.Equal(t, "GET", w.Header().Get("Allow"))
		assert.Equal(t, `{"error":"this path takes GET"}`+"\n", w.Body.String())
		assert.Equal(t, farm.Offered, l.run(run).State)
		assert.Empty(t, l.log.String())
	})
}

func TestLimits(t *testing.T) {
	l := newLab(t, sqlite(t), func(c *Config) {
		c.Addresses = limit.New(3*time.Second, 6, 10)
		c.Runs = limit.New(2*time.Second, 2, 10)
	})
	run := l.offer("gpu-1")
	get := func() (int, string) {
		w := l.call("GET", "/v1/runs/"+run, nodeToken+"gpu-1", nil)
		return w.Code, w.Header().Get("Retry-After")
	}
	var got []string
	for range 8 {
		code, after := get()
		got = append(got, fmt.Sprint(code, " ", after))
	}
	assert.Equal(t, []string{"200 ", "200 ", "429 2", "429 2", "429 2", "429 2", "429 3", "429 3"}, got)
	l.sleep(3 * time.Second)
	code, _ := get()
	assert.Equal(t, 200, code)
}

func TestStageName(t *testing.T) {
	for id, want := range map[string]string{
		"driver":                    "driver",
		"\x1b[2Jdriver\x07\u202e\n": "?[2Jdriver???",
		"\xff":                      "?",
		strings.Repeat("ü", 60):     strings.Repeat("ü", 60),
		strings.Repeat("ü", 61):     strings.Repeat("ü", 59) + "…",
	} {
		assert.Equal(t, want, stageName(id))
	}
}

// TestManyBodies: what is in memory at a time is bounded, whoever sends it.
func TestManyBodies(t *testing.T) {
	l := newLab(t, sqlite(t))
	l.held = semaphore.NewWeighted(100)
	run := l.offer("gpu-1")
	part := chunks("gpu-1", 1)[0]
	require.Greater(t, len(part), 100)
	w := l.post(run, "0", part)
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, "5", w.Header().Get("Retry-After"))
	l.held = semaphore.NewWeighted(int64(len(part)))
	assert.Equal(t, 200, l.post(run, "0", part).Code)
}
