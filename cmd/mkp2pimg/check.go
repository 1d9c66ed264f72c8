package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/firmware-checks/predict"
	"mkp2pimg/firmware-checks/topology"
	"mkp2pimg/internal/checkup"
	"mkp2pimg/internal/report"
	"mkp2pimg/kmod/catalog"
)

func newCheck() *cobra.Command {
	o := checkOptions{}
	c := &cobra.Command{
		Use:   "check",
		Short: "judge whether peer-to-peer will work between the GPUs of a machine",
		Long: `Judge whether PCIe peer-to-peer will work between the GPUs of this machine, or of
any machine whose facts were saved with "mkp2pimg facts": what was seen, what follows,
and what to change. It changes nothing, and measures nothing: boot an image for that.

It ends with the exit code 0 if the machine is ready, 1 if peer-to-peer will work
slower or with a risk, 2 if something blocks it, and 3 if that could not be told or
there are no two GPUs. Other codes are errors: see "mkp2pimg exit-codes".

The path that the driver will choose is predicted for the loaded driver, or else for
the installed one or that of images, as it is and with the P2P edits. --driver
predicts for another release with the edits, --stock without.`,
		Example: `  sudo mkp2pimg check
  mkp2pimg check --facts facts.json --html=check.html
  ssh node7 mkp2pimg facts | mkp2pimg check --facts -
  mkp2pimg check --explain P2P-ACS-REDIRECT`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	f := c.Flags()
	f.StringVar(&o.document, "facts", "", "judge this facts document, - for standard input, instead of this machine")
	o.addFlags(c)
	f.StringVar(&o.driver, "driver", "", "predict for this NVIDIA driver release, or for the newest of a branch")
	f.BoolVar(&o.stock, "stock", false, "predict for the driver as NVIDIA published it, without edits and options")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show what needs no attention, and all evidence, too")
	f.BoolVar(&o.json, "json", false, "print the answer as JSON")
	f.StringVar(&o.html, "html", "", "print the answer as a page of HTML, or with =FILE write that as well")
	f.Lookup("html").NoOptDefVal = stdio
	f.StringVar(&o.explain, "explain", "", "explain the finding with this id and stop")
	return c
}

// stdio is the name of standard input and output where a file's is asked for.
const stdio = "-"

type checkOptions struct {
	gathering
	document             string
	driver, explain      string
	html                 string
	stock, verbose, json bool
}

func (o checkOptions) run(c *cobra.Command) error {
	if o.explain != "" {
		return explain(c.OutOrStdout(), o.explain)
	}
	if o.document != "" && (c.Flags().Changed("root") || o.log != "") {
		return usageError{errors.New("--facts can't go with --root or --kernel-log: it is the whole answer of a machine")}
	}
	if o.json && o.html == stdio {
		return usageError{errors.New("--json and --html both go to standard output: give --html=FILE")}
	}
	f, err := o.read(c)
	if err != nil {
		return err
	}
	drivers, err := o.drivers(f)
	if err != nil {
		return err
	}
	answer := checkup.New(f, drivers)
	if err := o.write(c.OutOrStdout(), answer); err != nil {
		return err
	}
	if code := verdictCodes[answer.Verdict]; code != exitOK {
		return quietError{code}
	}
	return nil
}

// verdictCodes are the exit codes of verdicts.
var verdictCodes = map[checks.Verdict]int{
	checks.VerdictReady:    exitOK,
	checks.VerdictDegraded: exitFailed,
	checks.VerdictBlocked:  exitBlocked,
	checks.VerdictUnknown:  exitUnknown,
	checks.VerdictNoGPU:    exitUnknown,
}

// read gathers the facts, or loads them.
func (o checkOptions) read(c *cobra.Command) (*facts.Facts, error) {
	if o.document == "" {
		return o.facts(c.Context())
	}
	load := func() (*facts.Facts, error) { return facts.LoadFile(o.document) }
	if o.document == stdio {
		load = func() (*facts.Facts, error) { return facts.Load(c.InOrStdin()) }
	}
	f, err := load()
	if err != nil && !is[*os.PathError](err) {
		return nil, dataError{err}
	}
	return f, err
}

// drivers are those to predict for.
func (o checkOptions) drivers(f *facts.Facts) ([]checkup.Driver, error) {
	is, whence, _ := checks.DriverOf(f)
	as := []checkup.Driver{{Name: whence.What + " " + whence.Raw, Driver: is}}
	release := is.Release
	if o.driver != "" {
		r, err := catalog.Load().Lookup(o.driver)
		if err != nil {
			return nil, usageError{err}
		}
		release, as = r.Version, nil
	}
	if o.stock {
		return []checkup.Driver{{Name: release + " as published, without options", Driver: predict.Driver{Release: release}}}, nil
	}
	switch edited, err := checks.WithEdits(release); {
	case err == nil:
		as = append(as, checkup.Driver{Name: release + " with the P2P edits and the options of an image", Driver: edited})
	case o.driver != "":
		return nil, usageError{err}
	}
	return as, nil // a loaded release may be older than the edits
}

func (o checkOptions) write(w io.Writer, answer *checkup.Checkup) error {
	if o.html != "" && o.html != stdio {
		var page bytes.Buffer
		if err := answer.WriteHTML(&page); err != nil {
			return err
		}
		if err := writeFile(o.html, page.Bytes()); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return printJSON(w, answer)
	case o.html == stdio:
		return answer.WriteHTML(w)
	}
	opt := checkup.TextOptions{Screen: screenOptions(w), Style: topology.ASCII}
	if utf8Locale() {
		opt.Style = topology.UTF8
	}
	if o.verbose {
		opt.Screen.Passes, opt.Screen.Evidence = true, 1<<10
	}
	return answer.WriteText(w, opt)
}

// screenOptions fits a rendering to what w is: colours and all columns of a
// terminal, up to a width that is good to read.
func screenOptions(w io.Writer) report.ScreenOptions {
	const widest = 120
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return report.ScreenOptions{}
	}
	opt := report.ScreenOptions{Color: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(file.Fd())); err == nil {
		opt.Width = min(width, widest)
	}
	return opt
}

// utf8Locale reports whether the locale has more characters than ASCII.
func utf8Locale() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToUpper(os.Getenv(name)); v != "" {
			return strings.Contains(v, "UTF-8") || strings.Contains(v, "UTF8")
		}
	}
	return false
}

// explain writes what a kind of finding is about.
func explain(w io.Writer, id string) error {
	d, ok := checks.Explain(checks.ID(strings.ToUpper(id)))
	if !ok {
		var ids []string
		for _, d := range checks.Docs() {
			ids = append(ids, string(d.ID))
		}
		return usageError{fmt.Errorf("no finding is named %q: choose one of %s", id, strings.Join(ids, ", "))}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n%s\n\nWhat to do: %s\n\n", d.ID, d.Question, d.Meaning, d.Fix)
	for _, o := range d.Outcomes {
		fmt.Fprintf(&b, "  %-8s %s\n", o.Status, o.When)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
