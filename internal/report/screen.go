package report

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/benchview"
)

// Keys of the metadata of measurements of an ordered pair of GPUs.
const (
	MetaInitiator = "initiator" // BDF of the GPU whose engine copies
	MetaPeer      = "peer"      // BDF of the GPU that owns the memory
	MetaDirection = "direction" // "write" or "read", seen from the initiator
	MetaMethod    = "method"    // "ce": copy engine; "sm": kernel; "staged": through host memory
)

// ScreenOptions adjust [Screen].
type ScreenOptions struct {
	Width int  // columns; 80 when zero
	Color bool // ANSI colours
	// Evidence is how many pieces of evidence are shown per finding, 4 when zero;
	// the report has all of them.
	Evidence int
	// Passes shows findings that need no attention in full too.
	Passes bool
	Notes  []string // lines for the end: where the report went
}

// Screen writes what a person needs to know of a run: the verdict in one line,
// what broke, the findings that matter (fail, warn and unknown, in this order)
// with evidence and fix, the measured bandwidths, and one line for the rest. The
// text is plain ASCII as far as the findings are, for consoles with few glyphs.
func Screen(w io.Writer, run *Run, opt ScreenOptions) error {
	opt.Width = cmp.Or(opt.Width, 80)
	opt.Evidence = cmp.Or(opt.Evidence, 4)
	s := &screen{opt: opt}
	s.verdict(run)
	s.broken(run)
	statuses := []checks.Status{checks.Fail, checks.Warn, checks.Unknown}
	if opt.Passes {
		statuses = append(statuses, calm...)
	}
	for _, status := range statuses {
		for _, f := range run.Findings {
			if f.Status == status {
				s.finding(f)
			}
		}
	}
	if err := s.measured(run); err != nil {
		return err
	}
	s.rest(run)
	_, err := w.Write(s.buf.Bytes())
	return err
}

// calm are the statuses of findings that need no attention.
var calm = []checks.Status{checks.Pass, checks.Skip}

type screen struct {
	opt ScreenOptions
	buf bytes.Buffer
}

// styles are the ANSI attributes of statuses and verdicts.
var styles = map[string]string{
	string(checks.Fail): "1;31", string(checks.VerdictBlocked): "1;31", "broke": "1;31",
	string(checks.Warn): "1;33", string(checks.VerdictDegraded): "1;33",
	string(checks.Unknown): "1;35", string(checks.VerdictUnknown): "1;35", string(checks.VerdictNoGPU): "1;36",
	string(checks.VerdictReady): "1;32",
}

// paint colours text by the style of a key.
func (s *screen) paint(key, text string) string {
	if !s.opt.Color || styles[key] == "" {
		return text
	}
	return "\x1b[" + styles[key] + "m" + text + "\x1b[0m"
}

// para writes text after a label, wrapped to the width and indented to the label.
// The label's style is that of key.
func (s *screen) para(key, label, text string) {
	indent := utf8.RuneCountInString(label)
	for i, line := range wrap(text, s.opt.Width-indent) {
		if i == 0 {
			s.buf.WriteString(s.paint(key, label))
		} else {
			s.buf.WriteString(strings.Repeat(" ", indent))
		}
		s.buf.WriteString(line)
		s.buf.WriteByte('\n')
	}
}

func (s *screen) verdict(run *Run) {
	v := Verdict{checks.VerdictUnknown, "the run ended before it reached a verdict"}
	if run.Verdict != nil {
		v = *run.Verdict
	}
	words := strings.ToUpper(strings.ReplaceAll(string(v.Verdict), "-", " "))
	s.para(string(v.Verdict), words+": ", summary(run, v))
	if run.Start != nil && run.Start.DUT.ID != "" {
		s.para("", "node ", machine(run.Start))
	}
}

// summary is the reason of a verdict in one line: the findings are told in full
// below it, so the first one that decided stands for the others. A stage that
// broke is the reason itself.
func summary(run *Run, v Verdict) string {
	if v.Verdict == checks.VerdictUnknown && slices.ContainsFunc(run.Steps, func(s *StepResult) bool { return s.Status == StatusError }) {
		return v.Reason
	}
	status, ok := map[checks.Verdict]checks.Status{
		checks.VerdictBlocked: checks.Fail, checks.VerdictDegraded: checks.Warn, checks.VerdictUnknown: checks.Unknown,
	}[v.Verdict]
	var titles []string
	for _, f := range run.Findings {
		if ok && f.Status == status {
			titles = append(titles, f.Title)
		}
	}
	switch len(titles) {
	case 0:
		return v.Reason
	case 1:
		return titles[0]
	}
	return fmt.Sprintf("%s (and %d more)", titles[0], len(titles)-1)
}

