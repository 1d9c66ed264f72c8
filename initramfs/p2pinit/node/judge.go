package node

import (
	"context"
	"fmt"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
)

// gather gathers the facts of the machine.
func (n *Node) gather(_ context.Context, t *stage.Task) error {
	if n.params.Plan == params.Shell {
		return stage.Skip("p2p.plan=shell")
	}
	f, err := n.read(t)
	if err != nil {
		return err
	}
	for _, u := range f.Unknown {
		t.Log(report.Debug, "not known: %s (%s): %s", u.What, u.Where, u.Why)
	}
	what := "GPUs"
	if n.params.GPU != "" {
		what = "GPUs and stand-ins"
	}
	t.Summary("%d PCI functions, %d %s", len(f.Devices), len(f.GPUs()), what)
	return nil
}

// read reads the facts, puts them into the report and keeps them for later stages.
func (n *Node) read(t *stage.Task) (*facts.Facts, error) {
	t.Doing("reading /sys and /proc")
	f, err := facts.Gather(n.Root, facts.Options{StandIn: n.params.GPU})
	if err != nil {
		return nil, err
	}
	t.Extension(report.ExtFacts, f)
	n.mu.Lock()
	n.facts = f
	n.mu.Unlock()
	return f, nil
}

// check judges the facts.
func (n *Node) check(_ context.Context, t *stage.Task) error {
	n.mu.Lock()
	f := n.facts
	n.mu.Unlock()
	found := checks.Run(f)
	n.add(t, found...)
	count := map[checks.Status]int{}
	for _, f := range found {
		count[f.Status]++
	}
	t.Summary("%d pass, %d warn, %d fail, %d unknown, %d skipped", count[checks.Pass], count[checks.Warn],
		count[checks.Fail], count[checks.Unknown], count[checks.Skip])
	return nil
}

// sumUp sums the run up. What the findings allow is taken back when a stage broke:
// nobody knows what it would have found.
func sumUp(findings []checks.Finding, outcomes []stage.Outcome) report.Verdict {
	v, reason := checks.Judge(findings)
	if v == checks.VerdictBlocked {
		return report.Verdict{Verdict: v, Reason: reason}
	}
	measured := false
	for _, o := range outcomes {
		if o.Status == report.StatusError && !o.Aside {
			return report.Verdict{Verdict: checks.VerdictUnknown, Reason: fmt.Sprintf("stage %s: %s", o.Name, o.Reason)}
		}
		measured = measured || o.Name == "bandwidth" && o.Status == report.StatusComplete
	}
	if v == checks.VerdictReady && !measured {
		reason += "; nothing was measured"
	}
	return report.Verdict{Verdict: v, Reason: reason}
}
