package page

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// screenshots names a directory that pictures of the pages are written to.
const screenshots = "MKP2PIMG_SCREENSHOTS"

// browser is a real one, and what it complained about.
type browser struct {
	ctx  context.Context
	mu   sync.Mutex
	said []string // errors and warnings of the console, exceptions, dialogs
	to   []string // addresses that were asked for
}

// newBrowser starts Chromium, or skips the test where there is none.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a browser")
	}
	var program string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		t.Skip("needs Chromium in PATH")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.WindowSize(1280, 900), chromedp.WSURLReadTimeout(time.Minute))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, b.listen)) // starts it
	b.ctx, cancel = context.WithTimeout(ctx, 5*time.Minute)
	t.Cleanup(cancel)
	call(t, b, network.Enable, network.EnableParams{})
	call(t, b, log.Enable, cdp.Empty{})
	call(t, b, runtime.Enable, cdp.Empty{})
	call(t, b, page.Enable, page.EnableParams{})
	return b
}

// call sends a command to the browser.
func call[P, R any](t *testing.T, b *browser, command cdp.Command[P, R], params P) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, command, params)
	require.NoError(t, err)
}

// run takes steps in the browser.
func (b *browser) run(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(b.ctx, steps...))
}

// eval returns what an expression is in the page.
func eval[T any](t *testing.T, b *browser, expression string) T {
	t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(t, err, expression)
	return v
}

func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprintf("console.%s, %d arguments", e.Type, len(e.Args)))
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *page.EventJavascriptDialogOpening:
		b.said = append(b.said, "dialog: "+e.Message)
		go func() { // the test fails by what was said, but it must end
			_, _ = chromedp.Call(b.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
		}()
	case *network.EventRequestWillBeSent:
		b.to = append(b.to, e.Request.URL)
	}
}

// quiet fails the test if a page complained, or asked another host.
func (b *browser) quiet(t *testing.T, server string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(t, b.said)
	require.NotEmpty(t, b.to)
	ours, err := url.Parse(server)
	require.NoError(t, err)
	for _, to := range b.to {
		u, err := url.Parse(to)
		require.NoError(t, err)
		require.Contains(t, []string{ours.Host, ""}, u.Host, to) // data: has no host
	}
}

// shoot writes a picture of the whole page, if pictures are wanted.
func (b *browser) shoot(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv(screenshots)
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}

// pagesShown are the pages that pictures are taken of.
var pagesShown = map[string]string{
	"fleet": "/", "node-slow": "/nodes/r1-n02", "node-wrong": "/nodes/r1-n03", "node-arms": "/nodes/r2-n01", "node-switches": "/nodes/r2-n02",
	"node-new": "/nodes/r3-n01", "nights": "/nights", "night": "/nights/" + tonight,
	"run-hung": "/runs/r1-n10-" + tonight, "run-live": "/runs/r2-n05-" + tonight, "login": "/login", "missing": "/runs/none",
}

// TestBrowserPages loads every page, dark and light, wide and narrow.
func TestBrowserPages(t *testing.T) {
	b, l := newBrowser(t), newLab(t)
	for _, narrow := range []bool{false, true} {
		for _, scheme := range []string{"light", "dark"} {
			for name, path := range pagesShown {
				width := int64(1280)
				if narrow {
					width = 390
				}
				call(t, b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 900, DeviceScaleFactor: 1, Mobile: narrow})
				call(t, b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
				b.run(t, chromedp.Navigate(l.Server.URL+path))
				assert.LessOrEqual(t, eval[int](t, b, `document.documentElement.scrollWidth`), int(width), "%s overflows", name)
				assert.Equal(t, map[string]string{"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme],
					eval[string](t, b, `getComputedStyle(document.documentElement).backgroundColor`))
				b.shoot(t, strings.Join([]string{name, scheme, fmt.Sprint(width)}, "-"))
			}
		}
	}
	b.mu.Lock()
	// The answer 404 of the page that is missing is an entry of the log.
	said := b.said
	b.said = nil
	b.mu.Unlock()
	for _, s := range said {
		require.Contains(t, s, "/runs/none")
	}
	b.quiet(t, l.Server.URL)
}

// TestBrowserKeyboard filters, sorts and changes the colours without a mouse.
func TestBrowserKeyboard(t *testing.T) {
	b, l := newBrowser(t), newLab(t)
	press := func(keys ...string) {
		for _, k := range keys {
			b.run(t, chromedp.KeyEvent(k))
		}
	}
	focused := func() string {
		return eval[string](t, b, `(document.activeElement.innerText || document.activeElement.name || document.activeElement.id).trim()`)
	}
	rows := func() []string {
		return eval[[]string](t, b, `[...document.querySelectorAll(".fleet tbody th a")].map(a => a.innerText)`)
	}
	b.run(t, chromedp.Navigate(l.Server.URL+"/"))
	press(kb.Tab)
	assert.Equal(t, "Skip to content", focused())
	assert.True(t, eval[bool](t, b, `document.activeElement.getBoundingClientRect().top >= 0`), "it can be seen")
	press(kb.Enter, kb.Tab)
	assert.Equal(t, "q", focused(), "the first field behind the navigation")
	assert.NotEqual(t, "none", eval[string](t, b, `getComputedStyle(document.activeElement).outlineStyle`))

	press("r", "2", "-", "n")
	wait(t, b, `document.querySelectorAll(".fleet tbody tr").length === 5`)
	assert.Equal(t, "q", focused(), "one can go on typing")
	assert.Equal(t, "/?q=r2-n", eval[string](t, b, `location.pathname + location.search`))
	assert.Equal(t, "5 of 10 nodes", eval[string](t, b, `document.getElementById("status").innerText`), "readers of the screen are told")
	press(kb.Tab)
	assert.Equal(t, "verdict", eval[string](t, b, `document.activeElement.name`))
	press("n", "o") // NO GPU
	wait(t, b, `document.querySelectorAll(".fleet tbody tr").length === 1`)
	assert.Equal(t, []string{"r2-n03"}, rows())

	b.run(t, chromedp.Navigate(l.Server.URL+"/"), chromedp.Focus("#by-node"))
	press(kb.Enter)
	wait(t, b, `location.search === "?sort=node"`)
	assert.Equal(t, "r1-n01", rows()[0])
	assert.Equal(t, "ascending", eval[string](t, b, `document.querySelector("[aria-sort]").getAttribute("aria-sort")`))

	b.run(t, chromedp.Focus(`button[value="dark"]`))
	press(kb.Enter)
	wait(t, b, `document.documentElement.dataset.theme === "dark"`)
	assert.Equal(t, "rgb(20, 23, 26)", eval[string](t, b, `getComputedStyle(document.documentElement).backgroundColor`))
	assert.Equal(t, "?sort=node", eval[string](t, b, `location.search`), "the same page as before")
	b.quiet(t, l.Server.URL)
}

// wait waits until an expression is true in the page.
func wait(t *testing.T, b *browser, expression string) {
	t.Helper()
	require.Eventually(t, func() bool {
		is, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression))
		return err == nil && is // an error while another page is loaded
	}, time.Minute, 100*time.Millisecond, expression)
}

