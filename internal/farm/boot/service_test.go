package boot

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/images"
	"mkp2pimg/images/imagestest"
	"mkp2pimg/images/pxe"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
	"mkp2pimg/internal/sandbox"
)

// memory is a store in memory.
type memory struct {
	mu    sync.Mutex
	nodes map[string]farm.Node
	runs  []farm.Run
	token map[string]store.Token
	armed map[string]store.Armed
	err   error
}

func (m *memory) Touch(_ context.Context, n farm.Node) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[n.Name] = n
	return m.err
}

func (m *memory) Runs(_ context.Context, q store.Query) (runs []farm.Run, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.runs {
		if r.Node == q.Node && r.Night == q.Night {
			runs = append(runs, r)
		}
	}
	return runs, m.err
}

func (m *memory) Armed(_ context.Context, night, node string) (store.Armed, error) {
	if a, ok := m.armed[node]; ok && a.Night == night {
		return a, nil
	}
	return store.Armed{}, fmt.Errorf("node %s: %w", node, store.ErrNotFound)
}

func (m *memory) Offer(_ context.Context, r farm.Run, t store.Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.Source, r.State = farm.Network, farm.Offered
	m.runs = append(m.runs, r)
	m.token[r.ID] = t
	return m.err
}

// bench is a service with what it works on.
type bench struct {
	*Service
	memory *memory
	image  string // directory
	clock  time.Time
}

const labText = `server: http://10.0.0.1:8080
images: {p2p: %s}
pixiecore: 10.0.0.2
unknown: never
defaults: {plan: check, parameters: "console=ttyS1,115200", attempts: 2}
night: {begins: "18:00", zone: UTC}
nodes:
  - {name: a, mac: "52:54:00:00:00:0a"}
  - {name: b, uuid: 4c4c4544-0034-4d10-8051-b4c04f333232, boot: always}
  - {name: c, serial: "CZ 1", boot: armed}
`

// pattern is an image that is made once.
var pattern string

func TestMain(m *testing.M) {
	code := m.Run()
	if err := os.RemoveAll(pattern); err != nil { // the empty name is nothing
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// newImage copies the pattern.
func newImage(t *testing.T) string {
	t.Helper()
	if pattern == "" {
		loaders := t.TempDir()
		for name, content := range map[string]string{"usr/lib/ipxe/undionly.kpxe": "bios", "usr/lib/ipxe/snponly.efi": "MZ efi"} {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(loaders, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(loaders, name), []byte(content), 0o600))
		}
		dir, err := os.MkdirTemp("", "boot")
		require.NoError(t, err)
		_, err = imagestest.Netboot(t, pxe.Media(sandbox.Root{Dir: loaders})...).Write(t.Context(), filepath.Join(dir, "out"))
		require.NoError(t, err)
		pattern = dir
	}
	dir := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join(pattern, "out"))))
	return dir
}

func newBench(t *testing.T, change ...string) *bench {
	t.Helper()
	b := &bench{image: newImage(t), clock: noon}
	b.memory = &memory{nodes: map[string]farm.Node{}, token: map[string]store.Token{}, armed: map[string]store.Armed{}}
	l, err := lab.Parse("lab.yaml", []byte(strings.NewReplacer(change...).Replace(fmt.Sprintf(labText, b.image))))
	require.NoError(t, err)
	b.Service, err = New(Config{
		Lab: l, Store: b.memory, Pin: "pin", Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: func() time.Time { return b.clock },
	})
	require.NoError(t, err)
	return b
}

// get asks the service from an address.
func (b *bench) get(t *testing.T, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://10.0.0.1:8080"+path, nil)
	r.RemoteAddr = "10.0.0.77:1234"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	return w
}

func from(addr string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = addr + ":1234" }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

const nodeA = "/v1/ipxe?mac=52-54-00-00-00-0a&uuid=&serial="

