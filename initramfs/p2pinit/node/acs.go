package node

import (
	"context"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/remedy"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
)

// ExtACS is the extension with the [remedy.Plan] of a run with p2p.acs.
const ExtACS = "acs"

// acs shows what clears the ACS redirect between GPUs, or clears it. The checks
// then judge facts gathered anew, beside a finding that says what was changed. A
// port that can't be cleared is a finding and no broken stage: all ports are as
// they were, and the other checks hold.
func (n *Node) acs(ctx context.Context, t *stage.Task) error {
	n.mu.Lock()
	f := n.facts
	n.mu.Unlock()
	plan, err := remedy.NewPlan(f, remedy.Options{})
	if err != nil {
		return err
	}
	t.Extension(ExtACS, plan)
	for _, p := range plan.Ports {
		t.Log(report.Info, "%s", p)
	}
	changes := plan.Changes()
	if n.params.ACS == params.Show {
		t.Summary("%d of %d ports between GPUs redirect and can be cleared", len(changes), len(plan.Ports))
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // the run has gone on without this stage
	}
	t.Doing("writing the ACS control of %d ports", len(changes))
	done, failure := remedy.Clear(n.Root, "", changes)
	for _, c := range done {
		t.Log(report.Info, "written and read back: %s", c)
	}
	n.add(t, remedy.Finding(checks.Run(f), plan, done, failure))
	if _, err := n.read(t); err != nil {
		return err
	}
	if failure != nil {
		t.Summary("not cleared: %v", failure)
		return nil
	}
	t.Summary("%d of %d ports between GPUs cleared", len(done), len(plan.Ports))
	return nil
}
