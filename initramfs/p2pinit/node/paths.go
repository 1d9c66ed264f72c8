package node

import (
	"context"
	"os"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// ExtPaths is the extension with the whole [rm.Survey].
const ExtPaths = "paths"

// paths asks the loaded driver over which path each pair of GPUs reaches each
// other. A driver that does not answer is a finding and no broken stage: the
// measurement can still prove that data arrives.
func (n *trial) paths(ctx context.Context, t *stage.Task) error {
	if !n.hasGPU() {
		return stage.Skip("no GPU")
	}
	log := n.followLog(t)
	defer log.Close()
	t.Doing("asking the driver's resource manager")
	s, err := n.System.Survey(ctx)
	lines := log.Lines()
	for _, line := range lines {
		t.Log(report.Info, "kernel: %s", line)
	}
	if n.emulated() {
		n.add(t, checks.NotStarted(lines))
		t.Summary("the driver starts no emulated GPU")
		return nil
	}
	if err != nil {
		n.add(t, checks.Finding{
			ID: checks.RMPath, Status: checks.Unknown, Title: "the driver does not answer",
			Evidence: []checks.Evidence{{What: "resource manager", Where: "/dev/nvidiactl", Raw: err.Error()}},
			Meaning:  "Over what the GPUs reach each other, if they do, is not known.",
			Fix:      "See the driver's lines in the kernel's log (dmesg).",
		})
		t.Summary("the driver does not answer: %v", err)
		return nil
	}
	t.Extension(ExtPaths, s)
	n.surveyed(s)
	req, err := n.request()
	if err != nil {
		t.Log(report.Warning, "what the driver was told about peer-to-peer is not known: %v", err)
	}
	n.add(t, checks.RM(s, req)...)
	t.Summary("driver %s: %s", s.Driver, arms.Paths(s))
	return nil
}

// request reads what the driver was loaded with.
func (n *trial) request() (checks.Request, error) {
	req := checks.Request{Stock: n.arm.Set == arms.Stock}
	text, err := os.ReadFile(n.path(rm.ParamsFile))
	if err != nil {
		return req, err
	}
	req.Keys, req.PerDevice = rm.ParseKeys(string(text))
	return req, nil
}