func machine(start *RunStart) string {
	parts := []string{start.DUT.ID}
	if start.DUT.Name != "" && start.DUT.Name != start.DUT.ID {
		parts = append(parts, start.DUT.Name)
	}
	for _, sw := range start.DUT.Software {
		parts = append(parts, strings.TrimSpace(sw.Name+" "+sw.Version))
	}
	return strings.Join(parts, ", ")
}

// broken tells which stages did not do their work, and why.
func (s *screen) broken(run *Run) {
	first := true
	for _, step := range run.Steps {
		if step.Status != StatusError {
			continue
		}
		if first {
			s.buf.WriteByte('\n')
			first = false
		}
		s.para("broke", "BROKE    ", fmt.Sprintf("stage %s: %s", step.ID, step.Reason()))
	}
}

func (s *screen) finding(f checks.Finding) {
	s.buf.WriteByte('\n')
	s.para(string(f.Status), fmt.Sprintf("%-9s", strings.ToUpper(string(f.Status))), fmt.Sprintf("%s [%s]", f.Title, f.ID))
	for i, e := range f.Evidence {
		label := "         "
		if i == 0 {
			label = "  seen   "
		}
		if i == s.opt.Evidence && len(f.Evidence) > i+1 {
			s.para("", label, fmt.Sprintf("and %d more, in the report", len(f.Evidence)-i))
			break
		}
		s.para("", label, evidence(e))
	}
	if f.Meaning != "" {
		s.para("", "  so     ", f.Meaning)
	}
	label, several := "  fix    ", strings.Contains(strings.TrimSpace(f.Fix), "\n")
	for line := range strings.Lines(f.Fix) {
		if several {
			label += "- "
		}
		s.para("", label, strings.TrimSpace(line))
		label = "         "
	}
}

func evidence(e checks.Evidence) string {
	text := e.What
	if e.Raw != "" {
		text += ": " + e.Raw
	}
	if e.Where != "" {
		text += " (" + e.Where + ")"
	}
	return text
}

// measured writes the figures of the run, and arms side by side if it compared.
func (s *screen) measured(run *Run) error {
	if run.Result != nil {
		s.buf.WriteByte('\n')
		opt := benchview.Options{Width: s.opt.Width, Color: s.opt.Color}
		if err := benchview.WriteResult(&s.buf, run.Result, opt); err != nil {
			return err
		}
	}
	if run.Comparison != nil {
		s.buf.WriteByte('\n')
		return benchview.WriteComparison(&s.buf, *run.Comparison)
	}
	return nil
}

// rest sums up what needs no attention, and where the report went.
func (s *screen) rest(run *Run) {
	var lines [][2]string
	for _, status := range calm {
		if s.opt.Passes {
			break // shown already
		}
		var ids []string
		for _, f := range run.Findings {
			if f.Status == status && !slices.Contains(ids, string(f.ID)) {
				ids = append(ids, string(f.ID))
			}
		}
		if ids != nil {
			lines = append(lines, [2]string{string(status), strings.Join(ids, ", ")})
		}
	}
	for _, step := range run.Steps {
		if step.Status == StatusSkip {
			lines = append(lines, [2]string{"not run", fmt.Sprintf("stage %s: %s", step.ID, step.Reason())})
		}
	}
	for _, n := range s.opt.Notes {
		lines = append(lines, [2]string{"report", n})
	}
	for i, l := range lines {
		if i == 0 {
			s.buf.WriteByte('\n')
		}
		s.para("", fmt.Sprintf("%-9s", l[0]), l[1])
	}
}

// wrap breaks text into lines of at most width columns. It breaks at spaces
// only: a path or command longer than a line stays whole, so that it can be
// copied. Newlines in text are kept; there is always one line at least.
func wrap(text string, width int) []string {
	var lines []string
	for para := range strings.SplitSeq(text, "\n") {
		var line string
		for word := range strings.FieldsSeq(para) {
			switch {
			case line == "":
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= width:
				line += " " + word
			default:
				lines = append(lines, line)
				line = word
			}
		}
		lines = append(lines, line)
	}
	return lines
}