func TestNodeStartsTheImageThenItsDisk(t *testing.T) {
	b := newBench(t)
	w := b.get(t, nodeA)
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	script := w.Body.String()
	require.Len(t, b.memory.runs, 1)
	run := b.memory.runs[0]
	assert.Equal(t, "a", run.Node)
	assert.Equal(t, "2026-11-29", run.Night, "noon belongs to the night before")
	assert.Equal(t, noon.Add(30*time.Minute), run.Deadline)
	for _, want := range []string{
		"p2p.collect=http://10.0.0.1:8080/v1/runs/" + run.ID, "p2p.node=a", "p2p.plan=check", "p2p.after=reboot", "p2p.pin=pin", "console=ttyS1,115200",
	} {
		assert.Contains(t, script, " "+want)
	}
	token := regexp.MustCompile(`p2p\.token=([A-Za-z0-9_-]{43})\b`).FindStringSubmatch(script)
	require.NotNil(t, token)
	assert.Equal(t, store.Token(sha256.Sum256([]byte(token[1]))), b.memory.token[run.ID], "the store has its hash")
	assert.NotContains(t, fmt.Sprint(b.memory.runs), token[1])

	// All that the script names is there.
	for line := range strings.Lines(script) {
		if f := strings.Fields(line); len(f) > 1 && (f[0] == "kernel" || f[0] == "initrd") {
			assert.Equal(t, http.StatusOK, b.get(t, strings.TrimPrefix(f[1], "http://10.0.0.1:8080")).Code, f[1])
		}
	}

	b.memory.runs[0].State = farm.Complete
	w = b.get(t, nodeA)
	assert.Contains(t, w.Body.String(), "starts from its disk: it has delivered the report of this night")
	assert.Len(t, b.memory.runs, 1)

	b.clock = noon.Add(7 * time.Hour) // the next night
	assert.Contains(t, b.get(t, nodeA).Body.String(), "attempt 1 of 2")
}

func TestTokensDiffer(t *testing.T) {
	b := newBench(t)
	b.get(t, nodeA)
	b.get(t, nodeA)
	require.Len(t, b.memory.runs, 2)
	assert.NotEqual(t, b.memory.token[b.memory.runs[0].ID], b.memory.token[b.memory.runs[1].ID])
	assert.NotEqual(t, b.memory.runs[0].ID, b.memory.runs[1].ID, "a second start never gets the run of the first")
}

func TestWhoIsWho(t *testing.T) {
	for name, tt := range map[string]struct{ query, want string }{
		"by UUID":              {"mac=52-54-00-00-00-0f&uuid=4C4C4544-0034-4D10-8051-B4C04F333232", "p2p.node=b"},
		"by serial number":     {"mac=52-54-00-00-00-0f&serial=CZ%201", "c starts from its disk: it is not armed"},
		"a stranger":           {"mac=52-54-00-00-00-0f&serial=CZ", "mac-52-54-00-00-00-0f starts from its disk: it is not in lab.yaml"},
		"nobody":               {"", "it is not in lab.yaml"},
		"injected":             {"mac=52-54-00-00-00-0f%0Ashell&uuid=x%0Ashell&serial=a%0Ashell", "it is not in lab.yaml"},
		"injected with spaces": {"mac=52-54-00-00-00-0f&serial=" + "%7C%7C+shell", "it is not in lab.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBench(t).get(t, "/v1/ipxe?"+tt.query)
			assert.Equal(t, http.StatusOK, w.Code)
			assert.Contains(t, w.Body.String(), tt.want)
			assert.NotContains(t, w.Body.String(), "shell")
		})
	}
}

