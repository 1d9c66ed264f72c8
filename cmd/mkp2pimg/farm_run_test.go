package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/intake"
	farmjudge "mkp2pimg/internal/farm/judge"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/golden"
	"mkp2pimg/internal/report"
)

const farmToken = "the-token-of-the-administrator"

// farmBench is a lab with its server, whose machines deliver as soon as they are
// armed: those whose name begins with good or blocked a report, others nothing.
type farmBench struct {
	t    *testing.T
	dir  string
	db   *store.Store
	url  string
	next http.Handler
}

func newFarmBench(t *testing.T, nodes string) *farmBench {
	t.Helper()
	b := &farmBench{t: t, dir: t.TempDir()}
	var err error
	b.db, err = store.Open(t.Context(), filepath.Join(b.dir, "farm.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = b.db.Close() })
	in := intake.New(intake.Config{
		Store: b.db, Known: func(string) bool { return true }, Admin: func(token string) bool { return token == farmToken },
		Judge: intake.Judge{Summarise: farmjudge.Summarise, Compare: farmjudge.Judge, Learn: farmjudge.Learn, Depth: farmjudge.Depth},
		Night: func(time.Time) string { return "" }, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		in.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	b.next = in
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.url = server.URL
	b.write("admin-token", farmToken+"\n")
	b.write("lab.yaml", "server: "+b.url+"\nimages: {p2p: out}\nnightly: {attempts: 1, concurrency: 2}\nnodes:\n"+nodes)
	return b
}

func (b *farmBench) write(name, text string) {
	require.NoError(b.t, os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600))
}

func (b *farmBench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.next.ServeHTTP(w, r)
	if r.Method == http.MethodPost {
		night, name := path.Base(path.Dir(path.Dir(r.URL.Path))), path.Base(r.URL.Path)
		if err := b.boot(context.WithoutCancel(r.Context()), night, name); err != nil {
			b.t.Error(err)
		}
	}
}

// boot is what a machine does.
func (b *farmBench) boot(ctx context.Context, night, name string) error {
	verdict, ok := map[string]checks.Verdict{"good": checks.VerdictReady, "blocked": checks.VerdictBlocked}[strings.TrimRight(name, "0123456789")]
	if !ok {
		return nil
	}
	run := farm.Run{ID: uuid.NewString(), Node: name, Night: night, Source: farm.Network, State: farm.Offered, Offered: time.Now(), Deadline: time.Now().Add(time.Hour)}
	if err := b.db.Offer(ctx, run, sha256.Sum256([]byte(name))); err != nil {
		return err
	}
	text := report.New()
	text.Start(report.RunStart{Name: "mkp2pimg", Version: "test", DUT: report.DUT{ID: name}})
	step := text.Step("report", "reach the verdict")
	step.Verdict(report.Verdict{Verdict: verdict, Reason: "made up"})
	step.End(report.StatusComplete)
	if err := text.End(report.Outcome(verdict, false)); err != nil {
		return err
	}
	_, err := b.db.Append(ctx, run.ID, store.Chunk{Seq: 0, Data: text.Bytes(), End: true, At: time.Now()})
	return err
}

func (b *farmBench) run(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	args = append([]string{"farm", "run", "--lab", filepath.Join(b.dir, "lab.yaml"), "--poll", "20ms"}, args...)
	code = run(b.t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

const byCommand = ", power: {command: [\"true\"]}"

func TestFarmRun(t *testing.T) {
	tests := []struct {
		name, nodes string
		code        int
		want        string // standard output, IDs and times left out
		progress    []string
	}{
		{
			name: "all good", nodes: "good1 good2", code: exitOK,
			want:     "good         good1, run ID\ngood         good2, run ID\nnight NIGHT, 2 nodes in TIME: 2 good\n",
			progress: []string{"good1: is started", "good1: has delivered its report", "good2: good"},
		},
		{
			name: "one blocked, one without an answer", nodes: "good1 blocked1 dark1", code: exitFailed,
			want: "good         good1, run ID\nnot ready    blocked1, run ID: P2P-BLOCKED: made up\n" +
				"not started  dark1: it could not be started: node dark1: false: exit status 1\n" +
				"night NIGHT, 3 nodes in TIME: 1 good, 1 not ready, 1 not started\n",
			progress: []string{"dark1: not started: it could not be started"},
		},
		{
			name: "one does not answer", nodes: "dark1 good1", code: exitUnknown,
			want: "not started  dark1: it could not be started: node dark1: false: exit status 1\ngood         good1, run ID\n" +
				"night NIGHT, 2 nodes in TIME: 1 good, 1 not started\n",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes string
			for i, name := range strings.Fields(tt.nodes) {
				power := byCommand
				if name == "dark1" {
					power = strings.Replace(power, "true", "false", 1)
				}
				nodes += fmt.Sprintf("  - {name: %s, mac: \"52:54:00:00:00:0%d\"%s}\n", name, i, power)
			}
			b := newFarmBench(t, nodes)
			files := []string{"night.xml", "night.json", "night.prom"}
			for i, f := range files {
				files[i] = filepath.Join(b.dir, f)
			}
			code, stdout, stderr := b.run("--junit", files[0], "--json", files[1], "--metrics", files[2])
			assert.Equal(t, tt.code, code, stderr)
			l, err := lab.Load(filepath.Join(b.dir, "lab.yaml"))
			require.NoError(t, err)
			assert.Equal(t, tt.want, withoutIDs(stdout, l.Night(time.Now())))
			for _, p := range tt.progress {
				assert.Contains(t, stderr, p)
			}
			for i, head := range []string{"<?xml", "{\n", "# "} {
				text, err := os.ReadFile(files[i])
				require.NoError(t, err)
				assert.True(t, strings.HasPrefix(string(text), head), "%s: %.40q", files[i], text)
				assert.Contains(t, string(text), "good1")
			}
			for name := range strings.FieldsSeq(tt.nodes) {
				_, err := b.db.Armed(t.Context(), l.Night(time.Now()), name)
				require.ErrorIs(t, err, store.ErrNotFound, "%s is still armed", name)
			}

			// Once more, in the same night: nobody is started who has delivered.
			code, stdout, _ = b.run()
			assert.Equal(t, tt.code, code)
			assert.Contains(t, withoutIDs(stdout, l.Night(time.Now())), "good         good1, run ID, from before\n")
		})
	}
}

// withoutIDs leaves out of an output what is another each time.
func withoutIDs(s, night string) string {
	s = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(s, "ID")
	s = regexp.MustCompile(` in \S+s: `).ReplaceAllString(s, " in TIME: ")
	return strings.ReplaceAll(s, night, "NIGHT")
}

func TestFarmRunPlan(t *testing.T) {
	b := newFarmBench(t, `  - {name: rack1-1, mac: "52:54:00:00:00:01", group: rack1, power: {redfish: {url: "https://10.0.1.7", user: admin, password-file: pw}}}
  - {name: rack1-2, mac: "52:54:00:00:00:02", group: rack1, plan: check, power: {ipmi: {host: 10.0.1.8, user: admin, password-file: pw}}}
  - {name: desk, mac: "52:54:00:00:00:03", power: {wol: {}}}
  - {name: outlet, mac: "52:54:00:00:00:04", power: {command: [pdu, on, "7"]}}
  - {name: byhand, mac: "52:54:00:00:00:05"}
  - {name: spare, mac: "52:54:00:00:00:06", boot: never}
`)
	code, stdout, stderr := b.run("--dry-run")
	assert.Equal(t, exitOK, code, stderr)
	l, err := lab.Load(filepath.Join(b.dir, "lab.yaml"))
	require.NoError(t, err)
	golden.Equal(t, "testdata/farm-plan.txt", strings.ReplaceAll(withoutIDs(stdout, l.Night(time.Now())), b.url, "http://SERVER"))
}

func TestFarmRunMistakes(t *testing.T) {
	b := newFarmBench(t, "  - {name: good1, mac: \"52:54:00:00:00:01\"}\n  - {name: spare, mac: \"52:54:00:00:00:02\", boot: never}\n")
	b.write("no-token", "\n")
	b.write("other-token", "another\n")
	b.write("bad.yaml", "server: http://10.0.0.1:8080\nimages: {p2p: out}\nnoodles: []\n")
	b.write("empty.yaml", "server: http://10.0.0.1:8080\nimages: {p2p: out}\n")
	in := func(name string) string { return filepath.Join(b.dir, name) }
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--nodes", "good1,rack9"}, exitUsage, `there is no node "rack9"`},
		{[]string{"--nodes", "spare"}, exitUsage, "node spare has boot: never"},
		{[]string{"--server", "farm:8080"}, exitUsage, `"farm:8080" is no URL of a server`},
		{[]string{"--token-file", in("absent")}, exitIO, "no such file or directory (mkp2pimg serve makes it"},
		{[]string{"--token-file", in("no-token")}, exitData, "is to have it in one line"},
		{[]string{"--token-file", in("other-token")}, exitUnavailable, "401 Unauthorized"},
		{[]string{"--server", "http://127.0.0.1:1"}, exitUnavailable, "connection refused; is the farm's server running"},
		{[]string{"--lab", in("absent.yaml")}, exitIO, "no such file"},
		{[]string{"--lab", in("bad.yaml")}, exitData, "bad.yaml:3: "},
		{[]string{"--lab", in("empty.yaml")}, exitData, "has no nodes that may boot the image"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := b.run(tt.args...)
			assert.Equal(t, tt.code, code)
			assert.Contains(t, stderr, tt.want)
			assert.NotContains(t, stderr, farmToken)
			assert.Empty(t, stdout)
		})
	}
}
