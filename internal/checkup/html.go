package checkup

import (
	"bytes"
	_ "embed"
	"html/template"
	"io"
	"strings"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/predict"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"words": func(v checks.Verdict) string { return strings.ToUpper(strings.ReplaceAll(string(v), "-", " ")) },
	"lines": func(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") },
	"pair":  func(p [2]string) string { return p[0] + " and " + p[1] },
}).Parse(pageText))

// section are the findings with one status.
type section struct {
	Status   checks.Status
	Findings []checks.Finding
}

// WriteHTML writes the answer as a page that needs nothing else: no script, no
// file, no network. Equal answers give equal bytes.
func (c *Checkup) WriteHTML(w io.Writer) error {
	var svg bytes.Buffer // which takes everything
	if c.gpus > 0 {
		_ = c.graph.WriteSVG(&svg)
	}
	data := struct {
		*Checkup
		Sections []section
		SVG      template.HTML
		Texts    []forecastText
	}{
		Checkup: c,
		SVG:     template.HTML(svg.String()), //nolint:gosec // the drawing escapes what it was given
	}
	for _, s := range []checks.Status{checks.Fail, checks.Warn, checks.Unknown, checks.Pass, checks.Skip} {
		sec := section{Status: s}
		for _, f := range c.Findings {
			if f.Status == s {
				sec.Findings = append(sec.Findings, f)
			}
		}
		if sec.Findings != nil {
			data.Sections = append(data.Sections, sec)
		}
	}
	for _, f := range c.Predictions {
		var b strings.Builder
		_ = predict.WriteText(&b, f.Pairs) // a Builder takes everything
		data.Texts = append(data.Texts, forecastText{f.Driver, b.String()})
	}
	var b bytes.Buffer
	if err := page.Execute(&b, data); err != nil {
		return err
	}
	_, err := w.Write(b.Bytes())
	return err
}

// forecastText is a [Forecast] in words.
type forecastText struct{ Driver, Text string }
