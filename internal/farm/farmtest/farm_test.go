package farmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/report"
	"mkp2pimg/qemu/qemutest"
)

const (
	bridge      = "br0"
	address     = "10.77.0.1"
	base        = "http://" + address + ":8080"
	firmwareDir = "/usr/share/OVMF/"
	inside      = "MKP2PIMG_FARM_INSIDE" // set in the network namespace of the lab
)

// TestFarm starts five nodes at once. Three deliver, one of them over a cable that
// is out for a while and to a server that is killed meanwhile; one hangs; one loses
// power. Then a sixth tries to deliver for another with a wrong token. Afterwards all that was acknowledged is in the store, once.
func TestFarm(t *testing.T) {
	image, program := os.Getenv("MKP2PIMG_IMAGE"), os.Getenv("MKP2PIMG_PROGRAM")
	if image == "" || program == "" {
		t.Skip("MKP2PIMG_IMAGE and MKP2PIMG_PROGRAM name no image, built with --format pxe, and no mkp2pimg: see \"make farm-test\"")
	}
	for _, tool := range []string{"ip", "qemu-system-x86_64"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	if _, err := os.Stat(firmwareDir + "OVMF_CODE_4M.fd"); err != nil {
		t.Skip("OVMF is not installed")
	}
	if os.Getenv(inside) == "" {
		enter(t)
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "link", "add", bridge, "type", "bridge")
	run(t, "ip", "addr", "add", address+"/24", "dev", bridge)
	run(t, "ip", "link", "set", bridge, "up")
	testFarm(t, newLab(t, image, program), image)
}

// enter runs the test once more in a network namespace of its own, which goes with
// it, in a user namespace too if this is not root.
func enter(t *testing.T) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFarm$", "-test.v", "-test.timeout=0")
	if deadline, ok := t.Deadline(); ok {
		c.Args[len(c.Args)-1] = fmt.Sprintf("-test.timeout=%v", time.Until(deadline)-10*time.Second)
	}
	c.Env = append(os.Environ(), inside+"=1")
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	require.NoError(t, c.Run(), "the test in the network namespace failed, see above")
}

func testFarm(t *testing.T, l *laboratory, image string) {
	l.serve(t)
	began := time.Now()
	nodes := map[string]*node{
		"bios1": start(t, 1, bios),
		"uefi1": start(t, 2, uefiPXE),
		"uefi2": start(t, 3, uefiHTTP),
		"hangs": start(t, 4, bios),
		"loses": start(t, 5, bios),
	}
	say := func(format string, args ...any) {
		t.Helper()
		t.Logf("%5.1f s: %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}

	// What happens to nodes when the first piece of their report has arrived: it takes
	// them seconds to deliver the rest.
	var forger *node
	var back time.Time // when the server is to be started again
	events := map[string]func(farm.Run){
		"bios1": func(r farm.Run) {
			forger = start(t, 6, direct, "-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(image, "initrd.zst"),
				"-append", "console=ttyS0,115200 p2p.plan=check p2p.after=poweroff p2p.collect="+base+"/v1/runs/"+r.ID+" p2p.token="+strings.Repeat("A", 43))
		},
		"hangs": func(farm.Run) { nodes["hangs"].freeze(t) },
		"loses": func(farm.Run) { nodes["loses"].Kill() },
		"uefi1": func(farm.Run) {
			nodes["uefi1"].unplug(t)
			l.kill(t)
			back = time.Now().Add(15 * time.Second)
		},
	}
	for len(events) > 0 || !back.IsZero() {
		for name, happens := range events {
			if !back.IsZero() {
				break
			}
			if runs := l.runs(t, name); len(runs) > 0 && runs[0].Chunks > 0 {
				say("%s delivers, stage %s: its event", name, runs[0].Stage)
				happens(runs[0])
				delete(events, name)
			}
		}
		if !back.IsZero() && time.Now().After(back) {
			l.serve(t)
			nodes["uefi1"].plug(t)
			back = time.Time{}
			say("the server is back, the cable of uefi1 too")
		}
		l.inTime(t)
		time.Sleep(100 * time.Millisecond)
	}

	for _, name := range []string{"bios1", "uefi1", "uefi2"} {
		l.await(t, name, func(r farm.Run) bool { return r.State == farm.Complete })
		say("%s has delivered", name)
	}
	for _, name := range []string{"bios1", "uefi1", "uefi2"} {
		nodes[name].Wait(t, diskSays)
		say("%s has started from its disk", name)
	}
	forger.Wait(t, "401 Unauthorized")
	say("forger was refused")
	for _, name := range []string{"hangs", "loses"} {
		lost := l.await(t, name, func(r farm.Run) bool { return r.State.Over() })
		say("%s is given up: %s", name, lost.Why)
	}
	l.judge(t, nodes)
}

// judge looks at what the server keeps when all is over.
func (l *laboratory) judge(t *testing.T, nodes map[string]*node) {
	for name, n := range nodes {
		runs := l.runs(t, name)
		require.Len(t, runs, 1, name)
		var r farm.Run
		require.NoError(t, json.Unmarshal(l.get(t, "/v1/runs/"+runs[0].ID), &r))
		kept := l.get(t, "/v1/runs/"+r.ID+"/report")
		assert.Len(t, kept, int(r.Bytes), name)
		own := n.report(t)
		assert.NotContains(t, string(kept), l.token(t), "the secret of the run")
		switch name {
		case "hangs", "loses":
			assert.Equal(t, farm.Lost, r.State, name)
			assert.Contains(t, r.Why, "the report has no end after 6m0s", name)
			assert.True(t, bytes.HasPrefix(kept, own) || bytes.HasPrefix(own, kept), "%s: what arrived is what the node said, from the beginning", name)
			assert.True(t, bytes.HasSuffix(kept, []byte("\n")), "%s: whole lines", name)
			require.NotNil(t, r.Summary, name)
		default:
			assert.Equal(t, farm.Complete, r.State, name)
			// A serial port that stands still for too long is given up by the node.
			assert.True(t, bytes.HasPrefix(kept, own), "%s: what it wrote to its serial port", name)
			assert.Empty(t, report.Check(kept), name)
			require.NotNil(t, r.Summary, name)
			assert.Equal(t, checks.VerdictNoGPU, r.Summary.Verdict, name)
			assert.NotEmpty(t, r.Summary.Settings, name)
		}
	}
}

// laboratory is the server with its files.
type laboratory struct {
	dir, program string
	cmd          *exec.Cmd
}

// newLab writes lab.yaml.
func newLab(t *testing.T, image, program string) *laboratory {
	t.Helper()
	l := &laboratory{dir: t.TempDir(), program: program}
	text := fmt.Sprintf(`server: %s
dhcp: {mode: full, interface: %s, range: 10.77.0.100-10.77.0.199}
images: {p2p: %s}
defaults: {plan: check, after: reboot, deadline: 30m, parameters: "console=ttyS0,115200 p2p.stream=ttyS1"}
unknown: never
nodes:
  - {name: bios1, mac: %s}
  - {name: uefi1, mac: %s}
  - {name: uefi2, mac: %s}
  - {name: hangs, mac: %s, deadline: 6m, attempts: 1}
  - {name: loses, mac: %s, deadline: 6m, attempts: 1}
`, base, bridge, image, mac(1), mac(2), mac(3), mac(4), mac(5))
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "lab.yaml"), []byte(text), 0o600))
	return l
}

