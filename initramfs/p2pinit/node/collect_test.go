package node

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/deliver/delivertest"
	"mkp2pimg/internal/report"
)

// quick is a pace for tests whose server is never away for good.
var quick = &pace{delay: func(int, error) time.Duration { return time.Millisecond }, risk: time.Minute, last: time.Minute}

// collected is a machine whose report goes to a farm's server.
func collected(t *testing.T, s *delivertest.Server, more string) *machine {
	m := newMachine(t, "no-gpu", "module_blacklist=nouveau p2p.collect="+s.Run().String()+" p2p.token="+delivertest.Token+" "+more)
	m.noGPU()
	m.pace = quick
	return m
}

// whole is the report as the machine keeps it.
func (m *machine) whole() string {
	text, err := os.ReadFile(filepath.Join(m.root, ReportFile))
	require.NoError(m.t, err)
	return string(text)
}

func TestCollected(t *testing.T) {
	s := delivertest.New(t)
	m := collected(t, s, "p2p.after=reboot")
	run, console := m.run()
	assert.Equal(t, m.whole(), s.Report())
	assert.Greater(t, len(s.Chunks()), 1)
	assert.Equal(t, 1, m.networks)
	assert.Contains(t, run.Step("report").Reason(), "report delivered to "+s.Run().String())
	assert.Contains(t, console, "report delivered to "+s.Run().String())
	assert.Equal(t, "…", run.Start.Parameters["p2p.token"])
	assert.Equal(t, s.Run().String(), run.Start.Parameters["p2p.collect"])
	assert.True(t, strings.HasPrefix(fmt.Sprint(run.Start.DUT.Metadata[report.MetaSerial]), "SN-"), run.Start.DUT.Metadata)
}

// TestTokenStaysSecret has the token in all places that a report takes text from.
func TestTokenStaysSecret(t *testing.T) {
	s := delivertest.New(t)
	s.Fault = func(posts, _ int) int { return []int{http.StatusServiceUnavailable, delivertest.None}[min(posts, 1)] }
	m := collected(t, s, `p2p.after=reboot p2p.tokn=`+delivertest.Token+` p2p.plan=`+delivertest.Token)
	m.logged["nvidia.ko"] = append(m.logged["nvidia.ko"], "NVRM: options p2p.token="+delivertest.Token)
	// Facts keep 400 bytes of a line, which would end in the token.
	cut := strings.Repeat("x", 380) + " ACS p2p.token=" + delivertest.Token
	m.write("dev/kmsg", "5,1,2,-;Kernel command line: "+m.cmdline+"\n5,2,3,-;"+cut+"\n")
	m.img.Files = slices.DeleteFunc(m.img.Files, func(f layout.File) bool { return f.Path == layout.Options })
	m.file(layout.Options, "options nvidia NVreg_X=\""+delivertest.Token+"\"\n")
	run, console := m.run()

	require.Contains(t, string(run.Facts), "Kernel command line: module_blacklist=nouveau", "it is there")
	require.Contains(t, string(run.Facts), "p2p.token=…")
	require.Contains(t, m.whole(), "NVRM: options p2p.token=…")
	require.Contains(t, m.whole(), "kernel parameter p2p.plan=… ignored")
	require.Contains(t, m.inserted, `nvidia.ko NVreg_X="`+delivertest.Token+`"`, "nothing but text is changed")
	for where, text := range map[string]string{"report": m.whole(), "stream": m.serial.String(), "server": s.Report(), "console": console} {
		for i := 0; i+4 <= len(delivertest.Token); i++ {
			if part := delivertest.Token[i : i+4]; strings.Contains(text, part) {
				t.Fatalf("%s has %s of the token", where, part)
			}
		}
	}
}

// A bad token may be the real one with a slip in it.
func TestBadTokenStaysSecret(t *testing.T) {
	m := newMachine(t, "no-gpu", `p2p.after=poweroff p2p.token="`+delivertest.Token+` p2p.node=n7"`)
	m.noGPU()
	_, console := m.run()
	assert.Contains(t, console, "kernel parameter p2p.token=… ignored: want 32 to 128 letters, digits and - _")
	assert.NotContains(t, m.whole()+console, delivertest.Token)
}

