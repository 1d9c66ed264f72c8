package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/fixture"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/driver"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/initramfs/p2pinit/watchdog"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const release = "6.12.117+deb12-amd64"

// machine is a root directory of an image that runs on a fixture, with the kernel
// played by the test.
type machine struct {
	t       *testing.T
	root    string
	cmdline string
	img     layout.Image

	mu        sync.Mutex
	inserted  []string // module files and options
	nodes     []string
	mounted   []string
	unmounted []string
	serial    syncBuffer
	dog       dog

	answer    map[string]error    // to the insertion of a module, by file name
	stays     map[string]error    // to the removal of one, by name
	logged    map[string][]string // the kernel's lines about it
	log       []string
	followed  int      // times the kernel's log was
	measuring []string // what the kernel logs during the measurement
	recovers  bool     // the network comes up the second time
	network   error
	survey    *rm.Survey        // what the driver answers; nil: nothing
	changes   map[string][]byte // files that nvidia.ko changes
	networks  int               // times the network was set up
	inserting func(name string) // called for each insertion, if set
	pace      *pace
}

func newMachine(t *testing.T, kind, cmdline string) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir(), cmdline: cmdline, answer: map[string]error{}, logged: map[string][]string{},
		img: layout.Image{Version: layout.Version, Driver: "535.261.03", Kernel: release, Sets: []string{"p2p", "stock"}}}
	m.fixture(kind)
	m.write("proc/self/mounts", "proc /proc proc rw 0 0\nsysfs /sys sysfs rw 0 0\ndevtmpfs /dev devtmpfs rw 0 0\n")
	m.write("proc/devices", "Character devices:\n195 nvidia-frontend\n508 nvidia-uvm\n\nBlock devices:\n")
	m.write("sys/class/tty/console/active", "console0\n")
	m.write("dev/console0", "")
	m.write("dev/watchdog0", "")
	m.write("sys/class/virtio-ports/vport0p1/name", PortName+"\n")
	m.write("dev/vport0p1", "")
	m.file("/lib/modules/"+release+"/modules.dep", "kernel/drivers/gpu/drm/drm.ko:\nkernel/drivers/net/virtio_net.ko:\n")
	m.file("/etc/modprobe.d/mkp2pimg.conf", "options nvidia NVreg_RegistryDwords=\"ForceP2P=17\"\n")
	for _, set := range m.img.Sets {
		m.file(layout.DriverModule(release, set, "nvidia"), "ELF nvidia "+set)
		m.file(layout.DriverModule(release, set, "nvidia-uvm"), "ELF uvm "+set)
	}
	return m
}

// fixture makes the machine one of a kind.
func (m *machine) fixture(kind string) {
	for _, k := range fixture.Kinds() {
		if k.Name == kind {
			require.NoError(m.t, k.Write(m.root))
		}
	}
	m.write("proc/cmdline", m.cmdline+"\n")
	m.write("proc/sys/kernel/osrelease", release+"\n")
}