// TestBrowserProgress sees a night go on, on a page that is not loaded again.
func TestBrowserProgress(t *testing.T) {
	b, l := newBrowser(t), newLab(t)
	b.run(t, chromedp.Navigate(l.Server.URL+"/nights/"+tonight))
	_ = eval[bool](t, b, `window.stays = true`)
	assert.Contains(t, eval[string](t, b, `document.querySelector("#live").innerText`), "8 of 10 nodes are done")

	const run = "r2-n05-" + tonight
	deliver(t, l.Store, run, [][]byte{[]byte(`{"testStepArtifact":{"testStepId":"traffic","testStepStart":{"name":"traffic"}},"sequenceNumber":900,"timestamp":"2026-01-31T23:30:00Z"}` + "\n")}, now)
	wait(t, b, `[...document.querySelectorAll("tbody tr")].some(r => r.innerText.includes("r2-n05") && r.innerText.includes("traffic"))`)

	b.run(t, chromedp.Focus("#by-node")) // the focus stays where it was
	deliver(t, l.Store, run, [][]byte{[]byte(`{"testRunArtifact":{"testRunEnd":{"status":"COMPLETE","result":"FAIL"}},"sequenceNumber":901,"timestamp":"2026-01-31T23:31:00Z"}` + "\n")}, now)
	judged(t, l.Store, run, nil)
	wait(t, b, `document.querySelector("#live").innerText.includes("9 of 10 nodes are done")`)
	assert.True(t, eval[bool](t, b, `window.stays`), "the page was not loaded again")
	assert.Equal(t, "by-node", eval[string](t, b, `document.activeElement.id`))
	assert.Contains(t, eval[string](t, b, `document.getElementById("status").innerText`), "9 of 10 nodes are done")
	b.quiet(t, l.Server.URL)

	// Without script the page is loaded again by itself.
	call(t, b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.run(t, chromedp.Navigate(l.Server.URL+"/nights/"+tonight))
	before := b.asked("/nights/" + tonight)
	require.Eventually(t, func() bool { return b.asked("/nights/"+tonight) > before }, time.Minute, 100*time.Millisecond)
}

// asked counts the requests for a path.
func (b *browser) asked(path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, to := range b.to {
		if strings.HasSuffix(to, path) {
			n++
		}
	}
	return n
}

// TestBrowserHostile has a browser look at what someone put into a report.
func TestBrowserHostile(t *testing.T) {
	b, l := newBrowser(t), hostileLab(t)
	for _, path := range hostilePaths() {
		b.run(t, chromedp.Navigate(l.Server.URL+path))
		assert.Zero(t, eval[int](t, b, `document.querySelectorAll("xss, img, iframe").length`), path)
		assert.Equal(t, "undefined", eval[string](t, b, `typeof window.evil`))
	}
	b.mu.Lock()
	for _, s := range b.said { // exceptions would be of scripts that ran
		assert.Contains(t, s, "404", "only pages that are missing")
	}
	b.said = nil
	b.mu.Unlock()
	b.quiet(t, l.Server.URL)
}

// TestBrowserPin logs in and pins what is normal, with the forms as they are.
func TestBrowserPin(t *testing.T) {
	b, l := newBrowser(t), newLab(t)
	b.run(t, chromedp.Navigate(l.Server.URL+"/nodes/r1-n02"))
	_ = eval[bool](t, b, `document.querySelector('a[href^="/login"]').click() || true`)
	wait(t, b, `location.pathname === "/login"`)
	assert.Equal(t, "token", eval[string](t, b, `document.activeElement.name`))
	b.run(t, chromedp.KeyEvent(adminToken+kb.Enter))
	wait(t, b, `location.pathname === "/nodes/r1-n02" && document.querySelector('button[value="pin"]') !== null`)
	b.run(t, chromedp.Focus(`button[value="pin"]`), chromedp.KeyEvent(kb.Enter))
	wait(t, b, `location.hash === "#baselines" && document.querySelector('button[value="unpin"]') !== null`)
	base, err := l.Baselines(t.Context(), "r1-n02")
	require.NoError(t, err)
	assert.True(t, base[0].Pinned)
	b.shoot(t, "node-admin")
	b.quiet(t, l.Server.URL)
}
