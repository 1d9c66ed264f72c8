package node

import (
	"bytes"
	"context"
	"strings"

	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/bench"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// bandwidth runs p2pbw and puts its result into the report.
func (n *trial) bandwidth(ctx context.Context, t *stage.Task) error {
	if !n.hasGPU() {
		return stage.Skip("no GPU")
	}
	if n.emulated() {
		return stage.Skip("emulated GPUs compute nothing")
	}
	// Xid, IOMMU and AER lines say why a pair is unwell.
	log := n.followLog(t)
	defer log.Close()
	t.Doing("running %s", layout.P2PBW)
	var said bytes.Buffer
	r, err := bench.Program{Path: n.path(layout.P2PBW), Ceilings: n.ceilings(), Progress: &said}.Run(ctx)
	if text := strings.TrimSpace(said.String()); text != "" {
		t.Log(report.Info, "%s", text)
	}
	for _, line := range log.Lines() {
		t.Log(report.Info, "kernel: %s", line)
	}
	if err != nil {
		return err
	}
	t.Extension(report.ExtBandwidth, r)
	n.measured(r)
	arm := ""
	if n.params.Wish().Compares() {
		arm = n.arm.String()
	}
	bench.Write(t.Step, r, arm, n.judged)
	n.add(t, bench.Findings(r)...)
	t.Summary("%s: %s", r.Verdict, r.Reason)
	return nil
}

// ceilings are what the paths between GPUs can carry, none if that is not known.
func (n *trial) ceilings() []measure.Ceiling {
	n.mu.Lock()
	f, s := n.facts, n.arms[n.index].Survey
	n.mu.Unlock()
	if f == nil {
		return nil
	}
	return bench.Ceilings(f, s)
}
