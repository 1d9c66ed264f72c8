package judge

import (
	"strings"
	"unicode"
	"unicode/utf8"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/report"
)

// Limits on what is taken from a report, which may come from anyone.
const (
	maxText     = 2000 // characters of a text
	maxFindings = 500
	maxGPUs     = 64 // a server has 16 at most; more are no machine
)

// Summarise takes from a report, which may be a part of one, what can be compared
// between nights. It returns nil for a report that says nothing yet. Texts are
// free of control characters, figures finite.
func Summarise(r *report.Run) *farm.Summary {
	if r == nil || r.Start == nil && r.Facts == nil && r.Verdict == nil && r.Result == nil && len(r.Findings) == 0 {
		return nil
	}
	s := &farm.Summary{Settings: settings(r), Pairs: pairs(r)}
	if r.Start != nil {
		s.Product = clean(r.Start.Version)
	}
	s.Driver, s.Kernel = s.Settings[DriverRelease], s.Settings[KernelRelease]
	if r.Verdict != nil {
		s.Verdict, s.Reason = checks.Verdict(clean(string(r.Verdict.Verdict))), clean(r.Verdict.Reason)
	}
	for _, f := range r.Findings {
		if f.Status == checks.Skip || len(s.Findings) == maxFindings {
			continue
		}
		s.Findings = append(s.Findings, farm.Finding{
			ID: checks.ID(clean(string(f.ID))), Status: checks.Status(clean(string(f.Status))), Title: clean(f.Title), Fix: cleanLines(f.Fix), Devices: cleanAll(f.Devices),
		})
	}
	s.Worst = worst(s.Pairs)
	return s
}

// clean returns a text in one line of what can be printed, which any database and
// terminal takes, and not too much of it.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError || unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	if n := 0; len(s) > maxText {
		for i := range s {
			if n++; n > maxText {
				return s[:i] + "…"
			}
		}
	}
	return s
}

// cleanLines is clean for a text of several lines.
func cleanLines(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		out = append(out, clean(line))
	}
	return strings.TrimSpace(strings.Join(out[:min(len(out), 50)], "\n"))
}

func cleanAll(texts []string) []string {
	var out []string
	for _, s := range texts[:min(len(texts), maxFindings)] {
		out = append(out, clean(s))
	}
	return out
}