// write makes a file that is not part of the image.
func (m *machine) write(name, content string) {
	path := filepath.Join(m.root, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(m.t, os.WriteFile(path, []byte(content), 0o755))
}

// file makes a file of the image and lists it.
func (m *machine) file(name, content string) {
	m.write(name, content)
	m.img.Files = append(m.img.Files, layout.File{Path: name, Size: int64(len(content)), SHA256: sum(content), Mode: "0644"})
}

// run runs the node and returns its report and console.
func (m *machine) run() (*report.Run, string) {
	m.t.Helper()
	text, err := json.Marshal(m.img)
	require.NoError(m.t, err)
	m.write(layout.Description, string(text))
	n := &Node{Root: m.root, System: m, Started: time.Now(), pace: m.pace}
	n.Run(m.t.Context())
	whole, err := os.ReadFile(filepath.Join(m.root, ReportFile))
	require.NoError(m.t, err)
	for _, err := range report.Check(whole) {
		m.t.Errorf("report: %v", err)
	}
	assert.Equal(m.t, string(whole), m.serial.String(), "the stream holds the same report")
	run, err := report.Parse(bytes.NewReader(whole))
	require.NoError(m.t, err)
	assert.True(m.t, run.Complete)
	n.console.Flush(time.Minute)
	console, err := os.ReadFile(filepath.Join(m.root, "dev/console0"))
	require.NoError(m.t, err)
	return run, regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(string(console), "")
}

func (m *machine) Mount(_, target, _, _ string) error {
	m.mounted = append(m.mounted, target)
	return nil
}

func (m *machine) Unmount(target string) error {
	m.unmounted = append(m.unmounted, target)
	return nil
}

func (m *machine) Insert(file, options string) error {
	name := filepath.Base(file)
	if m.inserting != nil {
		m.inserting(name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inserted = append(m.inserted, strings.TrimSpace(name+" "+options))
	m.log = append(m.log, m.logged[name]...)
	if m.answer[name] != nil {
		return m.answer[name]
	}
	switch name {
	case "nvidia.ko":
		for file, content := range m.changes {
			if err := os.WriteFile(filepath.Join(m.root, file), content, 0o644); err != nil {
				return err
			}
		}
		return os.MkdirAll(filepath.Join(m.root, "sys/module/nvidia/holders"), 0o755)
	case "nvidia-uvm.ko":
		return errors.Join(os.MkdirAll(filepath.Join(m.root, "sys/module/nvidia_uvm"), 0o755),
			os.MkdirAll(filepath.Join(m.root, "sys/module/nvidia/holders/nvidia_uvm"), 0o755))
	}
	return nil
}

// Remove unloads a module, unless the test says that it stays.
func (m *machine) Remove(module string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inserted = append(m.inserted, "-"+module)
	if err := m.stays[module]; err != nil {
		return err
	}
	for _, dir := range []string{module, "nvidia/holders/" + module} {
		if err := os.RemoveAll(filepath.Join(m.root, "sys/module", dir)); err != nil {
			return err
		}
	}
	return nil
}

func (m *machine) Mknod(path string, major, minor uint32) error {
	m.nodes = append(m.nodes, fmt.Sprintf("%s %d:%d", strings.TrimPrefix(path, m.root), major, minor))
	return nil
}

// KernelLog is followed for the driver first, then for the questions to it, then
// for the measurement.
func (m *machine) KernelLog() (KernelLog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.followed++; m.followed == 3 {
		m.log = m.measuring
	}
	return m, nil
}

func (m *machine) Close() error { return nil }
func (m *machine) Lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.log
	m.log = nil
	return lines
}

func (m *machine) Watchdog(string, time.Duration) (watchdog.Device, error) { return &m.dog, nil }
func (m *machine) Serial(string, int) (io.WriteCloser, error)              { return &m.serial, nil }

// Network fails as the test says, the first time only if it recovers.
func (m *machine) Network(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.networks++
	err := m.network
	if m.recovers {
		m.network = nil
	}
	return "eth0: 10.0.2.15", err
}

// Survey answers as the driver does that the test wants.
func (m *machine) Survey(context.Context) (*rm.Survey, error) {
	if m.survey == nil {
		return nil, errors.New("open /dev/nvidiactl: permission denied")
	}
	return m.survey, nil
}

// noGPU makes the kernel answer as on a machine without an NVIDIA GPU.
func (m *machine) noGPU() {
	m.answer["nvidia.ko"] = fmt.Errorf("finit_module: %w", syscall.ENODEV)
	m.logged["nvidia.ko"] = []string{"nvidia: loading out-of-tree module taints kernel.", "NVRM: No NVIDIA GPU found."}
}

// p2pbw makes the measuring program print this result.
func (m *machine) p2pbw(r measure.Result, exit int) {
	text, err := json.Marshal(r)
	require.NoError(m.t, err)
	m.write("bin/result.json", string(text))
	m.write("bin/p2pbw", fmt.Sprintf("#!/bin/sh\necho measuring >&2\ncat %s/bin/result.json\nexit %d\n", m.root, exit))
}

func TestNoGPU(t *testing.T) {
	m := newMachine(t, "no-gpu", "console=ttyS0 p2p.after=poweroff p2p.node=n7 p2p.acs=show p2p.plam=full")
	m.noGPU()
	run, console := m.run()

	assert.True(t, m.dog.disarmed)
	assert.Equal(t, "p2p.after=poweroff", run.Step("after").Reason())
	assert.Contains(t, m.mounted, "/run")
	assert.NotContains(t, m.mounted, "/proc", "it was mounted")
	assert.Equal(t, []string{"virtio_net.ko", "drm.ko", `nvidia.ko NVreg_RegistryDwords="ForceP2P=17"`}, m.inserted)
	assert.Equal(t, "n7", run.Start.DUT.ID)
	assert.Equal(t, &report.RunEnd{Status: report.StatusSkip, Result: report.ResultNotApplicable}, run.End)
	assert.Equal(t, checks.VerdictNoGPU, run.Verdict.Verdict)
	assert.NotEmpty(t, run.Facts)
	require.Len(t, run.Logs, 1)
	assert.Contains(t, run.Logs[0].Message, "unknown kernel parameter p2p.plam ignored (did you mean p2p.plan?)")

	var names []string
	for _, s := range run.Steps {
		names = append(names, s.ID)
	}
	assert.Equal(t, slices.DeleteFunc(slices.Clone(params.Stages), func(s string) bool { return s == "unload" || s == "compare" }), names)
	d := run.Step("driver")
	assert.Equal(t, report.StatusSkip, d.Status)
	require.Len(t, d.Diagnoses, 2)
	assert.Equal(t, DriverNoGPU, d.Diagnoses[0].Verdict)
	assert.Contains(t, d.Diagnoses[0].Message, "NVRM: No NVIDIA GPU found.")
	assert.Equal(t, UVMNotInserted, d.Diagnoses[1].Verdict)
	assert.Equal(t, report.StatusSkip, run.Step("bandwidth").Status)
	assert.Equal(t, ImageIntact, run.Step("mount").Diagnoses[0].Verdict)
	assert.Equal(t, driver.LoadFinding, run.Findings[len(run.Findings)-1].ID)

	assert.Contains(t, console, "P2P NO GPU: ")
	assert.Contains(t, console, "WARNING: unknown kernel parameter p2p.plam")
	assert.Contains(t, console, "driver    skipped nvidia.ko ran on this kernel and found no GPU")
}

var pair = [2]string{"0000:01:00.0", "0000:02:00.0"}

func good() measure.Result {
	p := measure.Pair{Initiator: pair[0], Peer: pair[1], CanAccess: true, Verdict: measure.OK, Measurements: []measure.Measurement{
		{Quantity: measure.Bandwidth, Direction: measure.Write, Method: measure.CE, Unit: measure.GBps, Samples: []float64{26, 26.5}, Summary: measure.Summary{Median: 26.25}},
	}}
	back := p
	back.Initiator, back.Peer = p.Peer, p.Initiator
	return measure.Result{Version: measure.Version, Pairs: []measure.Pair{p, back}, Verdict: measure.OK, Reason: "2 ordered pairs of 2 GPUs",
		Devices:  []measure.Device{{BDF: pair[0], Verdict: measure.OK, Measurements: p.Measurements}},
		Settings: measure.Settings{MinGBps: 20}}
}

func withGPUs(t *testing.T, cmdline string) *machine {
	m := newMachine(t, "good-2x4090", cmdline)
	m.survey = &rm.Survey{Driver: "580.142"}
	for i, bdf := range pair {
		m.write("proc/driver/nvidia/gpus/"+bdf+"/information", fmt.Sprintf("Device Minor: \t %d\n", i))
		m.survey.GPUs = append(m.survey.GPUs, rm.Surveyed{GPU: rm.GPU{BDF: bdf, ID: uint32(i + 1)}, Running: true, StaticBAR1: &rm.StaticBAR1{Enabled: true}})
		const caps = rm.CapRead | rm.CapWrite | rm.CapPCI | rm.CapBAR1
		m.survey.Pairs = append(m.survey.Pairs, rm.Pair{A: bdf, B: pair[1-i], Caps: caps, Path: caps.Path()})
	}
	return m
}

func TestReady(t *testing.T) {
	m := withGPUs(t, "iommu=pt p2p.after=reboot p2p.driver=stock")
	m.p2pbw(good(), 0)
	run, console := m.run()
	assert.Equal(t, []string{"/dev/nvidiactl 195:255", "/dev/nvidia0 195:0", "/dev/nvidia1 195:1", "/dev/nvidia-uvm 508:0", "/dev/nvidia-uvm-tools 508:1"}, m.nodes)
	require.Equal(t, checks.VerdictReady, run.Verdict.Verdict, run.Verdict.Reason)
	assert.Equal(t, "every pair was measured and its data verified; the driver grants PCIe BAR1 (1 GPU pair)", run.Verdict.Reason)
	assert.Equal(t, "driver 580.142: 2 bar1", run.Step("paths").Reason())
	assert.Equal(t, report.ResultPass, run.End.Result)
	require.Len(t, run.Measurements, 3)
	assert.InEpsilon(t, 26.25, run.Measurements[1].Value, 1e-9)
	assert.Equal(t, report.GreaterThanOrEqual, run.Measurements[1].Validators[0].Type)
	assert.Len(t, run.Start.DUT.Hardware, 2)
	assert.Contains(t, console, "P2P READY")
	assert.Contains(t, console, "   0     -   26.2")
}

func TestMeasurementDecides(t *testing.T) {
	wrong := good()
	wrong.Pairs[1].Verdict, wrong.Pairs[1].Reason = measure.WrongData, "write: 4096 of 4096 words are unwritten"
	wrong.Verdict = measure.WrongData
	old := good()
	old.Version = 99
	tests := map[string]struct {
		result  measure.Result
		exit    int
		verdict checks.Verdict
		reason  string
	}{
		"wrong data": {wrong, 2, checks.VerdictBlocked, "P2P-MEASURED: 0000:02:00.0 to 0000:01:00.0: write: 4096 of 4096 words are unwritten"},
		"no result":  {old, 3, checks.VerdictUnknown, "measurement result of version 99: this program reads versions 1 and 2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := withGPUs(t, "p2p.after=poweroff")
			m.p2pbw(tt.result, tt.exit)
			m.measuring = []string{"AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010]"}
			run, _ := m.run()
			assert.True(t, slices.ContainsFunc(run.Step("bandwidth").Logs, func(l report.Log) bool {
				return l.Message == "kernel: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0010]"
			}))
			assert.Equal(t, tt.verdict, run.Verdict.Verdict)
			assert.Contains(t, run.Verdict.Reason, tt.reason)
		})
	}
}

func TestP2PBWDies(t *testing.T) {
	m := withGPUs(t, "p2p.after=poweroff")
	m.write("bin/p2pbw", "#!/bin/sh\necho bad >&2\nkill -SEGV $$\n")
	run, _ := m.run()
	s := run.Step("bandwidth")
	assert.Equal(t, report.StatusError, s.Status)
	assert.Contains(t, s.Reason(), "p2pbw gave no result: signal: segmentation fault")
	assert.Equal(t, "bad", s.Logs[0].Message)
	assert.Equal(t, report.StatusError, run.End.Status)
}

func TestDriverRefused(t *testing.T) {
	m := withGPUs(t, "p2p.after=poweroff")
	m.answer["nvidia.ko"] = fmt.Errorf("finit_module: %w", syscall.EKEYREJECTED)
	run, console := m.run()
	assert.Equal(t, report.StatusError, run.Step("driver").Status)
	assert.Equal(t, checks.VerdictBlocked, run.Verdict.Verdict)
	assert.Contains(t, console, "Turn Secure Boot off")
	assert.Empty(t, m.nodes)
}

func TestPlans(t *testing.T) {
	tests := map[string]struct {
		cmdline string
		skipped []string
		after   params.After
	}{
		"check":     {"p2p.plan=check p2p.after=poweroff", []string{"driver", "paths", "bandwidth"}, params.PowerOff},
		"shell":     {"p2p.plan=shell p2p.after=poweroff", []string{"facts", "checks", "driver", "paths", "bandwidth"}, params.StartShell},
		"no driver": {"p2p.driver=none", []string{"driver", "paths", "bandwidth"}, params.StartShell},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := withGPUs(t, tt.cmdline)
			run, console := m.run()
			var skipped []string
			for _, s := range run.Steps {
				if s.Status == report.StatusSkip {
					skipped = append(skipped, s.ID)
				}
			}
			assert.Equal(t, tt.skipped, skipped)
			assert.Equal(t, "p2p.after="+string(tt.after), run.Step("after").Reason())
			if name == "check" {
				assert.Contains(t, console, "P2P READY: every check passed; nothing was measured")
			}
		})
	}
}

