package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/driver"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
	"mkp2pimg/kmod/loadopt"
)

// Verdicts of the diagnoses of the driver stage on a machine without a GPU.
const (
	DriverNoGPU    = "DRIVER-NO-GPU"    // nvidia.ko ran and found none
	UVMNotInserted = "UVM-NOT-INSERTED" // nvidia-uvm.ko can't be inserted then
)

// ExtOptions is the extension with the [loadopt.Choice] that nvidia.ko is
// inserted with.
const ExtOptions = "driver-options"

// needed are the modules that nvidia.ko takes symbols from. They are loaded
// through the index before it.
var needed = []string{"drm"}

// driver loads the NVIDIA driver and makes its device nodes.
func (n *trial) driver(ctx context.Context, t *stage.Task) error {
	switch {
	case n.params.Plan != params.Full:
		return stage.Skip("p2p.plan=%s", n.params.Plan)
	case n.params.Driver == params.None:
		return stage.Skip("p2p.driver=none")
	case n.params.Driver == params.Loaded && n.params.Arms == nil:
		return n.loadedBefore(t)
	}
	if loaded := driver.LoadedModules(n.fs()); loaded != nil {
		return stage.Skip("%s of an earlier arm is still loaded", strings.Join(loaded, " and "))
	}
	release, err := n.release()
	if err != nil {
		return err
	}
	set := n.arm.Set
	nvidia, uvm := layout.DriverModule(release, set, "nvidia"), layout.DriverModule(release, set, "nvidia-uvm")
	t.Doing("verifying %s", nvidia)
	if err := n.verifyModules(nvidia, uvm); err != nil {
		return err
	}
	for _, m := range needed {
		t.Doing("loading %s", m)
		if err := n.loadNeeded(m); err != nil {
			t.Log(report.Warning, "%s needs %s: %v", path.Base(nvidia), m, err)
		}
	}
	log := n.followLog(t)
	defer log.Close()

	for _, file := range []string{nvidia, uvm} {
		if err := n.insert(ctx, t, file, log); err != nil {
			return err
		}
	}
	n.lookAgain(t)
	return n.nodes(t)
}

// lookAgain judges once more what the driver has changed.
func (n *Node) lookAgain(t *stage.Task) {
	t.Doing("reading the sizes of BARs again")
	f, err := facts.Gather(n.Root, facts.Options{StandIn: n.params.GPU})
	if err != nil {
		t.Log(report.Warning, "what the driver made of the BARs is not known: %v", err)
		return
	}
	n.add(t, checks.Loaded(f)...)
}

// loadedBefore says which driver the kernel already has. Its device nodes are
// there too: whoever loaded it made them.
func (n *Node) loadedBefore(t *stage.Task) error {
	modules := driver.LoadedModules(n.fs())
	if modules == nil {
		return errors.New("p2p.driver=loaded, but the kernel has no module nvidia: load it first, or leave p2p.driver out")
	}
	version, err := os.ReadFile(n.path("sys/module/nvidia/version"))
	if err != nil {
		return fmt.Errorf("version of the loaded driver: %w", err)
	}
	t.Summary("driver %s was loaded before", strings.TrimSpace(string(version)))
	return nil
}

// followLog follows the kernel's log from now on.
func (n *Node) followLog(t *stage.Task) KernelLog {
	log, err := n.System.KernelLog()
	if err != nil {
		t.Log(report.Warning, "the kernel's lines during this stage are not in the report: %v", err)
		return silent{}
	}
	return log
}

// silent is a kernel log that can't be read.
type silent struct{}

func (silent) Lines() []string { return nil }
func (silent) Close() error    { return nil }

// loadNeeded loads a module through the loader of the modules stage.
func (n *Node) loadNeeded(name string) error {
	n.mu.Lock()
	l := n.loader
	n.mu.Unlock()
	if l == nil {
		return errors.New("stage modules left no index")
	}
	return l.Load(name)
}