// serve starts the server and waits until it answers.
func (l *laboratory) serve(t *testing.T) {
	t.Helper()
	l.cmd = exec.CommandContext(t.Context(), l.program, "serve", "--lab", filepath.Join(l.dir, "lab.yaml"))
	log, err := os.OpenFile(filepath.Join(l.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	l.cmd.Stdout, l.cmd.Stderr = log, log
	require.NoError(t, l.cmd.Start())
	require.NoError(t, log.Close())
	t.Cleanup(func() {
		l.stop()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(l.dir, "log"))
			t.Logf("the server said:\n%s", qemutest.Tail(text))
		}
	})
	require.Eventually(t, func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/boot.ipxe", nil)
		if err != nil {
			return false
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}, time.Minute, 200*time.Millisecond, "the server does not answer")
}

// kill ends the server without a warning.
func (l *laboratory) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, l.cmd.Process.Kill())
	_ = l.cmd.Wait() // killed, as it says
}

func (l *laboratory) stop() {
	if l.cmd.Process.Signal(syscall.SIGTERM) == nil {
		_ = l.cmd.Wait() // of a test that is over
	}
}

// token is the secret of the administrator.
func (l *laboratory) token(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "admin-token"))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// get asks the server as its administrator.
func (l *laboratory) get(t *testing.T, path string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+l.token(t))
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, body)
	return body
}

func (l *laboratory) runs(t *testing.T, name string) []farm.Run {
	t.Helper()
	var runs []farm.Run
	require.NoError(t, json.Unmarshal(l.get(t, "/v1/nodes/"+name+"/runs"), &runs))
	return runs
}

// await waits until the run of a node is as wanted. A node that never gets there
// is ended by the deadline of the test.
func (l *laboratory) await(t *testing.T, name string, want func(farm.Run) bool) farm.Run {
	t.Helper()
	for {
		runs := l.runs(t, name)
		if len(runs) > 0 && want(runs[0]) {
			return runs[0]
		}
		if len(runs) > 0 && runs[0].State.Over() {
			t.Fatalf("%s is over too early: %+v", name, runs[0])
		}
		l.inTime(t)
		time.Sleep(500 * time.Millisecond)
	}
}

// inTime ends a test that waits for what never happens, before its deadline does.
func (l *laboratory) inTime(t *testing.T) {
	t.Helper()
	if deadline, ok := t.Deadline(); ok && time.Until(deadline) < 20*time.Second {
		t.Fatal("nothing more happens")
	}
}

// run runs a program that has to succeed.
func run(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(args, " "), out)
}
