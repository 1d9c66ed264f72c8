package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/measure"
)

// enumerateTimeout is for starting the driver, which takes seconds per GPU when
// no other process uses them.
const enumerateTimeout = 2 * time.Minute

// A parent measures everything in children. It never touches a GPU itself, so
// that it always comes to an end.
type parent struct {
	options
	log       io.Writer // progress, a line per part
	sys       string    // where the kernel shows PCI functions
	kernelLog string    // the kernel's log
}

// run measures what the options ask for. It returns a whole and judged result
// even if everything failed.
func (p parent) run(ctx context.Context) measure.Result {
	began := time.Now()
	r := measure.Result{
		Version:  measure.Version,
		Started:  began.UTC().Truncate(time.Second),
		Settings: p.settings,
		Devices:  []measure.Device{},
		Pairs:    []measure.Pair{},
	}
	holder := p.start(ctx, partHold, nil)
	defer holder.kill()

	out := p.start(ctx, partEnumerate, nil).wait(ctx, enumerateTimeout)
	r.Inventory, r.Problem = out.last.Inventory, out.problem()
	if r.Problem == nil {
		r.Problem = p.unfit(r.Inventory.GPUs)
	}
	if r.Problem == nil {
		p.measure(ctx, &r)
	}
	r.Verdict, r.Reason = measure.Judge(r)
	r.Seconds = time.Since(began).Seconds()
	return r
}

// unfit returns why the options can't be followed with these GPUs, or nil.
func (p parent) unfit(gpus []cuda.DeviceInfo) *measure.Problem {
	if len(gpus) == 0 {
		return &measure.Problem{Kind: measure.NoGPU, Text: "the driver shows no GPU"}
	}
	for _, pair := range p.pairs {
		for _, bdf := range pair {
			if !slices.ContainsFunc(gpus, func(g cuda.DeviceInfo) bool { return g.BDF == bdf }) {
				return &measure.Problem{Kind: measure.Setup, Text: fmt.Sprintf("the driver shows no GPU at %s, which --pair names", bdf)}
			}
		}
	}
	return nil
}

// measure fills in the devices, pairs and traffic of r.
func (p parent) measure(ctx context.Context, r *measure.Result) {
	gpus := r.Inventory.GPUs
	chosen := func(a, b string) bool {
		return len(p.pairs) == 0 || slices.Contains(p.pairs, [2]string{a, b}) || slices.Contains(p.pairs, [2]string{b, a})
	}
	for _, g := range gpus {
		if len(p.pairs) > 0 && !slices.ContainsFunc(p.pairs, func(pair [2]string) bool { return slices.Contains(pair[:], g.BDF) }) {
			continue
		}
		d := p.device(ctx, g)
		r.Devices = append(r.Devices, d)
		p.logf("%s: %s: %s", d.BDF, d.Verdict, d.Reason)
	}
	for _, a := range gpus {
		for _, b := range gpus {
			if a.BDF == b.BDF || !chosen(a.BDF, b.BDF) {
				continue
			}
			pair := p.pair(ctx, a, b)
			r.Pairs = append(r.Pairs, pair)
			p.logf("%s to %s: %s: %s", pair.Initiator, pair.Peer, pair.Verdict, pair.Reason)
		}
	}
	if p.traffic && len(p.pairs) == 0 {
		p.together(ctx, r)
	}
}

// together measures what several pairs do at the same time, of those that do
// well by themselves.
func (p parent) together(ctx context.Context, r *measure.Result) {
	var bdfs []string
	fabric := p.fabric
	for _, g := range r.Inventory.GPUs {
		bdfs = append(bdfs, g.BDF)
		place, _ := locate(p.sys, g.BDF)
		fabric.Places = append(fabric.Places, place)
	}
	for _, t := range measure.Plan(bdfs, fabric, p.settings) {
		if bad := r.Unfit(t); bad != "" {
			p.logf("%s: not tried, as %s", t.Name(), bad)
			continue
		}
		t = p.trafficIn(ctx, t, r.Inventory.GPUs)
		t.Verdict, t.Reason = measure.JudgeTraffic(t, r.Traffic)
		r.Traffic = append(r.Traffic, t)
		p.logf("%s: %s: %s", t.Name(), t.Verdict, t.Reason)
	}
}