// verifyModules compares the files that are about to run in the kernel with their
// digests.
func (n *Node) verifyModules(files ...string) error {
	if n.imageErr != nil {
		return fmt.Errorf("the driver's modules can't be verified: %w", n.imageErr)
	}
	var part layout.Image
	for _, want := range files {
		found := false
		for _, f := range n.image.Files {
			if f.Path == want {
				part.Files = append(part.Files, f)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("%s is not in the image: it has the driver sets %s for kernel %s", want, strings.Join(n.image.Sets, ", "), n.image.Kernel)
		}
	}
	if err := part.Verify(n.fs(), true); err != nil {
		return fmt.Errorf("the driver's module is damaged: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// insert inserts one module of the driver and judges what came of it. It inserts
// nothing once the context has ended: the run has gone on without this stage.
func (n *trial) insert(ctx context.Context, t *stage.Task, file string, log KernelLog) error {
	name := path.Base(file)
	options, err := n.options(t, driver.ModuleName(file))
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.Log(report.Info, "inserting %s %s", file, options)
	n.inserting(name, options)
	t.Doing("inserting %s", name)
	log.Lines() // what came before is not about this module
	err = n.System.Insert(file, options)
	lines := log.Lines()
	for _, line := range lines {
		t.Log(report.Debug, "kernel: %s", line)
	}
	o := driver.Classify(name, err, lines)
	n.add(t, o.Finding(name, err, lines))
	switch o.Kind {
	case driver.Loaded:
		return nil
	case driver.NoGPU:
		if gpu := n.realGPU(); gpu != "" {
			return fmt.Errorf("%s found no GPU, but stage facts saw %s: it may have dropped off the bus since", name, gpu)
		}
		t.Diagnosis(report.Diagnosis{Verdict: DriverNoGPU, Type: report.DiagnosisUnknown, Message: o.Title + ": " + strings.Join(nvrm(lines), "; ")})
		t.Diagnosis(report.Diagnosis{Verdict: UVMNotInserted, Type: report.DiagnosisUnknown,
			Message: "nvidia-uvm.ko was not inserted: it takes its symbols from an nvidia.ko that has bound a GPU; the build checked its version magic and symbol CRCs against this kernel and nvidia.ko"})
		return stage.Skip("%s", o.Title)
	}
	return fmt.Errorf("%s: %w", o.Title, err)
}

// realGPU returns the address of a GPU that is no stand-in, or nothing.
func (n *Node) realGPU() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.facts == nil {
		return ""
	}
	for _, d := range n.facts.GPUs() {
		if !d.StandIn {
			return d.Address
		}
	}
	return ""
}

// nvrm returns the driver's own lines.
func nvrm(lines []string) []string {
	var own []string
	for _, l := range lines {
		if strings.HasPrefix(l, "NVRM:") {
			own = append(own, l)
		}
	}
	return own
}

// options returns the options of a module of the driver: those of nvidia.ko
// depend on the GPUs.
func (n *trial) options(t *stage.Task, module string) (string, error) {
	if module == "nvidia" && n.image != nil && n.image.Load != nil {
		n.mu.Lock()
		facts := n.facts
		n.mu.Unlock()
		c := driver.Choose(n.image.Load, n.arm.Set, facts, n.fs())
		if n.arm.Mailbox {
			c = n.image.Load.ChooseMailbox()
		}
		t.Extension(ExtOptions, c)
		for _, line := range c.Lines() {
			t.Log(report.Info, "%s", line)
		}
		return loadopt.Arguments(c.Options), nil
	}
	if n.arm.Mailbox && module == "nvidia" {
		return "", errors.New("this image does not say how to choose the mailbox: build it with a release that the catalog describes")
	}
	f, err := os.Open(n.path(layout.Options))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("options of %s: %w", module, err)
	}
	defer f.Close()
	options, err := driver.Options(f, module)
	if err != nil {
		return "", fmt.Errorf("options of %s: %s: %w", module, layout.Options, err)
	}
	return options, nil
}

// nodes makes the device nodes that the CUDA library opens.
func (n *Node) nodes(t *stage.Task) error {
	t.Doing("making /dev/nvidia*")
	devices, err := os.ReadFile(n.path("proc/devices"))
	if err != nil {
		return fmt.Errorf("device nodes: %w", err)
	}
	gpus, _ := filepath.Glob(n.path("proc/driver/nvidia/gpus/*/information")) // the pattern is well formed
	var minors []uint32
	for _, g := range gpus {
		text, err := os.ReadFile(g)
		if err != nil {
			return fmt.Errorf("device nodes: %w", err)
		}
		m, err := driver.Minor(string(text))
		if err != nil {
			return fmt.Errorf("device nodes: %s: %w", g, err)
		}
		minors = append(minors, m)
	}
	nodes, err := driver.Nodes(string(devices), minors)
	if err != nil {
		return fmt.Errorf("device nodes: %w", err)
	}
	for _, d := range nodes {
		if err := n.System.Mknod(n.path(d.Path), d.Major, d.Minor); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("device nodes: mknod %s: %w", d.Path, err)
		}
	}
	t.Summary("driver loaded, %d GPUs", len(minors))
	return nil
}
