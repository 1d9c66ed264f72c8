package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/remedy"
	"mkp2pimg/initramfs/p2pinit/driver"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// ExtArm is the extension of the stages of an arm that the verdict is not about,
// with what was found in it.
const ExtArm = "arm"

const (
	acsDeadline  = time.Minute
	unloadLimit  = 2 * time.Minute // GPUs are stopped one after the other, seconds for each
	savedForACS  = "run/mkp2pimg/acs.json"
	deviceFiles  = "dev/nvidia*"
	driverStage  = "driver"
	measureStage = "bandwidth"
)

// trial is the measurement of one arm. The judged one is what the verdict is
// about; findings of the others describe a state that the machine is not left in.
type trial struct {
	*Node
	arm    arms.Arm
	judged bool
	index  int // among the outcomes of the run
}

// choose says what to measure: one arm, unless the run compares.
func (n *Node) choose() ([]arms.Arm, []arms.Left) {
	wish := n.params.Wish()
	if n.params.Plan != params.Full || n.params.Driver == params.None && n.params.Arms == nil {
		wish = arms.Wish{Set: wish.Set}
	}
	m := arms.Machine{}
	if n.image != nil {
		m.Sets = n.image.Sets
	}
	if wish.Compares() {
		m.NoMailbox, m.NoRedirect = n.noMailbox(), n.noRedirect()
	}
	all, left := arms.Choose(wish, m)
	for _, a := range all {
		n.arms = append(n.arms, arms.Outcome{Arm: a})
	}
	return all, left
}

// noMailbox says why no pair of GPUs can have a mailbox that works: what the
// predictor knows of the edited driver when it is told to choose the mailbox.
func (n *Node) noMailbox() string {
	n.mu.Lock()
	f := n.facts
	n.mu.Unlock()
	if n.image == nil || n.image.Load == nil {
		return "the image does not say with which options its driver chooses the mailbox"
	}
	if f == nil {
		return "the machine's GPUs are not known"
	}
	d, err := predict.Loaded(n.image.Driver, true, n.image.Load.ChooseMailbox().Options)
	if err != nil {
		return err.Error()
	}
	var why []string
	for _, p := range predict.Pairs(f, d) {
		switch {
		case !slices.Contains(p.Possible, rm.Mailbox):
			why = append(why, fmt.Sprintf("the driver would take %s between %s and %s", p.Path, p.A, p.B))
		case p.Works == predict.No:
			no := fmt.Sprintf("the mailbox between %s and %s does not work", p.A, p.B)
			if i := slices.IndexFunc(p.Checks, func(a predict.Answer) bool { return a.Verdict == predict.No }); i >= 0 {
				no += ": " + p.Checks[i].Reason
			}
			why = append(why, no)
		default:
			return ""
		}
	}
	if why == nil {
		return "there is no pair of GPUs"
	}
	return why[0]
}

// noRedirect says why there is no ACS redirect to clear.
func (n *Node) noRedirect() string {
	n.mu.Lock()
	f := n.facts
	n.mu.Unlock()
	if f == nil {
		return "the machine's ports are not known"
	}
	plan, err := remedy.NewPlan(f, remedy.Options{})
	if err != nil {
		return err.Error()
	}
	if len(plan.Changes()) == 0 {
		return "no port between GPUs redirects that can be changed"
	}
	return ""
}

// stageOf returns the name of a stage of an arm of the run. Those of the last have
// the names that a run of one arm has.
func stageOf(all []arms.Arm, i int, kind string) string {
	if i == len(all)-1 {
		return kind
	}
	return kind + "-" + all[i].String()
}

// neighbours returns the first and the last of the arms around i that are measured
// with one load of the driver.
func neighbours(all []arms.Arm, i int) (first, last int) {
	first, last = i, i
	for first > 0 && all[first-1].SameDriver(all[i]) {
		first--
	}
	for last < len(all)-1 && all[last+1].SameDriver(all[i]) {
		last++
	}
	return first, last
}

// measuring are the stages of an arm of the run.
func (n *Node) measuring(all []arms.Arm, i int) []stage.Stage {
	end := len(all) - 1
	first, last := neighbours(all, i)
	arm, loaded := all[i], stageOf(all, last, driverStage)
	t := &trial{n, arm, i == end, i}
	var stages []stage.Stage
	add := func(kind, name, title string, d time.Duration, run func(context.Context, *stage.Task) error, needs ...string) {
		if end > 0 {
			title += fmt.Sprintf(" (arm %s)", arm)
		}
		aside := i != end && name != driverStage
		stages = append(stages, stage.Stage{Name: name, Kind: kind, Title: title, Aside: aside, Deadline: d, Needs: needs, Run: run})
	}
	if i == first {
		// Its findings are those of the last arm that it is loaded for.
		loader := &trial{n, arm, last == end, i}
		add(driverStage, loaded, "load the NVIDIA driver", 3*time.Minute, loader.driver)
	}
	needs := []string{loaded}
	if arm.NoACS {
		clearing := "acs-" + arm.String()
		add("acs", clearing, "clear ACS redirect between GPUs", acsDeadline, t.clearACS, loaded)
		needs = append(needs, clearing)
	}
	add("paths", stageOf(all, i, "paths"), "ask the driver for the paths between GPUs", 2*time.Minute, t.paths, needs...)
	add(measureStage, stageOf(all, i, measureStage), "measure peer-to-peer bandwidth", 30*time.Minute, t.bandwidth, needs...)
	if arm.NoACS {
		add("acs", "restore-"+arm.String(), "switch ACS redirect between GPUs on again", acsDeadline, t.restoreACS)
	}
	if i == last && i != end {
		add("unload", stageOf(all, i, "unload"), "unload the NVIDIA driver", unloadLimit, t.unload)
	}
	return stages
}