func TestStrangers(t *testing.T) {
	b := newBench(t, "unknown: never", "unknown: nightly")
	assert.Contains(t, b.get(t, "/v1/ipxe?mac=52-54-00-00-00-0f&serial=X1").Body.String(), "p2p.node=mac-52-54-00-00-00-0f ")
	assert.Equal(t, "X1", b.memory.nodes["mac-52-54-00-00-00-0f"].Serial)
	assert.Contains(t, b.get(t, "/v1/ipxe?uuid=4c4c4544-0034-4d10-8051-b4c04f333233").Body.String(), "starts from its disk", "nothing to call it by")

	refused := 0
	for i := range 300 {
		w := b.get(t, fmt.Sprintf("/v1/ipxe?mac=52-54-00-01-%02x-%02x", i/256, i%256), from(fmt.Sprintf("10.0.%d.%d", 1+i/200, i%200)))
		if w.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	assert.Equal(t, 300-199, refused, "made-up machines do not fill the store")
	assert.Contains(t, b.get(t, nodeA).Body.String(), "attempt 1 of 2", "nor do they keep others out")
}

func TestForgedIdentityDoesNotChangeTheNode(t *testing.T) {
	b := newBench(t)
	b.get(t, "/v1/ipxe?mac=52-54-00-00-00-0f&uuid=4C4C4544-0034-4D10-8051-B4C04F333232")
	assert.Equal(t, "4c4c4544-0034-4d10-8051-b4c04f333232", b.memory.nodes["b"].UUID)
	b.get(t, "/v1/ipxe?mac=52-54-00-00-00-0a&uuid=4C4C4544-0034-4D10-8051-B4C04F333232")
	assert.Equal(t, "52:54:00:00:00:0a", b.memory.nodes["a"].MAC, "the MAC address counts first")
}

func TestRates(t *testing.T) {
	b := newBench(t, "attempts: 2", "attempts: 1000")
	codes := map[int]int{}
	for range 20 {
		codes[b.get(t, nodeA).Code]++
	}
	assert.Equal(t, map[int]int{http.StatusOK: 6, http.StatusTooManyRequests: 14}, codes, "of a MAC address")
	b = newBench(t)
	codes = map[int]int{}
	for i := range 100 {
		codes[b.get(t, fmt.Sprintf("/v1/ipxe?mac=52-54-00-00-01-%02x", i)).Code]++
	}
	assert.Equal(t, map[int]int{http.StatusOK: 60, http.StatusTooManyRequests: 40}, codes, "of an address")
}

func TestStoreFails(t *testing.T) {
	b := newBench(t)
	b.memory.err = errors.New("disk full")
	w := b.get(t, nodeA)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.NotContains(t, w.Body.String(), "p2p.token", "no token that the store does not know")
	assert.NotContains(t, w.Body.String(), "disk full")
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
}

func TestArmedWithAnImageThatIsNotThere(t *testing.T) {
	b := newBench(t)
	b.memory.armed["a"] = store.Armed{Night: "2026-11-29", Image: "gone", Attempts: 1, At: noon}
	assert.Equal(t, http.StatusServiceUnavailable, b.get(t, nodeA).Code)
	assert.Empty(t, b.memory.runs)
}

func TestOnlyGetStartsARun(t *testing.T) {
	b := newBench(t)
	for _, path := range []string{nodeA, "/v1/boot/52:54:00:00:00:0a"} {
		for _, method := range []string{http.MethodHead, http.MethodPost, http.MethodPut} {
			w := b.get(t, path, func(r *http.Request) { r.Method = method })
			assert.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
		}
	}
	assert.Empty(t, b.memory.runs)
}

func TestImageFiles(t *testing.T) {
	b := newBench(t)
	have, err := b.state.Load().images["p2p"].read()
	require.NoError(t, err)
	base := "/images/p2p/" + have.digest
	kernel, err := os.ReadFile(filepath.Join(b.image, images.KernelName))
	require.NoError(t, err)

	w := b.get(t, base+"/vmlinuz")
	require.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, kernel, w.Body.Bytes())
	tag := w.Header().Get("ETag")
	assert.Equal(t, `"`+have.files["vmlinuz"].SHA256+`"`, tag)
	assert.Contains(t, w.Header().Get("Cache-Control"), "immutable")
	assert.Equal(t, http.StatusNotModified, b.get(t, base+"/vmlinuz", header("If-None-Match", tag)).Code)
	w = b.get(t, base+"/vmlinuz", header("Range", "bytes=6-11"))
	assert.Equal(t, http.StatusPartialContent, w.Code)
	assert.Equal(t, "kernel", w.Body.String())
	assert.Equal(t, http.StatusNotFound, b.get(t, "/images/p2p/manifest.json").Code, "what is not in the manifest is not served")
	assert.Empty(t, b.get(t, "/images/p2p/vmlinuz").Header().Get("Cache-Control"), "without a digest it changes")

	for _, path := range []string{
		"/images/", "/images/p2p/", "/images/p2q/vmlinuz", "/images/p2p/0123456789abcdef/vmlinuz", base + "/", base + "/nothing",
		"/images/p2p/..%2f..%2fetc%2fpasswd", "/images/p2p/%2e%2e", "/images/..%2fetc/passwd", base + "/%2fetc%2fpasswd", "/images/p2p/vmlinuz%00", "/loaders/",
		"/loaders/..%2fadmin-token", "/loaders/%2fetc%2fpasswd", "/loaders/vmlinuz", "/loaders/UNDIONLY.KPXE",
	} {
		w := b.get(t, path)
		assert.Equal(t, http.StatusNotFound, w.Code, path)
		assert.Less(t, w.Body.Len(), 100, path)
	}
	w = b.get(t, "/images/p2p/../../etc/passwd")
	assert.NotEqual(t, http.StatusOK, w.Code)
}

func TestLoaders(t *testing.T) {
	b := newBench(t)
	for name, kind := range map[string]string{pxe.BIOS: "application/octet-stream", pxe.EFI: "application/efi"} {
		w := b.get(t, "/loaders/"+name, func(r *http.Request) { r.Method = http.MethodHead })
		assert.Equal(t, http.StatusOK, w.Code)
		assert.Equal(t, kind, w.Header().Get("Content-Type"))
	}
	own := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(own, pxe.EFI), []byte("MZ own"), 0o600))
	b = newBench(t, "unknown:", "loaders: "+own+"\nunknown:")
	assert.Equal(t, "MZ own", b.get(t, "/loaders/"+pxe.EFI).Body.String())
	assert.Equal(t, http.StatusNotFound, b.get(t, "/loaders/"+pxe.BIOS).Code, "from one place only")
}

