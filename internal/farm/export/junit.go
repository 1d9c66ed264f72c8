package export

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// The elements of JUnit XML that every reader of it knows. There is no
// specification; what is written fits the schema of Apache Ant's task
// (windyroad/JUnit-Schema), which wants all of these attributes and elements in
// this order, and that of Jenkins (jenkinsci/xunit-plugin, junit-10.xsd).
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Package    string          `xml:"package,attr"`
		ID         int             `xml:"id,attr"`
		Timestamp  string          `xml:"timestamp,attr"` // without a time zone, as the schema demands: UTC
		Hostname   string          `xml:"hostname,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"` // seconds
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
		Out        string          `xml:"system-out"`
		Err        string          `xml:"system-err"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitSkipped `xml:"skipped"`
		Error   *junitProblem `xml:"error"`
		Failure *junitProblem `xml:"failure"`
	}
	junitSkipped struct {
		Message string `xml:"message,attr"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the night as JUnit XML: a suite for the night, of each node a
// case for each expectation, with the name of the node as its class. A node that
// did not report is an error. The time of a case is that of the run.
func (n *Night) WriteJUnit(w io.Writer) error {
	s := junitSuite{Name: "mkp2pimg night " + n.Night, Package: "mkp2pimg", Hostname: "localhost", Timestamp: n.Night + "T00:00:00"}
	total := 0.
	for _, node := range n.Nodes {
		took := seconds(node.Run)
		total += took
		if r := node.Run; r != nil {
			add := func(name, value string) {
				if value != "" {
					s.Properties = append(s.Properties, junitProperty{printable(node.Node + "." + name), printable(value)})
				}
			}
			add("run", r.ID)
			add("image", r.Image)
			add("plan", r.Plan)
			if r.Summary != nil {
				add("driver", r.Summary.Driver)
				add("kernel", r.Summary.Kernel)
				add("mkp2pimg", r.Summary.Product)
			}
		}
		for _, c := range node.Cases {
			j := junitCase{Name: c.Name, Class: printable(node.Node), Time: fmt.Sprintf("%.3f", took)}
			problem := &junitProblem{Message: printable(c.Message), Type: printable(c.Kind), Text: printable(c.Text)}
			s.Tests++
			switch c.Status {
			case Skip:
				s.Skipped++
				j.Skipped = &junitSkipped{problem.Message}
			case Fail:
				s.Failures++
				j.Failure = problem
			case Error:
				s.Errors++
				j.Error = problem
			}
			s.Cases = append(s.Cases, j)
		}
	}
	s.Time = fmt.Sprintf("%.3f", total)
	var out strings.Builder
	if err := n.WriteText(&out); err != nil {
		return err
	}
	s.Out = printable(out.String())
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Suites: []junitSuite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// printable returns text without what XML 1.0 can't have (section 2.2, "Char").
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, r == 0xfffe, r == 0xffff, r < ' ' && r != '\t' && r != '\n':
			return ' '
		}
		return r
	}, s)
}