func TestImageIncomplete(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff")
	m.noGPU()
	m.file("/lib/firmware/nvidia/gsp.bin", "whole")
	m.write("lib/firmware/nvidia/gsp.bin", "wh")
	m.img.Files = append(m.img.Files, layout.File{Path: "/bin/last", Size: 100 << 20})
	run, console := m.run()
	want := "image incomplete: /lib/firmware/nvidia/gsp.bin: has 2 bytes, not 5 (and 1 more files); give the machine at least 512 MiB of memory"
	assert.Contains(t, run.Step("mount").Reason(), want)
	assert.Equal(t, report.DiagnosisFail, run.Step("mount").Diagnoses[0].Type)
	assert.Equal(t, checks.VerdictUnknown, run.Verdict.Verdict)
	assert.Equal(t, report.StatusError, run.End.Status)
	assert.Contains(t, console, "BROKE    stage mount: image incomplete")
}

func TestDamagedDriverIsNotInserted(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff")
	m.write(layout.DriverModule(release, "p2p", "nvidia"), "ELF nvidia p2q")
	run, _ := m.run()
	assert.Contains(t, run.Step("driver").Reason(), "the driver's module is damaged: /lib/modules/"+release+"/updates/mkp2pimg/p2p/nvidia.ko: has sha256")
	assert.NotContains(t, strings.Join(m.inserted, " "), "nvidia")
}

