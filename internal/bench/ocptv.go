package bench

import (
	"fmt"

	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
)

// Names of what this package writes into a report, besides the quantities of pairs
// behind "p2p-", such as p2p-bandwidth and p2p-load-latency.
const (
	DeviceBandwidth  = "gpu-bandwidth"
	TrafficBandwidth = "traffic-bandwidth"
	SweepBandwidth   = "p2p-bandwidth-by-size" // a series
	WrongWords       = "p2p-wrong-words"
)

// Keys of metadata, besides those of package report.
const (
	MetaSize = "size" // bytes per copy
	MetaLoad = "load" // what else the link did
	MetaArm  = "arm"  // of an A/B run
)

// Write writes the figures of a result into a step: medians with their spread as
// metadata, each size sweep as a series. The limits that they were judged by are
// their validators: the floor, the part of the path's ceiling, and no wrong word.
// In an arm that is not judged they have none.
func Write(step *report.Step, r *measure.Result, arm string, judged bool) {
	w := writer{step, r, arm, judged}
	for _, d := range r.Devices {
		for _, m := range d.Measurements {
			w.put(w.entry(DeviceBandwidth, d.BDF, m))
		}
	}
	for _, p := range r.Pairs {
		w.pair(p)
	}
	for _, t := range r.Traffic {
		if t.Sum == nil {
			continue
		}
		e := w.entry(TrafficBandwidth, "", *t.Sum)
		e.Metadata["shape"], e.Metadata["sources"], e.Metadata["flows"] = t.Shape, t.Sources, len(t.Flows)
		w.put(e)
	}
}

type writer struct {
	step   *report.Step
	result *measure.Result
	arm    string
	judged bool
}

func (w writer) put(m report.Measurement) {
	if !w.judged {
		m.Validators = nil
	}
	w.step.Measurement(m)
}

func (w writer) pair(p measure.Pair) {
	for _, m := range p.Measurements {
		e := w.entry("p2p-"+string(m.Quantity), p.Initiator, m)
		e.Metadata[report.MetaInitiator], e.Metadata[report.MetaPeer] = p.Initiator, p.Peer
		e.Validators = w.limits(p, m)
		w.put(e)
	}
	w.sweeps(p)
	for _, c := range p.Checks {
		m := w.metadata(c.Direction, c.Method)
		m[report.MetaInitiator], m[report.MetaPeer] = p.Initiator, p.Peer
		m["phase"], m["reader"], m["bytes"] = c.Phase, c.Reader, c.Bytes
		w.put(report.Measurement{
			Name: WrongWords, Value: c.Wrong, Unit: "words of 8 bytes", HardwareID: p.Peer, Metadata: m,
			Validators: []report.Validator{{Name: "none", Type: report.Equal, Value: 0}},
		})
	}
}

// limits are what a figure of a pair was judged by.
func (w writer) limits(p measure.Pair, m measure.Measurement) []report.Validator {
	if m.Quantity != measure.Bandwidth || m.Method == measure.Staged || m.Load != measure.Alone {
		return nil
	}
	var all []report.Validator
	set := w.result.Settings
	if set.MinGBps > 0 {
		all = append(all, report.Validator{Name: "floor", Type: report.GreaterThanOrEqual, Value: set.MinGBps})
	}
	if ceiling := p.Ceiling.Of(m.Direction); m.Method == measure.CE && ceiling > 0 && set.SlowFraction > 0 {
		all = append(all, report.Validator{
			Name: fmt.Sprintf("%g of the ceiling, %.2f GB/s (%s)", set.SlowFraction, ceiling, p.Ceiling.Basis),
			Type: report.GreaterThanOrEqual, Value: set.SlowFraction * ceiling,
		})
	}
	return all
}

// sweeps writes each size sweep of a pair as a series. Its elements are in the
// order of their sizes.
func (w writer) sweeps(p measure.Pair) {
	type way struct {
		measure.Direction
		measure.Method
	}
	var ways []way
	of := map[way][]measure.Measurement{}
	for _, m := range p.Sweep {
		k := way{m.Direction, m.Method}
		if of[k] == nil {
			ways = append(ways, k)
		}
		of[k] = append(of[k], m)
	}
	for _, k := range ways {
		meta := w.metadata(k.Direction, k.Method)
		meta[report.MetaInitiator], meta[report.MetaPeer] = p.Initiator, p.Peer
		s := w.step.Series(report.SeriesStart{Name: SweepBandwidth, Unit: measure.GBps, HardwareID: p.Initiator, Metadata: meta})
		for _, m := range of[k] {
			s.AddWith(m.Median, map[string]any{MetaSize: m.Size, "samples": len(m.Samples), "p5": m.P5, "p95": m.P95})
		}
		s.End()
	}
}

func (w writer) metadata(d measure.Direction, m measure.Method) map[string]any {
	meta := map[string]any{report.MetaDirection: d, report.MetaMethod: m}
	if w.arm != "" {
		meta[MetaArm] = w.arm
	}
	return meta
}

func (w writer) entry(name, bdf string, m measure.Measurement) report.Measurement {
	meta := w.metadata(m.Direction, m.Method)
	meta[MetaSize], meta["samples"], meta["min"], meta["p5"] = m.Size, len(m.Samples), m.Min, m.P5
	meta["p95"], meta["max"], meta["cv"] = m.P95, m.Max, m.CV
	if m.Load != measure.Alone {
		meta[MetaLoad] = m.Load
	}
	return report.Measurement{Name: name, Value: m.Median, Unit: m.Unit, HardwareID: bdf, Metadata: meta}
}
