package node

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/initramfs/p2pinit/params"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

// ExtPaths is the extension with the whole [rm.Survey].
const ExtPaths = "paths"

// paths asks the loaded driver over which path each pair of GPUs reaches each
// other. A driver that does not answer is a finding and no broken stage: the
// measurement can still prove that data arrives.
func (n *Node) paths(ctx context.Context, t *stage.Task) error {
	if !n.hasGPU() {
		return stage.Skip("no GPU")
	}
	log := n.followLog(t)
	defer log.Close()
	t.Doing("asking the driver's resource manager")
	s, err := n.System.Survey(ctx)
	for _, line := range log.Lines() {
		t.Log(report.Info, "kernel: %s", line)
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
	req, err := n.request()
	if err != nil {
		t.Log(report.Warning, "what the driver was told about peer-to-peer is not known: %v", err)
	}
	n.add(t, checks.RM(s, req)...)
	t.Summary("%s", pathSummary(s))
	return nil
}

// request reads what the driver was loaded with.
func (n *Node) request() (checks.Request, error) {
	req := checks.Request{Stock: n.params.Driver == params.Stock}
	text, err := os.ReadFile(n.path(rm.ParamsFile))
	if err != nil {
		return req, err
	}
	req.Keys, req.PerDevice = rm.ParseKeys(string(text))
	return req, nil
}

// pathSummary counts the ordered pairs by path: "driver 580.142: 12 bar1, 2 nvlink".
func pathSummary(s *rm.Survey) string {
	count := map[string]int{}
	for _, p := range s.Pairs {
		if p.Error != "" {
			count["not told"]++
		} else {
			count[string(p.Path)]++
		}
	}
	var words []string
	for path, n := range count {
		words = append(words, fmt.Sprintf("%d %s", n, path))
	}
	slices.Sort(words)
	if words == nil {
		words = []string{"no pair"}
	}
	return fmt.Sprintf("driver %s: %s", s.Driver, strings.Join(words, ", "))
}