// A node that hangs in a stage has delivered all up to its start.
func TestHangDelivered(t *testing.T) {
	s := delivertest.New(t)
	m := collected(t, s, "p2p.after=poweroff p2p.deadline.driver=1s")
	hung := make(chan string, 1)
	leave := make(chan struct{})
	t.Cleanup(func() { close(leave) })
	m.inserting = func(name string) {
		if name == "nvidia.ko" {
			hung <- s.Report()
			<-leave
		}
	}
	run, _ := m.run()
	atHang := <-hung
	assert.Contains(t, run.Step("driver").Reason(), "did not end within 1s; it was inserting nvidia.ko")
	assert.Contains(t, atHang, `{"testStepId":"checks","testStepEnd":{"status":"COMPLETE"}}`)
	assert.Contains(t, atHang, `{"testStepId":"driver","testStepStart":`)
	assert.Equal(t, m.whole(), s.Report(), "and the rest when it goes on")
}

// A server that does not answer holds no stage up for longer than is set.
func TestServerAway(t *testing.T) {
	s := delivertest.New(t)
	s.Fault = func(int, int) int { return delivertest.Cut }
	m := collected(t, s, "p2p.after=shell")
	m.pace = &pace{delay: quick.delay, risk: time.Millisecond, last: time.Millisecond}
	run, console := m.run()
	assert.Contains(t, run.Step("report").Reason(), "report NOT delivered: ")
	assert.Contains(t, console, "WARNING: stage driver starts although ")
	assert.Contains(t, console, "report NOT delivered yet, which goes on: ")
	assert.Equal(t, report.StatusSkip, run.Step("driver").Status, "it ran")
}

// A machine that is to switch itself off stays on until the server has the report.
func TestHandOverInsists(t *testing.T) {
	s := delivertest.New(t)
	m := collected(t, s, "p2p.after=poweroff p2p.plan=check")
	m.pace = &pace{delay: quick.delay, risk: time.Millisecond, last: time.Millisecond}
	console := filepath.Join(m.root, "dev/console0")
	s.Fault = func(int, int) int {
		if text, err := os.ReadFile(console); err != nil || !strings.Contains(string(text), "This machine stays on until it is") {
			return http.StatusInternalServerError
		}
		return delivertest.None
	}
	_, said := m.run()
	assert.Equal(t, m.whole(), s.Report())
	assert.Contains(t, said, "report still NOT delivered: ")
	assert.Contains(t, said, "500 Internal Server Error")
	assert.Contains(t, said, "report delivered to ")
}

// A no that is final is told, and the machine goes on to what is to come.
func TestHandOverRefused(t *testing.T) {
	s := delivertest.New(t)
	s.Fault = func(_, seq int) int { return []int{delivertest.None, http.StatusForbidden}[min(seq, 1)] }
	m := collected(t, s, "p2p.after=reboot")
	_, console := m.run()
	assert.Equal(t, 2, s.Posts())
	assert.Contains(t, console, "the rest of the report is NOT delivered: deliver to "+s.Run().String()+": the server answered 403 Forbidden")
	assert.NotContains(t, console, "stays on")
	assert.Contains(t, m.whole(), "report sink dropped: server "+s.Run().String())
}

// Both ways to a server can be used, over one network.
func TestCollectedAndSent(t *testing.T) {
	s := delivertest.New(t)
	var mu sync.Mutex
	puts := 0
	whole := delivertest.NewUnstarted(t)
	whole.Config.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, http.MethodPut, r.Method)
		puts++
	})
	whole.Start()
	m := collected(t, s, "p2p.report="+whole.URL+"/n7")
	run, _ := m.run()
	assert.Equal(t, m.whole(), s.Report())
	assert.Equal(t, 2, puts)
	assert.Equal(t, 1, m.networks)
	assert.Contains(t, run.Step("report").Reason(), ", report delivered to "+s.Run().String()+", report sent to "+whole.URL+"/n7")
}