func TestOtherKernel(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.after=poweroff")
	m.write("proc/sys/kernel/osrelease", "7.3.4-amd64\n")
	run, _ := m.run()
	assert.Contains(t, run.Step("modules").Reason(), "the kernel is 7.3.4-amd64, the image's modules are for "+release+": boot vmlinuz and initrd of the same build")
	assert.Contains(t, run.Step("driver").Reason(), "nvidia.ko is not in the image: it has the driver sets p2p, stock for kernel "+release)
}

func TestDelivery(t *testing.T) {
	var mu sync.Mutex
	var bodies [][]byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, body)
	}))
	defer s.Close()
	m := newMachine(t, "no-gpu", "p2p.report="+s.URL+"/n7")
	m.noGPU()
	run, _ := m.run()
	require.Len(t, bodies, 2, "once before the end, once whole")
	assert.Empty(t, report.Check(bodies[1]))
	assert.Contains(t, run.Step("report").Reason(), "report sent to "+s.URL+"/n7")
}

func TestDeliveryFails(t *testing.T) {
	m := newMachine(t, "no-gpu", "p2p.report=http://lab.invalid/n7 p2p.after=hold")
	m.noGPU()
	m.network = errors.New("network: no link within 15s on eth0: is a cable plugged in?")
	run, console := m.run()
	assert.Equal(t, checks.VerdictNoGPU, run.Verdict.Verdict, "the verdict stands")
	assert.Equal(t, report.StatusSkip, run.End.Status)
	assert.Contains(t, run.Step("report").Reason(), "report NOT sent: network: no link")
	assert.Contains(t, console, "report NOT sent: network: no link")
}

