package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/initramfs/layout"
	"mkp2pimg/initramfs/p2pinit/stage"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// ExtBandwidth is the extension with the whole [measure.Result].
const ExtBandwidth = "bandwidth"

// wrapUp is the time before its deadline at which the measurement is asked to
// stop, so that it still prints what it has.
const wrapUp = 20 * time.Second

// bandwidth runs p2pbw and puts its result into the report.
func (n *trial) bandwidth(ctx context.Context, t *stage.Task) error {
	if !n.hasGPU() {
		return stage.Skip("no GPU")
	}
	// Xid, IOMMU and AER lines say why a pair is unwell.
	log := n.followLog(t)
	defer log.Close()
	t.Doing("running %s", layout.P2PBW)
	r, err := runP2PBW(ctx, t, n.path(layout.P2PBW), "--json")
	for _, line := range log.Lines() {
		t.Log(report.Info, "kernel: %s", line)
	}
	if err != nil {
		return err
	}
	t.Extension(ExtBandwidth, r)
	n.measured(r)
	for _, m := range measurements(r) {
		t.Measurement(m)
	}
	found := findings(r)
	n.add(t, found...)
	t.Summary("%s: %s", r.Verdict, r.Reason)
	return nil
}

// runP2PBW runs the measuring program in a process group of its own and reads the
// result from its output. Its exit code repeats the verdict that is in the result.
func runP2PBW(ctx context.Context, t *stage.Task, program string, args ...string) (*measure.Result, error) {
	if end, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, end.Add(-min(wrapUp, time.Until(end)/4)))
		defer cancel()
		ctx = early
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = wrapUp / 2
	runErr := cmd.Run()
	if cmd.Process != nil {
		// Whatever the program left behind would hold the GPUs.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		t.Log(report.Info, "%s", text)
	}
	var r measure.Result
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return nil, fmt.Errorf("p2pbw gave no result: %w", errors.Join(runErr, ctx.Err(), err))
	}
	if r.Version != measure.Version {
		return nil, fmt.Errorf("p2pbw gave a result of version %d, this program reads version %d", r.Version, measure.Version)
	}
	return &r, nil
}

// measurements are the medians of a result, with the spread as metadata.
func measurements(r *measure.Result) []report.Measurement {
	var all []report.Measurement
	entry := func(name, bdf string, m measure.Measurement) report.Measurement {
		return report.Measurement{
			Name: name, Value: m.Median, Unit: m.Unit, HardwareID: bdf,
			Metadata: map[string]any{
				report.MetaDirection: m.Direction, report.MetaMethod: m.Method, "size": m.Size, "samples": len(m.Samples),
				"min": m.Min, "p5": m.P5, "p95": m.P95, "max": m.Max, "cv": m.CV,
			},
		}
	}
	for _, d := range r.Devices {
		for _, m := range d.Measurements {
			all = append(all, entry("gpu-bandwidth", d.BDF, m))
		}
	}
	for _, p := range r.Pairs {
		for _, m := range p.Measurements {
			e := entry(report.BandwidthName, p.Initiator, m)
			e.Metadata[report.MetaInitiator], e.Metadata[report.MetaPeer] = p.Initiator, p.Peer
			if r.Settings.MinGBps > 0 && m.Method == measure.CE {
				e.Validators = []report.Validator{{Name: "floor", Type: report.GreaterThanOrEqual, Value: r.Settings.MinGBps}}
			}
			all = append(all, e)
		}
	}
	return all
}

// statuses are the findings' statuses for the verdicts of a measurement.
var statuses = map[measure.Verdict]checks.Status{
	measure.OK: checks.Pass, measure.Slow: checks.Warn, measure.Inconclusive: checks.Unknown,
	measure.Unusable: checks.Fail, measure.Hang: checks.Fail, measure.WrongData: checks.Fail,
}

// meanings say what a verdict means for the use of a pair.
var meanings = map[measure.Verdict]string{
	measure.Slow:         "Data arrives as sent, at a speed that staging through host memory reaches as well.",
	measure.Inconclusive: "Whether data arrives as sent is not known.",
	measure.Unusable:     "The driver does not let these GPUs reach each other; programs stage through host memory.",
	measure.Hang:         "A program that uses this path hangs.",
	measure.WrongData:    "Data does not arrive as sent: a program that uses this path computes nonsense.",
}

// fixes say what to do about a pair with a verdict.
var fixes = map[measure.Verdict]string{
	measure.Slow:         "See P2P-ACS-REDIRECT and P2P-GPU-PAIR, and compare speed and width of both links with what the slots have (lspci -vv, LnkCap and LnkSta).",
	measure.Inconclusive: "Measure the pair again by itself, from a shell: p2pbw --pair followed by the two addresses with a comma between them.",
	measure.Unusable:     "Boot with p2p.driver=p2p, the driver with the peer-to-peer edits; if that is loaded, see P2P-REBAR and P2P-ABOVE-4G.",
	measure.Hang:         "See P2P-IOMMU and P2P-ACS-REDIRECT, and the kernel's log for Xid, DMAR, AMD-Vi and AER; power the machine off before the next try.",
	measure.WrongData:    "Do not use peer-to-peer between these GPUs until this passes. See P2P-IOMMU, which is the usual reason, then P2P-ACS-REDIRECT.",
}

// deviceFix is for a GPU that has trouble by itself.
const deviceFix = "Try the GPU alone, in another slot and with other power cables; look for Xid messages in the kernel's log (dmesg)."

// findings states each GPU and pair that is not well, or once that all are.
func findings(r *measure.Result) []checks.Finding {
	var found []checks.Finding
	state := func(v measure.Verdict, title, fix string, devices []string, pairs [][2]string) {
		status, ok := statuses[v]
		if !ok {
			status = checks.Unknown
		}
		found = append(found, checks.Finding{
			ID: checks.Measured, Status: status, Title: title, Meaning: meanings[v], Fix: fix, Devices: devices, Pairs: pairs,
			Evidence: []checks.Evidence{{What: "verdict of p2pbw", Where: layout.P2PBW, Raw: string(v)}},
		})
	}
	for _, d := range r.Devices {
		if d.Verdict != measure.OK {
			state(d.Verdict, fmt.Sprintf("GPU %s by itself: %s", d.BDF, d.Reason), deviceFix, []string{d.BDF}, nil)
		}
	}
	for _, p := range r.Pairs {
		if p.Verdict != measure.OK {
			state(p.Verdict, fmt.Sprintf("%s to %s: %s", p.Initiator, p.Peer, p.Reason), fixes[p.Verdict], nil, [][2]string{{p.Initiator, p.Peer}})
		}
	}
	if found == nil {
		state(r.Verdict, r.Reason, fixes[r.Verdict], nil, nil)
	}
	return found
}
