package qemu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/report"
)

// The test steps of the image's report, in its order.
const (
	stepMount     = "mount"
	stepModules   = "modules"
	stepFacts     = "facts"
	stepChecks    = "checks"
	stepDriver    = "driver"
	stepBandwidth = "bandwidth"
	stepReport    = "report"
)

// Judge compares a run with what any image must do, and with what the machine's
// description expects of it. What can't be judged for want of a GPU is skipped.
func Judge(m *Machine, run *Run) []Check {
	j := &judge{machine: m, run: run}
	text := sinceStart(join(run.Report))
	j.report, j.unread = report.Parse(bytes.NewReader(text))
	if j.unread != nil {
		j.report = &report.Run{}
	}
	j.add("kernel", j.kernel)
	j.add("console", j.console)
	j.add("init", j.init)
	j.add("image", j.image)
	j.add("modules", j.step(stepModules))
	j.add("facts", j.facts)
	j.add("checks", j.step(stepChecks))
	for _, want := range m.Expect.Findings {
		j.add("finding "+want.ID, j.finding(want))
	}
	if j.machine.Expect.Trouble != nil {
		j.add("trouble", j.trouble)
	}
	if len(j.machine.Expect.Paths) > 0 {
		j.add("paths", j.paths)
	}
	if j.machine.Expect.BAR != 0 {
		j.add("bars", j.bars)
	}
	j.add("nvidia-insert", j.nvidia)
	j.add("gpu", j.gpu)
	j.add("nvidia-uvm", j.uvm)
	j.add("bandwidth", j.bandwidth)
	j.add("verdict", j.verdict)
	j.add("report", func() (Status, string) { return j.whole(text) })
	j.add("power-off", j.powerOff)
	return j.checks
}

// sinceStart drops what firmware wrote to a serial port before the report began.
func sinceStart(text []byte) []byte {
	if i := bytes.Index(text, []byte(reportStart)); i > 0 {
		return text[i:]
	}
	return text
}

// reportStart begins the first line of a report.
const reportStart = `{"schemaVersion":`

type judge struct {
	machine *Machine
	run     *Run
	report  *report.Run
	unread  error // why there is no report
	checks  []Check
}

func (j *judge) add(id string, f func() (Status, string)) {
	status, detail := f()
	j.checks = append(j.checks, Check{ID: id, Status: status, Detail: detail})
}

func failed(format string, args ...any) (Status, string) { return Fail, fmt.Sprintf(format, args...) }
func passed(format string, args ...any) (Status, string) { return Pass, fmt.Sprintf(format, args...) }

func (j *judge) kernel() (Status, string) {
	for _, l := range j.run.Console {
		if _, version, ok := strings.Cut(l.Text, "] Linux version "); ok {
			release, _, _ := strings.Cut(version, " ")
			return passed("Linux %s", release)
		}
	}
	if j.run.Stderr != "" {
		return failed("no kernel on the console; the emulator says: %s", lastLine(j.run.Stderr))
	}
	return failed("no kernel on the console: is console=ttyS0 on its command line, and quiet not?")
}

// alarms are kernel messages after which nothing else can be trusted.
var alarms = []string{
	kernelPanic,
	"Initramfs unpacking failed",
	"kernel BUG at",
	"Oops: ",
	"BUG: unable to handle",
	"general protection fault",
	"Out of memory: Killed process",
}

func (j *judge) console() (Status, string) {
	for _, l := range j.run.Console {
		for _, a := range alarms {
			if strings.Contains(l.Text, a) {
				return failed("after %.1f s: %s", l.At.Seconds(), l.Text)
			}
		}
	}
	if len(j.run.Console) == 0 {
		return failed("nothing was printed")
	}
	return passed("no panic, no oops, initramfs unpacked whole")
}

func (j *judge) init() (Status, string) {
	switch {
	case j.unread != nil:
		return failed("%v", j.unread)
	case j.report.Start == nil:
		return failed("the report has no testRunStart")
	}
	return passed("%s %s", j.report.Start.Name, j.report.Start.Version)
}