// A machine that is to switch itself off stays on until the report is sent.
func TestDeliveryInsists(t *testing.T) {
	var mu sync.Mutex
	var last []byte
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		mu.Lock()
		defer mu.Unlock()
		last = body
	}))
	defer s.Close()
	m := newMachine(t, "no-gpu", "p2p.after=poweroff p2p.report="+s.URL+"/n7")
	m.noGPU()
	m.network, m.recovers = errors.New("network: no link within 15s on eth0"), true
	run, console := m.run()
	assert.Contains(t, run.Step("report").Reason(), "report NOT sent: network: no link")
	assert.Contains(t, console, "report sent to "+s.URL+"/n7")
	mu.Lock()
	defer mu.Unlock()
	assert.Empty(t, report.Check(last), "the whole report, sent at last")
}

func TestSumUp(t *testing.T) {
	pass := []checks.Finding{{ID: checks.GPUPresent, Status: checks.Pass}}
	fail := append(pass, checks.Finding{ID: checks.ReBAR, Status: checks.Fail, Title: "t"})
	done := stage.Outcome{Name: "bandwidth", Status: report.StatusComplete}
	broke := stage.Outcome{Name: "modules", Status: report.StatusError, Reason: "did not end"}
	tests := map[string]struct {
		findings []checks.Finding
		outcomes []stage.Outcome
		want     report.Verdict
	}{
		"measured":        {pass, []stage.Outcome{done}, report.Verdict{Verdict: checks.VerdictReady, Reason: "every check passed"}},
		"from facts":      {pass, nil, report.Verdict{Verdict: checks.VerdictReady, Reason: "every check passed; nothing was measured"}},
		"broken":          {pass, []stage.Outcome{done, broke}, report.Verdict{Verdict: checks.VerdictUnknown, Reason: "stage modules: did not end"}},
		"blocked, broken": {fail, []stage.Outcome{broke}, report.Verdict{Verdict: checks.VerdictBlocked, Reason: "P2P-REBAR: t"}},
		"nothing":         {nil, nil, report.Verdict{Verdict: checks.VerdictUnknown, Reason: "nothing was checked"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, tt.want, sumUp(tt.findings, tt.outcomes)) })
	}
}

