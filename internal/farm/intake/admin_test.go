package intake

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/farm/store/storetest"
)

func TestArming(t *testing.T) {
	const path = "/v1/nights/2026-03-05/nodes/gpu-1"
	tests := map[string]struct {
		path, body string
		status     int
		want       string
	}{
		"all": {path, `{"image":"lab","plan":"full","attempts":3,"deadline":"90m"}`, 200,
			`{"night":"2026-03-05","node":"gpu-1","image":"lab","plan":"full","attempts":3,"deadline":5400000000000,"at":"2026-03-05T22:00:00Z"}`},
		"defaults":        {path, `{}`, 200, `{"night":"2026-03-05","node":"gpu-1","attempts":1,"deadline":0,"at":"2026-03-05T22:00:00Z"}`},
		"unknown field":   {path, `{"imgae":"lab"}`, 400, `{"error":"the body: json: unknown field \"imgae\""}`},
		"no body":         {path, ``, 400, `{"error":"the body: EOF"}`},
		"long body":       {path, `{"image":"` + strings.Repeat("x", maxArm) + `"}`, 400, `{"error":"the body: unexpected EOF"}`},
		"no attempts":     {path, `{"attempts":0}`, 400, `{"error":"attempts: 0 is not within 1 and 100"}`},
		"attempts":        {path, `{"attempts":101}`, 400, `{"error":"attempts: 101 is not within 1 and 100"}`},
		"deadline":        {path, `{"deadline":"soon"}`, 400, `{"error":"deadline: \"soon\" is not a time such as \"30m\""}`},
		"deadline passed": {path, `{"deadline":"-30m"}`, 400, `{"error":"deadline: \"-30m\" is not a time such as \"30m\""}`},
		"unknown node":    {"/v1/nights/2026-03-05/nodes/x", `{}`, 404, `{"error":"there is no node \"x\""}`},
		"night":           {"/v1/nights/2026-3-5/nodes/gpu-1", `{}`, 400, `{"error":"\"2026-3-5\" is not a night such as 2026-03-05"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, sqlite(t))
			w := l.call("POST", tt.path, adminToken, []byte(tt.body))
			assert.Equal(t, tt.status, w.Code)
			assert.Equal(t, tt.want+"\n", w.Body.String())
			_, err := l.Store.Armed(context.Background(), "2026-03-05", "gpu-1")
			if tt.status != http.StatusOK {
				assert.ErrorIs(t, err, store.ErrNotFound)
				return
			}
			require.NoError(t, err)
			w = l.call("DELETE", tt.path, adminToken, nil)
			assert.Equal(t, "{}\n", w.Body.String())
			_, err = l.Store.Armed(context.Background(), "2026-03-05", "gpu-1")
			assert.ErrorIs(t, err, store.ErrNotFound)
		})
	}
}

func TestReading(t *testing.T) {
	storetest.Each(t, func(t *testing.T, name string) {
		l := newLab(t, name)
		run := l.offer("gpu-1")
		body := chunks("gpu-1", 1)[0]
		require.Equal(t, 200, l.post(run, "0", body).Code)
		l.settle()
		get := func(path string) string {
			w := l.call("GET", path, adminToken, nil)
			assert.Equal(t, 200, w.Code, w.Body.String())
			return w.Body.String()
		}
		assert.Equal(t, string(body), get("/v1/runs/"+run+"/report"))
		assert.Contains(t, get("/v1/runs/"+run), `"state":"complete"`)
		assert.Contains(t, get("/v1/runs/"+run), `"verdict":"P2P-BLOCKED"`)
		assert.Contains(t, get("/v1/nights/2026-03-05"), `{"night":"2026-03-05","runs":[{"id":"`+run+`"`)
		assert.Equal(t, `{"night":"2026-03-06","runs":[]}`+"\n", get("/v1/nights/2026-03-06"))
		assert.Contains(t, get("/v1/nodes/gpu-1/runs?night=2026-03-05"), run)
		assert.Equal(t, "[]\n", get("/v1/nodes/gpu-1/runs?night=2026-03-06"))

		_, err := l.Store.Retain(context.Background(), store.Policy{Reports: time.Hour}, begin.Add(2*time.Hour))
		require.NoError(t, err)
		w := l.call("GET", "/v1/runs/"+run+"/report", adminToken, nil)
		assert.Equal(t, http.StatusGone, w.Code)
		assert.Contains(t, w.Body.String(), "removed after its time of retention (2026-03-06)")
	})
}

func TestImport(t *testing.T) {
	whole := chunks("gpu-1", 1)[0]
	log := "[    0.000000] Linux version 6.12\r\n" + strings.ReplaceAll(string(whole), "\n", "\r\n[ 1.5] usb 1-1: \xff\r\n")
	cut := strings.Join(strings.SplitAfter(string(whole), "\n")[:5], "")
	tests := map[string]struct {
		query string
		body  string
		want  farm.Run // State, Source, Node, Why
		err   string
	}{
		"stick":             {"source=stick&node=gpu-2", string(whole), farm.Run{State: farm.Complete, Source: farm.Stick, Node: "gpu-2"}, ""},
		"node of the file":  {"source=stick", string(whole), farm.Run{State: farm.Complete, Source: farm.Stick, Node: "gpu-1"}, ""},
		"serial":            {"source=serial&node=gpu-1", log, farm.Run{State: farm.Complete, Source: farm.Serial, Node: "gpu-1"}, ""},
		"without an end":    {"source=stick", cut, farm.Run{State: farm.Lost, Source: farm.Stick, Node: "gpu-1", Why: "what was imported ends before the report does, in stage driver"}, ""},
		"source":            {"source=floppy", string(whole), farm.Run{}, `import: source "floppy" is neither stick nor serial`},
		"no source":         {"node=gpu-1", string(whole), farm.Run{}, `import: source "" is neither stick nor serial`},
		"unknown node":      {"source=stick&node=../x", string(whole), farm.Run{}, `import: there is no node "../x"; say which node the report is of`},
		"no report":         {"source=stick&node=gpu-1", "hello\n", farm.Run{}, "import: no report found: no line is an OCP Test and Validation artifact"},
		"nothing":           {"source=stick&node=gpu-1", "", farm.Run{}, "import: no report found: no line is an OCP Test and Validation artifact"},
		"unnamed":           {"source=stick", strings.ReplaceAll(string(whole), "gpu-1", "unnamed"), farm.Run{}, `import: there is no node "unnamed"; say which node the report is of`},
		"start of the text": {"source=serial", log[strings.Index(log, "testStepStart")+100:], farm.Run{}, `import: there is no node ""; say which node the report is of`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, store string) {
				l := newLab(t, store)
				w := l.call("POST", "/v1/import?"+tt.query, adminToken, gzipped([]byte(tt.body)), "Content-Encoding", "gzip")
				if tt.err != "" {
					assert.Equal(t, http.StatusBadRequest, w.Code)
					assert.Equal(t, tt.err, answered(t, w).Error)
					return
				}
				require.Equal(t, 200, w.Code, w.Body.String())
				assert.Contains(t, w.Body.String(), `"fresh":true`)
				runs, err := l.Store.History(context.Background(), tt.want.Node, 10)
				require.NoError(t, err)
				require.Len(t, runs, 1)
				got := runs[0]
				assert.Equal(t, tt.body, l.stored(got.ID))
				assert.Equal(t, "2026-03-05", got.Night)
				assert.Equal(t, begin.Add(3*time.Second), got.Started)
				assert.Equal(t, tt.want, farm.Run{State: got.State, Source: got.Source, Node: got.Node, Why: got.Why})
				l.settle()
				assert.NotNil(t, l.run(got.ID).Summary)

				w = l.call("POST", "/v1/import?"+tt.query, adminToken, []byte(tt.body))
				assert.Contains(t, w.Body.String(), `"fresh":false`)
				assert.Contains(t, w.Body.String(), got.ID)
				l.sleep(time.Hour)
				w = l.call("GET", "/v1/runs/"+got.ID, nodeToken, nil)
				assert.Equal(t, 404, w.Code, "no token is good for it")
			})
		})
	}
}

func TestImportOfADeliveredReport(t *testing.T) {
	l := newLab(t, sqlite(t))
	run := l.offer("gpu-1")
	body := chunks("gpu-1", 1)[0]
	require.Equal(t, 200, l.post(run, "0", body).Code)
	got, fresh, err := l.Import(context.Background(), farm.Stick, "", body)
	require.NoError(t, err)
	assert.False(t, fresh)
	assert.Equal(t, run, got.ID)
	got, fresh, err = l.Import(context.Background(), farm.Stick, "gpu-2", body)
	require.NoError(t, err)
	assert.True(t, fresh, "of another node")
	assert.NotEqual(t, run, got.ID)
}

func TestSplit(t *testing.T) {
	line := strings.Repeat("x", 300<<10) + "\n"
	for name, tt := range map[string]struct {
		text string
		want []int
	}{
		"nothing":   {"", nil},
		"lines":     {strings.Repeat(line, 5), []int{3 * len(line), 2 * len(line)}},
		"one line":  {strings.Repeat("x", 5<<19), []int{1 << 20, 1 << 20, 1 << 19}},
		"no end":    {line + "x", []int{len(line) + 1}},
		"full":      {strings.Repeat("x", 1<<20-1) + "\n", []int{1 << 20}},
		"long line": {line + strings.Repeat("y", 2<<20), []int{len(line), 1 << 20, 1 << 20}},
	} {
		var got []int
		var all strings.Builder
		for _, c := range split([]byte(tt.text)) {
			got = append(got, len(c.Data))
			all.Write(c.Data)
		}
		assert.Equal(t, tt.want, got, name)
		assert.Equal(t, tt.text, all.String(), name)
	}
}
