// Package node is the run of the image on a machine: what p2pinit does from its
// start to the power off. It talks to the kernel through [System], so that a test
// can run all of it on a directory.
package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/deliver"
	"mkp2pimg/initramfs/p2pinit/modules"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/initramfs/p2pinit/watchdog"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// System is the part of the kernel that a run changes.
type System interface {
	Mount(source, target, fstype, data string) error
	Unmount(target string) error
	Insert(file, options string) error // load a kernel module; the error wraps the kernel's
	Remove(module string) error        // unload one that nobody uses; the error wraps the kernel's
	Mknod(path string, major, minor uint32) error
	KernelLog() (KernelLog, error)
	Watchdog(path string, timeout time.Duration) (watchdog.Device, error)
	Serial(path string, baud int) (io.WriteCloser, error) // a port set to pass bytes unchanged
	Network(ctx context.Context) (string, error)          // says what came up
	Survey(ctx context.Context) (*rm.Survey, error)       // what the loaded NVIDIA driver grants
}

// KernelLog gives the lines that the kernel logged since it was asked last.
type KernelLog interface {
	Lines() []string
	Close() error
}

// Version is the version of this program in the report, set by the linker (-X).
var Version = "devel"

// ReportFile is where the report is kept, below the root.
const ReportFile = "run/mkp2pimg/report.jsonl"

// PortName is the name of the virtio-serial port that the report is streamed to.
const PortName = "org.mkp2pimg.report"

const (
	flushLimit = 20 * time.Second // for the sinks, after each stage
	dogGrace   = time.Minute      // the watchdog bites this long after a stage's deadline
)

// Node is one run.
type Node struct {
	Root    string // "/" on the machine
	System  System
	Started time.Time // when the run began, for the times on the console

	params   params.Params
	warnings []string
	report   *report.Writer
	console  *report.Stream
	client   *http.Client // for the servers that the report goes to
	runner   *stage.Runner
	image    *layout.Image
	imageErr error // why image is nil
	attached map[string]bool
	stick    *deliver.Stick // nil without a partition for reports

	collector *deliver.Collector // nil without a farm's server
	pace      *pace
	network   chan struct{} // held by whoever sets the network up
	up        string        // what came up, guarded by network

	// What stages leave for later ones. A stage that is past its deadline may
	// still be running, so all of it is guarded.
	mu       sync.Mutex
	loader   *modules.Loader
	guard    *watchdog.Guard
	facts    *facts.Facts
	arms     []arms.Outcome // what came of the arms so far
	findings []checks.Finding
	verdict  *report.Verdict
	sent     bool // the report has been sent once
}

// Run runs everything and delivers the report. What comes after it, p2p.after, is
// up to the caller.
func (n *Node) Run(ctx context.Context) {
	cmdline, err := os.ReadFile(n.path("proc/cmdline"))
	n.params, n.warnings = params.Parse(string(cmdline))
	if err != nil {
		n.warnings = append(n.warnings, fmt.Sprintf("the kernel's command line can't be read, all parameters have their defaults: %v", err))
	}
	n.console = &report.Stream{}
	n.report = report.New(report.Hide(n.params.Hide))
	n.client = deliver.Client(n.params.Pins)
	n.network = make(chan struct{}, 1)
	n.pace = cmp.Or(n.pace, usual)
	n.attached = map[string]bool{}
	log.SetFlags(0)
	log.SetOutput(libraries{n.report})
	n.attachConsoles()
	n.attachStreams()
	n.collect()

	n.image, n.imageErr = n.readImage()
	n.report.Start(n.start())
	for _, w := range n.warnings {
		n.report.Log(report.Warning, "%s", w)
		n.say("WARNING: %s", w)
	}
	n.runner = &stage.Runner{
		Report: n.report, Deadlines: n.params.Deadlines,
		Begin: func(s stage.Stage, deadline time.Duration) {
			n.begin(deadline)
			n.deliverBefore(ctx, s)
		},
		End: func(o stage.Outcome) {
			n.end(o)
			if o.Name == modulesStage && n.collector != nil {
				go n.collector.Run(ctx)
			}
		},
	}
	run := func(stages []stage.Stage) {
		for _, s := range stages {
			n.runner.Run(ctx, s)
		}
	}
	run(n.looking())
	all, left := n.choose()
	for i := range all {
		run(n.measuring(all, i))
	}
	run(n.telling(all, left))
	n.finish(ctx)
}

// libraries puts the log of libraries into the report; of each message the first
// line, since the DHCP client prints whole packets, MAC address included.
type libraries struct{ *report.Writer }

func (l libraries) Write(p []byte) (int, error) {
	line, _, _ := strings.Cut(strings.TrimSpace(string(p)), "\n")
	l.Log(report.Debug, "%s", line)
	return len(p), nil
}