func (p parent) device(ctx context.Context, g cuda.DeviceInfo) measure.Device {
	began := time.Now()
	out, seen := p.measureIn(ctx, partDevice+":"+g.BDF, g)
	d := measure.Device{BDF: g.BDF, Measurements: []measure.Measurement{}, Checks: []measure.Check{}}
	if out.last.Device != nil {
		d = *out.last.Device
	}
	if problem := out.problem(); problem != nil {
		d.Problem = problem
	}
	d.Watch = seen.With(d.Watch)
	d.Seconds = time.Since(began).Seconds()
	d.Verdict, d.Reason = measure.JudgeDevice(d)
	return d
}

func (p parent) pair(ctx context.Context, a, b cuda.DeviceInfo) measure.Pair {
	began := time.Now()
	out, seen := p.measureIn(ctx, partPair+":"+a.BDF+","+b.BDF, a, b)
	pair := measure.Pair{Initiator: a.BDF, Peer: b.BDF, Measurements: []measure.Measurement{}, Checks: []measure.Check{}}
	if out.last.Pair != nil {
		pair = *out.last.Pair
	}
	if problem := out.problem(); problem != nil {
		pair.Problem = problem
	}
	pair.Watch = seen.With(pair.Watch)
	pair.Ceiling = p.fabric.Ceiling(a.BDF, b.BDF)
	pair.Seconds = time.Since(began).Seconds()
	pair.Ways, pair.Verdict, pair.Reason = measure.JudgePair(pair, p.settings)
	return pair
}

// trafficIn measures t in a child.
func (p parent) trafficIn(ctx context.Context, t measure.Traffic, all []cuda.DeviceInfo) measure.Traffic {
	began := time.Now()
	var gpus []cuda.DeviceInfo
	for _, bdf := range t.Ends() {
		gpus = append(gpus, all[slices.IndexFunc(all, func(g cuda.DeviceInfo) bool { return g.BDF == bdf })])
	}
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // a traffic holds nothing that has no JSON form
	}
	out, seen := p.measureIn(ctx, partTraffic+":"+string(text), gpus...)
	if out.last.Traffic != nil {
		t = *out.last.Traffic
	}
	if problem := out.problem(); problem != nil {
		t.Problem = problem
	}
	t.Watch = seen.With(t.Watch)
	t.Seconds = time.Since(began).Seconds()
	return t
}

// measureIn runs part in a child of its own, unless ctx has ended, and watches
// the links of its GPUs and the kernel's log meanwhile.
func (p parent) measureIn(ctx context.Context, part string, gpus ...cuda.DeviceInfo) (outcome, *measure.Watch) {
	if ctx.Err() != nil {
		return outcome{err: errInterrupted, kind: measure.Interrupted}, nil
	}
	var bdfs []string
	for _, g := range gpus {
		bdfs = append(bdfs, g.BDF)
	}
	child := p.start(ctx, part, gpus)
	o := observe(p.sys, p.kernelLog, bdfs, child.loaded)
	out := child.wait(ctx, p.timeout+grace)
	return out, o.end()
}

func (p parent) logf(format string, args ...any) {
	// Progress that can't be written is no reason to stop measuring.
	_, _ = fmt.Fprintf(p.log, format+"\n", args...)
}

// start starts a child for part, which sees only the given GPUs, or all. It gets
// the command line of this process behind what is decided here, the seed among it.
// Launches that block would never come to open the gate that they wait for.
func (p parent) start(ctx context.Context, part string, gpus []cuda.DeviceInfo) *process {
	seed := "--seed=" + strconv.FormatUint(p.settings.Seed, 10)
	args := append([]string{seed, "--child=" + part}, p.args...)
	return startProcess(ctx, args, append(visible(gpus), "CUDA_LAUNCH_BLOCKING=0"))
}

// visible returns the environment variable that hides all other GPUs from
// libcuda, so that one that does not answer any more is left alone; none for
// no GPUs. An instance of a partitioned GPU is left as the user chose it.
func visible(gpus []cuda.DeviceInfo) []string {
	var ids []string
	for _, g := range gpus {
		if strings.Contains(g.Name, " MIG ") {
			return nil
		}
		ids = append(ids, "GPU-"+g.UUID)
	}
	if ids == nil {
		return nil
	}
	return []string{"CUDA_VISIBLE_DEVICES=" + strings.Join(ids, ",")}
}