func TestMemoryNeeded(t *testing.T) {
	assert.Equal(t, int64(256), memoryNeeded(0))
	assert.Equal(t, int64(768), memoryNeeded(151457280), "an image that unpacks with 512 MiB and not with 384")
}

type dog struct{ disarmed bool }

func (d *dog) Name() string           { return "fake, 1m0s" }
func (d *dog) Timeout() time.Duration { return time.Minute }
func (d *dog) Pet() error             { return nil }
func (d *dog) Disarm() error {
	d.disarmed = true
	return nil
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) Close() error { return nil }

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func sum(content string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(content))) }

// TestStick plugs a stick in: its partition gets the whole report, is named on the
// screen and unmounted at the end.
func TestStick(t *testing.T) {
	m := newMachine(t, "good-2x4090", "p2p.plan=check p2p.node=n:7")
	m.write("sys/class/block/sda1/uevent", "DEVNAME=sda1\nPARTNAME=P2PBOOT\n")
	m.write("sys/class/block/sda2/uevent", "DEVNAME=sda2\nPARTNAME=P2PREPORT\n")
	_, console := m.run()
	list, err := filepath.Glob(filepath.Join(m.root, deliver.StickDir, "report-*-n_7.jsonl"))
	require.NoError(t, err)
	require.Len(t, list, 1)
	got, err := os.ReadFile(list[0])
	require.NoError(t, err)
	assert.Equal(t, m.serial.String(), string(got))
	assert.Contains(t, m.mounted, "/"+deliver.StickDir)
	assert.Equal(t, []string{"/" + deliver.StickDir}, m.unmounted)
	assert.Contains(t, console, "n_7.jsonl in partition P2PREPORT (sda2)")
}
