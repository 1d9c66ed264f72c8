package bench

import (
	"fmt"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/measure"
)

// statuses are the findings' statuses for the verdicts of a measurement.
var statuses = map[measure.Verdict]checks.Status{
	measure.OK: checks.Pass, measure.Slow: checks.Warn, measure.Inconclusive: checks.Unknown,
	measure.Unusable: checks.Fail, measure.Hang: checks.Fail, measure.WrongData: checks.Fail,
}

// meanings say what a verdict means for the use of a pair.
var meanings = map[measure.Verdict]string{
	measure.Slow:         "Data arrives as sent, slower than the path allows or than staging through host memory.",
	measure.Inconclusive: "Whether data arrives as sent is not known.",
	measure.Unusable:     "The driver does not let these GPUs reach each other; programs stage through host memory.",
	measure.Hang:         "A program that uses this path hangs.",
	measure.WrongData:    "Data does not arrive as sent: a program that uses this path computes nonsense.",
}

// fixes say what to do about a pair with a verdict.
var fixes = map[measure.Verdict]string{
	measure.Slow:         "See P2P-ACS-REDIRECT and P2P-GPU-PAIR, and compare speed and width of both links with what the slots have (lspci -vv, LnkCap and LnkSta).",
	measure.Inconclusive: "Measure the pair again by itself: --pair followed by the two addresses with a comma between them, to p2pbw in the image's shell or to mkp2pimg bench.",
	measure.Unusable:     "Load the driver with the peer-to-peer edits: p2p.driver=p2p in the image, mkp2pimg patch for an installed one. If that is loaded, see P2P-REBAR and P2P-ABOVE-4G.",
	measure.Hang:         "See P2P-IOMMU and P2P-ACS-REDIRECT, and the kernel's log for Xid, DMAR, AMD-Vi and AER; power the machine off before the next try.",
	measure.WrongData:    "Do not use peer-to-peer between these GPUs until this passes. See P2P-IOMMU, which is the usual reason, then P2P-ACS-REDIRECT.",
}

const (
	// deviceFix is for a GPU that has trouble by itself.
	deviceFix = "Try the GPU alone, in another slot and with other power cables; look for Xid messages in the kernel's log (dmesg)."
	// collapseFix is for GPUs that are slow only together.
	collapseFix = "Spread GPUs that write to peers at the same time over several switches, or let the owner of the memory read instead: reads do not collapse."
)

// problemFixes say what to do when there was nothing to measure or no way to.
var problemFixes = map[measure.ProblemKind]string{
	measure.NoLibrary:  "Install the user space of the loaded driver's release: libcuda.so.1.",
	measure.NoGPU:      "Load the NVIDIA driver (modprobe nvidia nvidia-uvm), and see P2P-DRIVER-LOAD and P2P-GPU-PRESENT.",
	measure.Mismatched: "Make libcuda and the kernel module one release: after an update of the driver start the machine anew.",
	measure.Busy:       "End the program that has the GPU for itself, or take the GPU out of exclusive mode: nvidia-smi -c DEFAULT.",
	measure.NoMemory:   "End programs that use GPU memory (nvidia-smi shows them), or measure with a smaller --size.",
}

// Findings states each GPU, pair and set of pairs that is not well, or once that
// all are.
func Findings(r *measure.Result) []checks.Finding {
	var found []checks.Finding
	state := func(v measure.Verdict, title, fix string, problem *measure.Problem, devices []string, pairs [][2]string) {
		status, ok := statuses[v]
		if !ok {
			status = checks.Unknown
		}
		f := checks.Finding{
			ID: checks.Measured, Status: status, Title: title, Meaning: meanings[v], Fix: fix, Devices: devices, Pairs: pairs,
			Evidence: []checks.Evidence{{What: "verdict of p2pbw", Where: "libcuda", Raw: string(v)}},
		}
		if problem != nil {
			if known, ok := problemFixes[problem.Kind]; ok {
				f.Fix = known
			}
			if problem.Call != "" {
				f.Evidence = append(f.Evidence, checks.Evidence{What: problem.Call, Where: "libcuda", Raw: fmt.Sprintf("%d, %s", problem.Code, problem.Name)})
			}
		}
		found = append(found, f)
	}
	for _, d := range r.Devices {
		if d.Verdict != measure.OK {
			state(d.Verdict, fmt.Sprintf("GPU %s by itself: %s", d.BDF, d.Reason), deviceFix, d.Problem, []string{d.BDF}, nil)
			found[len(found)-1].Evidence = append(found[len(found)-1].Evidence, seen(d.Watch)...)
		}
	}
	for _, p := range r.Pairs {
		if p.Verdict != measure.OK {
			state(p.Verdict, fmt.Sprintf("%s to %s: %s", p.Initiator, p.Peer, p.Reason), fixes[p.Verdict], p.Problem, nil, [][2]string{{p.Initiator, p.Peer}})
			found[len(found)-1].Evidence = append(found[len(found)-1].Evidence, seen(p.Watch)...)
		}
	}
	for _, t := range r.Traffic {
		if t.Verdict == measure.OK {
			continue
		}
		var pairs [][2]string
		for _, f := range t.Flows {
			pairs = append(pairs, [2]string{f.Initiator, f.Peer})
		}
		fix := fixes[t.Verdict]
		if t.Shape == measure.Collapse && t.Verdict == measure.Slow {
			fix = collapseFix
		}
		state(t.Verdict, fmt.Sprintf("%s: %s", t.Name(), t.Reason), fix, t.Problem, nil, pairs)
		found[len(found)-1].Evidence = append(found[len(found)-1].Evidence, seen(t.Watch)...)
	}
	if found == nil {
		state(r.Verdict, r.Reason, fixes[r.Verdict], r.Problem, nil, nil)
	}
	return found
}

// seen is what was seen from outside meanwhile, as far as it points at a reason.
func seen(w *measure.Watch) []checks.Evidence {
	if w == nil {
		return nil
	}
	var all []checks.Evidence
	for _, l := range w.Links {
		if len(l.Seen) > 0 {
			all = append(all, checks.Evidence{What: "link under load", Where: l.BDF, Raw: fmt.Sprintf("%s x%d of %s x%d", l.Seen[0].Speed, l.Seen[0].Width, l.MaxSpeed, l.MaxWidth)})
		}
		for _, severity := range []string{"correctable", "nonfatal", "fatal"} {
			if n := l.Errors[severity]; n > 0 {
				all = append(all, checks.Evidence{What: severity + " errors meanwhile", Where: l.BDF, Raw: fmt.Sprint(n)})
			}
		}
	}
	for _, s := range w.Sensors {
		if s.Replays != nil && *s.Replays > 0 {
			all = append(all, checks.Evidence{What: "PCIe replays meanwhile", Where: s.BDF, Raw: fmt.Sprint(*s.Replays)})
		}
	}
	for _, line := range w.Kernel {
		all = append(all, checks.Evidence{What: "kernel log meanwhile", Where: "/dev/kmsg", Raw: line})
	}
	return all
}
