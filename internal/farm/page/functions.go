package page

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/internal/arms"
	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/measure"
)

// functions are what templates call.
var functions = template.FuncMap{
	"asset": asset, "nodePath": nodePath, "nightPath": nightPath, "runPath": runPath,
	"figure": figure, "icon": icon, "lines": lines, "cls": statusClass, "stateOf": func(r farm.Run) state { return runState(&r) },
	"percent": func(v float64) string { return fmt.Sprintf("%.0f", v) },
	"bar":     func(v float64) string { return fmt.Sprintf("%.0f", min(max(v, 0), 100)) },
	"mebi":    mebi, "pair": func(p [2]string) string { return p[0] + " → " + p[1] },
	"total": totalName,
	"sub":   func(a, b int) int { return a - b }, "add": func(a, b int) int { return a + b },
	"part": func(a, of int) string { return fmt.Sprintf("%.1f", 100*float64(a)/float64(max(of, 1))) },
	"head": func(n int, all []farm.Change) []farm.Change { return all[:min(n, len(all))] },
}

// The addresses of pages. Names are escaped as one part of a path.
func nodePath(name string) string   { return "/nodes/" + url.PathEscape(name) }
func nightPath(night string) string { return "/nights/" + url.PathEscape(night) }
func runPath(id string) string      { return "/runs/" + url.PathEscape(id) }

// lines are the steps of a fix.
func lines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// statusClass is the style of a finding.
func statusClass(s checks.Status) string {
	switch s {
	case checks.Pass, checks.Warn, checks.Fail, checks.Unknown:
		return string(s)
	}
	return ""
}

// icons say in shape what a colour says.
var icons = map[state]string{
	stateReady:    `<path d="M2 8.5 6 12.5 14 3.5"/>`,
	stateDegraded: `<path d="M8 2 15 14H1Z"/>`,
	stateBlocked:  `<path d="M3 3l10 10M13 3 3 13"/>`,
	stateLost:     `<path d="M3 3l10 10M13 3 3 13"/><circle cx="8" cy="8" r="7"/>`,
	stateUnknown:  `<path d="M5 5.5a3 3 0 1 1 4.5 2.6Q8 9 8 10.5M8 13v1"/>`,
	stateRunning:  `<path d="M14.5 8A6.5 6.5 0 1 1 8 1.5"/>`,
	stateOffered:  `<circle cx="8" cy="8" r="6.5"/><path d="M8 4v4l3 2"/>`,
	stateNever:    `<circle cx="8" cy="8" r="6.5" stroke-dasharray="2.5 2.5"/>`,
	stateNoGPU:    `<circle cx="8" cy="8" r="6.5"/>`,
	"":            `<path d="M5 2v12M5 2 2 5.500M5 2l3 3.500M11 14V2M11 14l3-3.500M11 14l-3-3.500"/>`,

	stageDone:    `<path d="M2 8.5 6 12.5 14 3.5"/>`,
	stageFailed:  `<path d="M3 3l10 10M13 3 3 13"/>`,
	stageSkipped: `<path d="M2 8h12"/>`,
}

func icon(s state) template.HTML {
	return template.HTML(`<svg viewBox="0 0 16 16" aria-hidden="true">` + icons[s] + `</svg>`) //nolint:gosec // ours
}

// mebi writes a number of bytes.
func mebi(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// took writes how long something lasted.
func took(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// totalName is what a row of the table of arms is about.
func totalName(t arms.Total) string {
	text := string(t.Direction)
	if t.Quantity != measure.Bandwidth {
		text = strings.ReplaceAll(string(t.Quantity), "-", " ")
	}
	text += ", " + string(t.Method)
	if t.Load != measure.Alone {
		text += ", " + string(t.Load)
	}
	return text + ", " + t.Unit
}

// moment is a time as pages write it.
type moment struct{ Machine, Exact, Ago string }

// When writes a time in the lab's zone, and how long ago it was.
func (f frame) When(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	t = t.In(f.Zone)
	m := moment{Machine: t.Format(time.RFC3339), Exact: t.Format("2006-01-02 15:04")}
	switch ago := f.Now.Sub(t); {
	case ago < time.Minute:
		m.Ago = "just now"
	case ago < 2*time.Hour:
		m.Ago = fmt.Sprintf("%d min ago", int(ago.Minutes()))
	case ago < 48*time.Hour:
		m.Ago = fmt.Sprintf("%d h ago", int(ago.Hours()))
	default:
		m.Ago = fmt.Sprintf("%d days ago", int(ago.Hours()/24))
	}
	return m
}