// step judges a stage that has to go through without an error of its own.
func (j *judge) step(id string) func() (Status, string) {
	return func() (Status, string) {
		s := j.report.Step(id)
		switch {
		case s == nil:
			return failed("stage %s is not in the report", id)
		case len(s.Errors) > 0:
			return failed("stage %s: %s: %s", id, s.Errors[0].Symptom, s.Errors[0].Message)
		case s.Status == "":
			return failed("stage %s began and never ended", id)
		case s.Status != report.StatusComplete:
			return failed("stage %s ended as %s", id, s.Status)
		}
		return passed("stage %s took %v", id, s.Ended.Sub(s.Started).Round(time.Millisecond))
	}
}

// image wants the init's word that the files of the image are whole: a kernel
// short of memory unpacks some of them and starts init all the same.
func (j *judge) image() (Status, string) {
	if status, detail := j.step(stepMount)(); status != Pass {
		return status, detail
	}
	return j.diagnosis(stepMount, diagImage, report.DiagnosisPass)
}

// diagnosis wants a diagnosis with this verdict and type in a step.
func (j *judge) diagnosis(step, verdict string, want report.DiagnosisType) (Status, string) {
	s := j.report.Step(step)
	if s == nil {
		return failed("stage %s is not in the report", step)
	}
	for _, d := range s.Diagnoses {
		if d.Verdict != verdict {
			continue
		}
		if d.Type != want {
			return failed("%s is %s: %s", verdict, d.Type, d.Message)
		}
		return passed("%s", d.Message)
	}
	return failed("stage %s has no diagnosis %s", step, verdict)
}

func (j *judge) facts() (Status, string) {
	if status, detail := j.step(stepFacts)(); status != Pass {
		return status, detail
	}
	var facts struct {
		Version int `json:"version"`
	}
	switch err := json.Unmarshal(j.report.Facts, &facts); {
	case j.report.Facts == nil:
		return failed("the report holds no facts")
	case err != nil:
		return failed("the facts can't be read: %v", err)
	case facts.Version == 0:
		return failed("the facts have no version")
	}
	return passed("facts version %d, %d bytes", facts.Version, len(j.report.Facts))
}

func (j *judge) finding(want ExpectedFinding) func() (Status, string) {
	return func() (Status, string) {
		var seen []string
		for _, f := range j.report.Findings {
			if string(f.ID) != want.ID {
				continue
			}
			missing := slices.DeleteFunc(slices.Clone(want.Evidence), func(text string) bool {
				return slices.ContainsFunc(f.Evidence, func(e checks.Evidence) bool { return strings.Contains(e.Raw, text) })
			})
			if slices.Contains(want.Status, f.Status) && len(missing) == 0 {
				return passed("%s: %s", f.Status, f.Title)
			}
			why := string(f.Status)
			if len(missing) > 0 {
				why += " without " + strings.Join(missing, ", ")
			}
			seen = append(seen, why)
		}
		if seen == nil {
			return failed("not reported; expected %s", want)
		}
		return failed("reported as %s; expected %s", strings.Join(seen, "; "), want)
	}
}

// trouble wants the findings that did not pass to be those expected, no more and
// no fewer.
func (j *judge) trouble() (Status, string) {
	want := map[string]bool{}
	for status, ids := range map[checks.Status][]checks.ID{
		checks.Fail: j.machine.Expect.Trouble.Fail, checks.Warn: j.machine.Expect.Trouble.Warn, checks.Unknown: j.machine.Expect.Trouble.Unknown,
	} {
		for _, id := range ids {
			want[string(status)+" "+string(id)] = true
		}
	}
	seen := map[string]bool{}
	for _, f := range j.report.Findings {
		if f.Status != checks.Pass && f.Status != checks.Skip {
			seen[string(f.Status)+" "+string(f.ID)] = true
		}
	}
	missing, extra := without(want, seen), without(seen, want)
	switch {
	case len(j.report.Findings) == 0:
		return failed("the report has no findings")
	case len(missing)+len(extra) > 0:
		return failed("expected and missing: %s; not expected: %s", orNone(missing), orNone(extra))
	}
	return passed("%d findings, of which as expected: %s", len(j.report.Findings), orNone(slices.Sorted(maps.Keys(seen))))
}