func TestImageIsBuiltAnew(t *testing.T) {
	b := newBench(t)
	have, err := b.state.Load().images["p2p"].read()
	require.NoError(t, err)
	again := imagestest.Netboot(t)
	again.Manifest.Driver = "570.195.03"
	_, err = again.Write(t.Context(), b.image)
	require.NoError(t, err)
	assert.Equal(t, http.StatusNotFound, b.get(t, "/images/p2p/"+have.digest+"/vmlinuz").Code, "never a mix of two builds")
	script := b.get(t, nodeA).Body.String()
	assert.NotContains(t, script, have.digest)
	assert.Contains(t, script, "attempt 1 of 2")
}

func TestDamagedImage(t *testing.T) {
	b := newBench(t)
	imagestest.Flip(t, filepath.Join(b.image, images.InitrdName), 1000)
	_, err := New(Config{Lab: b.state.Load().Lab, Store: b.memory, Log: b.log})
	require.ErrorContains(t, err, "is damaged")
	require.NoError(t, os.RemoveAll(b.image))
	_, err = New(Config{Lab: b.state.Load().Lab, Store: b.memory, Log: b.log})
	require.ErrorContains(t, err, `make it with "mkp2pimg build --format pxe --out`)
	require.Error(t, b.Reload(b.state.Load().Lab))
	assert.Equal(t, http.StatusServiceUnavailable, b.get(t, nodeA).Code)
}

func TestFileThatIsNoLonger(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.image, images.KernelName)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Symlink("/etc/passwd", path))
	assert.NotEqual(t, http.StatusOK, b.get(t, "/images/p2p/vmlinuz").Code)
}

func TestPixiecore(t *testing.T) {
	b := newBench(t)
	path := "/v1/boot/52:54:00:00:00:0a"
	w := b.get(t, path)
	assert.Equal(t, http.StatusForbidden, w.Code, "the answer has a token in it")
	w = b.get(t, path, from("10.0.0.2"))
	require.Equal(t, http.StatusOK, w.Code)
	var answer struct {
		Kernel  string
		Initrd  []string
		Cmdline string
		Message string
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	assert.Regexp(t, `^http://10\.0\.0\.1:8080/images/p2p/[0-9a-f]{16}/vmlinuz$`, answer.Kernel)
	assert.Regexp(t, `^http://10\.0\.0\.1:8080/images/p2p/[0-9a-f]{16}/initrd\.zst$`, strings.Join(answer.Initrd, " "))
	assert.Contains(t, answer.Cmdline, "p2p.token=")
	assert.Contains(t, answer.Message, "a starts image p2p, attempt 1 of 2")

	assert.Equal(t, w.Body.String(), b.get(t, path, from("127.0.0.1")).Body.String(), "pixiecore asks several times for one start")
	assert.Len(t, b.memory.runs, 1)
	b.memory.runs[0].State = farm.Complete
	b.clock = b.clock.Add(2 * pixieTime)
	assert.Equal(t, http.StatusNotFound, b.get(t, path, from("10.0.0.2")).Code)
	assert.Equal(t, http.StatusNotFound, b.get(t, "/v1/boot/52:54:00:00:00:0f", from("10.0.0.2")).Code)
	assert.Equal(t, http.StatusBadRequest, b.get(t, "/v1/boot/x", from("10.0.0.2")).Code)
}

func TestWhichMachinesAreAnswered(t *testing.T) {
	b := newBench(t)
	assert.True(t, b.boots(Client{MAC: "52:54:00:00:00:0a"}))
	assert.False(t, b.boots(Client{MAC: "52:54:00:00:00:0f"}), "one that is not in lab.yaml is left alone")
	for _, order := range bothOrders([16]byte{0x44, 0x45, 0x4c, 0x4c, 0x34, 0, 0x10, 0x4d, 0x80, 0x51, 0xb4, 0xc0, 0x4f, 0x33, 0x32, 0x32}) {
		assert.Equal(t, order[0] == '4' && order[1] == 'c', b.boots(Client{MAC: "52:54:00:00:00:0f", UUIDs: []string{order}}))
	}
	assert.True(t, newBench(t, "unknown: never", "unknown: always").boots(Client{MAC: "52:54:00:00:00:0f"}))
}

// FuzzScript looks for what a machine can say about itself that gets into a script.
func FuzzScript(f *testing.F) {
	f.Add("52-54-00-00-00-0a", "4c4c4544-0034-4d10-8051-b4c04f333232", "CZ 1")
	f.Add("a\nshell", "${x}", "a || b")
	f.Fuzz(func(t *testing.T, mac, uuid, serial string) {
		id := readIdentity(map[string][]string{"mac": {mac}, "uuid": {uuid}, "serial": {serial}})
		script, err := diskScript(id.name(), "it is not in lab.yaml")
		require.NoError(t, err)
		assert.Equal(t, 5, strings.Count(string(script), "\n"))
		assert.Equal(t, 1, strings.Count(string(script), "$"))
	})
}