// update changes the outcome of the arm.
func (n *trial) update(change func(o *arms.Outcome)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.arms[n.index])
}

// inserting keeps the options of nvidia.ko, for all arms that it is loaded for.
func (n *trial) inserting(module, options string) {
	if module != "nvidia.ko" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := n.index; i < len(n.arms) && n.arms[i].SameDriver(n.arm); i++ {
		n.arms[i].Options = options
	}
}

func (n *trial) surveyed(s *rm.Survey) { n.update(func(o *arms.Outcome) { o.Survey = s }) }

func (n *trial) measured(r *measure.Result) {
	n.update(func(o *arms.Outcome) { o.Result = r })
}

// add keeps findings of the judged arm for the verdict. Those of another arm are
// in the report as what they are: about a state in which the machine is not left.
func (n *trial) add(t *stage.Task, findings ...checks.Finding) {
	if n.judged {
		n.Node.add(t, findings...)
		return
	}
	for _, f := range findings {
		t.Log(report.Info, "arm %s: %s %s: %s", n.arm, f.Status, f.ID, f.Title)
		t.Extension(ExtArm, map[string]any{"arm": n.arm.String(), "finding": f})
	}
}

// clearACS clears the redirect for this arm. What was there is kept, to be put back.
func (n *trial) clearACS(ctx context.Context, t *stage.Task) error {
	n.mu.Lock()
	f := n.facts
	n.mu.Unlock()
	plan, err := remedy.NewPlan(f, remedy.Options{})
	if err != nil {
		return err
	}
	t.Extension(ExtACS, plan)
	if err := ctx.Err(); err != nil {
		return err
	}
	changes := plan.Changes()
	t.Doing("writing the ACS control of %d ports", len(changes))
	done, err := remedy.Clear(n.Root, n.path(savedForACS), changes)
	var lines []string
	for _, c := range done {
		t.Log(report.Info, "written and read back: %s", c)
		lines = append(lines, c.String())
	}
	n.update(func(o *arms.Outcome) { o.ACS = lines })
	if err != nil {
		return err
	}
	t.Summary("%d of %d ports between GPUs cleared", len(done), len(plan.Ports))
	return nil
}

// restoreACS puts the redirect back. Where that fails, what is measured from then
// on is about another machine than the one that started, which is a finding.
func (n *trial) restoreACS(_ context.Context, t *stage.Task) error {
	if _, err := os.Stat(n.path(savedForACS)); err != nil {
		return stage.Skip("nothing was cleared")
	}
	t.Doing("writing the ACS control back")
	done, err := remedy.Restore(n.Root, n.path(savedForACS), false)
	for _, c := range done {
		t.Log(report.Info, "written and read back: %s", c)
	}
	if err != nil {
		n.Node.add(t, checks.Finding{
			ID: checks.ACSChanged, Status: checks.Warn, Title: "the ACS redirect could not be switched on again",
			Evidence: []checks.Evidence{{What: "restoring ACS", Raw: err.Error()}},
			Meaning:  "What was measured after arm " + n.arm.String() + " was measured without it.",
			Fix:      "Start the machine anew.",
		})
		return err
	}
	t.Summary("%d ports as they were", len(done))
	return nil
}

// unload removes the driver's modules, so that another build can be loaded. One
// that stays is a finding: the arms that need another are skipped.
func (n *trial) unload(ctx context.Context, t *stage.Task) error {
	modules := driver.LoadedModules(n.fs())
	if modules == nil {
		return stage.Skip("no module of the driver is loaded")
	}
	log := n.followLog(t)
	defer log.Close()
	for _, m := range modules {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.Doing("removing %s", m)
		err := n.System.Remove(m)
		if f := driver.Unloaded(m, err, driver.Users(n.fs()), log.Lines()); f != nil {
			n.Node.add(t, *f)
			return fmt.Errorf("%s: %w", f.Title, err)
		}
	}
	for _, line := range log.Lines() {
		t.Log(report.Info, "kernel: %s", line)
	}
	// The next driver may get other device numbers.
	nodes, _ := filepath.Glob(n.path(deviceFiles)) // the pattern is well formed
	for _, node := range nodes {
		if err := os.Remove(node); err != nil {
			return fmt.Errorf("device node of the driver that was unloaded: %w", err)
		}
	}
	t.Summary("%s unloaded", strings.Join(modules, " and "))
	return nil
}

// compare sets what came of the arms side by side.
func (n *Node) compare(all []arms.Arm, left []arms.Left) func(context.Context, *stage.Task) error {
	return func(_ context.Context, t *stage.Task) error {
		n.mu.Lock()
		outcomes := slices.Clone(n.arms)
		n.mu.Unlock()
		measured := 0
		for i := range outcomes {
			o := &outcomes[i]
			if o.Result != nil {
				measured++
				continue
			}
			o.Skipped = n.runner.Reason(stageOf(all, i, measureStage))
			t.Log(report.Info, "arm %s was not measured: %s", o, o.Skipped)
		}
		for _, l := range left {
			t.Log(report.Info, "arm %s was left out: %s", l.Arm, l.Why)
		}
		t.Extension(report.ExtComparison, arms.Compare(outcomes, left))
		t.Summary("%d of %d arms measured", measured, len(all)+len(left))
		return nil
	}
}