// without lists what is in a and not in b.
func without(a, b map[string]bool) []string {
	var only []string
	for _, k := range slices.Sorted(maps.Keys(a)) {
		if !b[k] {
			only = append(only, k)
		}
	}
	return only
}

// paths wants the predictions to be those expected. What a driver does depends on
// its release, so they say nothing about images of others.
func (j *judge) paths() (Status, string) {
	var seen []string
	for _, f := range j.report.Findings {
		if f.ID == checks.PathPrediction {
			_, path, _ := strings.Cut(f.Title, "driver ")
			seen = append(seen, path)
		}
	}
	slices.Sort(seen)
	want := slices.Sorted(slices.Values(j.machine.Expect.Paths))
	switch {
	case slices.Equal(seen, want):
		return passed("%s", strings.Join(seen, ", "))
	case len(seen) > 0 && release(seen[0]) != release(want[0]):
		return Skip, fmt.Sprintf("foretold for driver %s, the image is of another: %s", release(want[0]), strings.Join(seen, ", "))
	}
	return failed("predicted: %s; expected: %s", orNone(seen), strings.Join(want, ", "))
}

// release is that of a prediction, "535.261.03: no path".
func release(path string) string {
	release, _, _ := strings.Cut(path, ": ")
	return release
}

// bars wants the emulated GPUs to have framebuffer BARs of this size at the end,
// by what the guest last wrote into their Resizable BAR capability.
func (j *judge) bars() (Status, string) {
	var seen []string
	wrong := len(j.run.BARs) == 0
	for _, size := range j.run.BARs {
		seen = append(seen, size.String())
		wrong = wrong || size != j.machine.Expect.BAR
	}
	if wrong {
		return failed("%s; expected %s each", orNone(seen), j.machine.Expect.BAR)
	}
	return passed("%s, as the guest set them", strings.Join(seen, ", "))
}

// The image's own words.
const (
	diagImage = "IMAGE-INTACT"
	diagUVM   = "UVM-NOT-INSERTED"
	// findingLoad is about the insertion of nvidia.ko; it is skipped when the
	// module ran and found no GPU.
	findingLoad = "P2P-DRIVER-LOAD"
)

// noGPU is what nvidia.ko prints before its init ends in ENODEV
// (kernel-open/nvidia/nv.c, nv_module_init).
const noGPU = "NVRM: No NVIDIA GPU found"

// nvidia wants the init's word that nvidia.ko ran and answered ENODEV for want
// of a GPU, with the kernel's words as evidence, and the same words on the
// console, which the init does not write.
func (j *judge) nvidia() (Status, string) {
	if why := j.leftOut(stepDriver); why != "" {
		return Skip, why
	}
	if s := j.report.Step(stepDriver); s != nil && len(s.Errors) > 0 {
		return failed("stage %s: %s: %s", stepDriver, s.Errors[0].Symptom, s.Errors[0].Message)
	}
	if len(j.machine.GPUs()) > 0 {
		return j.finding(ExpectedFinding{ID: findingLoad, Status: []checks.Status{checks.Pass}})()
	}
	want := ExpectedFinding{ID: findingLoad, Status: []checks.Status{checks.Skip}, Evidence: []string{"errno 19", noGPU}}
	if status, detail := j.finding(want)(); status != Pass {
		return status, detail
	}
	if !slices.ContainsFunc(j.run.Console, func(l Line) bool { return strings.Contains(l.Text, noGPU) }) {
		return failed("the report says that nvidia.ko found no GPU, but the kernel never printed %q", noGPU)
	}
	return passed("nvidia.ko ran on this kernel and answered ENODEV, %q", noGPU)
}