// looking are the stages before the driver. One that changes the machine only
// when asked to is left out otherwise.
func (n *Node) looking() []stage.Stage {
	all := []stage.Stage{
		{Name: "mount", Title: "mount the kernel's file systems and verify the image", Deadline: 30 * time.Second, Run: n.mount},
		{Name: modulesStage, Title: "load the modules of the hardware", Deadline: 90 * time.Second, Run: n.hardware},
		{Name: "facts", Title: "gather the facts of the machine", Deadline: 60 * time.Second, Run: n.gather},
		{Name: "acs", Title: "clear ACS redirect between GPUs", Deadline: acsDeadline, Needs: []string{"facts"}, Run: n.acs},
		{Name: "checks", Title: "judge the facts", Deadline: 20 * time.Second, Needs: []string{"facts"}, Run: n.check},
	}
	asked := n.params.ACS == params.Show || n.params.ACS == params.Clear
	return slices.DeleteFunc(all, func(s stage.Stage) bool { return s.Name == "acs" && !asked })
}

// telling are the stages after the measurement.
func (n *Node) telling(all []arms.Arm, left []arms.Left) []stage.Stage {
	stages := []stage.Stage{
		{Name: "compare", Title: "compare the arms", Deadline: 30 * time.Second, Run: n.compare(all, left)},
		{Name: "report", Title: "reach the verdict and deliver the report", Deadline: 3 * time.Minute, Run: n.conclude},
		{Name: "after", Title: "end the run", Deadline: 30 * time.Second, Run: n.after},
	}
	return slices.DeleteFunc(stages, func(s stage.Stage) bool { return s.Name == "compare" && !n.params.Wish().Compares() })
}

// begin lets the watchdog be petted until the stage's deadline and a bit.
func (n *Node) begin(deadline time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.guard != nil {
		n.guard.Allow(time.Now().Add(deadline + dogGrace))
	}
}

// end puts the stage's result on the console and flushes all streams.
func (n *Node) end(o stage.Outcome) {
	n.attachStreams()
	words := map[report.Status]string{report.StatusComplete: "done", report.StatusSkip: "skipped", report.StatusError: "BROKE"}
	n.say("%-9s %-7s %s", o.Name, words[o.Status], o.Reason)
	n.flush()
}

func (n *Node) flush() {
	n.report.Flush(flushLimit)
	n.console.Flush(flushLimit)
}

// say writes a line to all consoles, with the time since the start.
func (n *Node) say(format string, args ...any) {
	line := fmt.Appendf(nil, "p2pinit %6.1fs %s\n", time.Since(n.Started).Seconds(), fmt.Sprintf(format, args...))
	_, _ = n.console.Write(n.params.Hide(line)) // a Stream takes everything
}

func (n *Node) path(name string) string { return filepath.Join(n.Root, name) }

func (n *Node) fs() fs.FS { return os.DirFS(n.Root) }

// add keeps findings for the verdict and writes them to the report.
func (n *Node) add(t *stage.Task, findings ...checks.Finding) {
	for _, f := range findings {
		t.Finding(f)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.findings = checks.Add(n.findings, findings...)
}

func (n *Node) hasGPU() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.facts != nil && len(n.facts.GPUs()) > 0
}

// emulated says whether a GPU is made up by an emulator: the driver can't start it.
func (n *Node) emulated() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.facts != nil && checks.HasEmulated(n.facts)
}

// readImage reads the image's description; without it the mount stage fails.
func (n *Node) readImage() (*layout.Image, error) {
	f, err := os.Open(n.path(layout.Description))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return layout.Read(f)
}

// start describes the program, its parameters and the machine.
func (n *Node) start() report.RunStart {
	p := map[string]any{"p2p.plan": n.params.Plan, "p2p.driver": n.params.Driver, "p2p.acs": n.params.ACS, "p2p.after": n.params.After}
	if n.params.Report != nil {
		p["p2p.report"] = n.params.Report.Redacted()
	}
	if n.params.Collect != nil {
		p["p2p.collect"] = n.params.Collect.Redacted()
	}
	if n.params.Token != "" {
		p["p2p.token"] = "…"
	}
	if n.params.Pins != nil {
		p["p2p.pin"] = fmt.Sprint(n.params.Pins)
	}
	if n.params.GPU != "" {
		p["p2p.gpu"] = n.params.GPU
	}
	if n.params.Arms != nil {
		var names []string
		for _, a := range n.params.Arms {
			names = append(names, a.String())
		}
		p["p2p.arms"] = strings.Join(names, ",")
	}
	for stage, d := range n.params.Deadlines {
		p["p2p.deadline."+stage] = d.String()
	}
	return report.RunStart{
		Name: "mkp2pimg", Version: Version, CommandLine: "p2pinit", Parameters: p,
		DUT: dut(n.fs(), n.params, n.image),
	}
}