// gpu is skipped, since emulated machines have none that can be started; where
// there are emulated ones, the init has to say so, with the driver's words.
func (j *judge) gpu() (Status, string) {
	if why := j.leftOut(stepDriver); why != "" {
		return Skip, why
	}
	if status, detail := j.nvidia(); status != Pass {
		return failed("whether there is a GPU is not known: %s", detail)
	}
	if len(j.machine.GPUs()) > 0 {
		want := ExpectedFinding{ID: string(checks.Emulated), Status: []checks.Status{checks.Skip}, Evidence: []string{"RmInitAdapter failed"}}
		if status, detail := j.finding(want)(); status != Pass {
			return status, detail
		}
		return Skip, "the driver bound the emulated GPUs and could not start them, as the report says"
	}
	return Skip, "no NVIDIA GPU on this machine: nothing was bound, no peer access was tried"
}

// leftOut says why a stage was skipped if a parameter of the image asks for it.
func (j *judge) leftOut(id string) string {
	s := j.report.Step(id)
	if s == nil || s.Status != report.StatusSkip || len(s.Logs) == 0 || !strings.HasPrefix(s.Logs[0].Message, "p2p.") {
		return ""
	}
	return "left out by " + s.Logs[0].Message
}

func (j *judge) uvm() (Status, string) {
	if why := j.leftOut(stepDriver); why != "" {
		return Skip, why
	}
	if len(j.machine.GPUs()) > 0 {
		return j.step(stepDriver)()
	}
	status, detail := j.diagnosis(stepDriver, diagUVM, report.DiagnosisUnknown)
	if status != Pass {
		return status, detail
	}
	return Skip, detail
}

func (j *judge) bandwidth() (Status, string) {
	s := j.report.Step(stepBandwidth)
	switch {
	case s == nil:
		return failed("stage %s is not in the report", stepBandwidth)
	case len(s.Measurements)+len(s.Series) > 0:
		return failed("measurements without a GPU: %d", len(s.Measurements)+len(s.Series))
	case s.Status != report.StatusSkip:
		return failed("stage %s ended as %q; without a GPU it has to be skipped", stepBandwidth, s.Status)
	}
	reason := "no GPU on this machine"
	if len(s.Logs) > 0 {
		reason = s.Logs[0].Message
	}
	return Skip, reason
}

func (j *judge) verdict() (Status, string) {
	v, want := j.report.Verdict, j.machine.Expect.Verdicts
	switch {
	case v == nil:
		return failed("the report has no verdict")
	case len(want) > 0 && !slices.Contains(want, v.Verdict):
		return failed("%s (%s); expected %s", v.Verdict, v.Reason, or(want))
	}
	if asIf := j.machine.Expect.AsIf; asIf != "" && !strings.Contains(v.Reason, checks.AsIf+string(asIf)+",") {
		return failed("%s (%s); expected it %s%s", v.Verdict, v.Reason, checks.AsIf, asIf)
	}
	return passed("%s: %s", v.Verdict, v.Reason)
}

// whole holds the report to the specification.
func (j *judge) whole(text []byte) (Status, string) {
	if j.unread != nil {
		return failed("%v", j.unread)
	}
	if errs := report.Check(text); len(errs) > 0 {
		return failed("%d problems, the first: %v", len(errs), errs[0])
	}
	return passed("complete: %d lines, ended as %s %s", len(j.run.Report), j.report.End.Status, j.report.End.Result)
}

func (j *judge) powerOff() (Status, string) {
	if e := j.run.Exit; e.Kind != PowerOff {
		return failed("%s: %s", e.Kind, e.Detail)
	}
	return passed("the guest switched itself off after %.1f s", j.run.Took.Seconds())
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

// or writes alternatives.
func or[T ~string](alternatives []T) string {
	var b strings.Builder
	for i, a := range alternatives {
		if i > 0 {
			b.WriteString(" or ")
		}
		b.WriteString(string(a))
	}
	return b.String()
}
