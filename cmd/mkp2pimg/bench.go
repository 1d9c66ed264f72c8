package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	checks "mkp2pimg/firmware-checks"
	"mkp2pimg/firmware-checks/facts"
	"mkp2pimg/internal/arms"
	gpubench "mkp2pimg/internal/bench"
	"mkp2pimg/internal/benchview"
	"mkp2pimg/internal/checkup"
	"mkp2pimg/internal/measure"
	"mkp2pimg/internal/report"
	"mkp2pimg/internal/rm"
)

func newBenchCommand() *cobra.Command {
	o := benchOptions{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "measure peer-to-peer between the GPUs of this machine, with the loaded driver",
		Long: `Measure what the GPUs of this machine do with each other's memory, with the driver
that is loaded, and verify all data where it arrived. It measures what the image
measures, in processes that are killed when they hang, and holds the figures against
what the links between the GPUs can carry. Other programs on the GPUs make figures
smaller. What it says of the machine besides is that of "mkp2pimg check".

It ends with the exit codes of "check": 0 if the machine is ready, 1 if peer-to-peer
works slower or with a risk, 2 if data does not arrive, 3 if that could not be told
or there are no two GPUs. Flags of p2pbw come after two dashes.

With --from it shows the result of an earlier run instead, with its codes: the
document that --json printed, or the report of the image (report.jsonl).`,
		Example: `  sudo mkp2pimg bench
  mkp2pimg bench --profile full --html bench.html --csv bench.csv
  mkp2pimg bench --pair 0000:01:00.0,0000:02:00.0 -- --sweep 4KiB,64KiB,1MiB
  mkp2pimg bench --from report.jsonl --html node7.html`,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
				return fmt.Errorf("unexpected argument %q", args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
	}
	f := c.Flags()
	f.StringVar(&o.profile, "profile", "quick", "quick, seconds per pair, or full: larger copies and the size sweep")
	f.StringArrayVar(&o.pairs, "pair", nil, "measure only this pair of addresses, with a comma between them; may be repeated")
	f.StringVar(&o.program, "p2pbw", "", "the measuring program (default the one that mkp2pimg carries, or beside it)")
	f.StringVar(&o.from, "from", "", "show the result in this file, - for standard input, instead of measuring")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	f.StringVar(&o.csv, "csv", "", "write all figures as CSV to this file, - for standard output")
	f.StringVar(&o.html, "html", "", "write a page of HTML to this file, - for standard output")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show what needs no attention, and all evidence, too")
	return c
}

type benchOptions struct {
	program, profile, from string
	pairs                  []string
	csv, html              string
	json, verbose          bool
}

// benchVersion is the version of the JSON form of [benchAnswer].
const benchVersion = 1

// benchAnswer is what was measured, and what it means.
type benchAnswer struct {
	Version    int              `json:"version"`
	Verdict    checks.Verdict   `json:"verdict"`
	Reason     string           `json:"reason"`
	Machine    checkup.Machine  `json:"machine"`
	Findings   []checks.Finding `json:"findings"`
	Result     *measure.Result  `json:"result,omitempty"`
	Comparison *arms.Comparison `json:"comparison,omitempty"` // of an image's run that compared
}

func (o benchOptions) run(c *cobra.Command, args []string) error {
	stdout := 0
	for _, there := range []bool{o.json, o.csv == stdio, o.html == stdio} {
		if there {
			stdout++
		}
	}
	if stdout > 1 {
		return usageError{errors.New("--json, --csv - and --html - all go to standard output: give a file to all but one")}
	}
	answer, err := o.answer(c, args)
	if err != nil {
		return err
	}
	if err := o.write(c.OutOrStdout(), answer, stdout > 0); err != nil {
		return err
	}
	if code := verdictCodes[answer.Verdict]; code != exitOK {
		return quietError{code}
	}
	return nil
}

// answer measures, or reads what was measured.
func (o benchOptions) answer(c *cobra.Command, args []string) (*benchAnswer, error) {
	if o.from != "" {
		if len(args) > 0 || len(o.pairs) > 0 || o.program != "" || c.Flags().Changed("profile") {
			return nil, usageError{errors.New("--from measures nothing: leave out what is for the measurement")}
		}
		return o.read(c.InOrStdin())
	}
	f, err := gathering{root: "/"}.facts(c.Context())
	if err != nil {
		return nil, err
	}
	program, remove, err := measuringProgram(o.program)
	if err != nil {
		return nil, err
	}
	args = append([]string{"--profile", o.profile}, args...)
	for _, p := range o.pairs {
		args = append(args, "--pair", p)
	}
	var survey *rm.Survey
	if f.NVIDIA != nil {
		survey = f.NVIDIA.Survey
	}
	r, err := gpubench.Program{Path: program, Args: args, Ceilings: gpubench.Ceilings(f, survey), Progress: c.ErrOrStderr()}.Run(c.Context())
	if err = errors.Join(err, remove()); err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == exitUsage {
			return nil, quietError{exitUsage} // it has said what is wrong
		}
		return nil, err
	}
	return judge(f, r), nil
}

// judge says what a result means on a machine.
func judge(f *facts.Facts, r *measure.Result) *benchAnswer {
	c := checkup.New(f, nil)
	a := &benchAnswer{Version: benchVersion, Machine: c.Machine, Result: r, Findings: append(c.Findings, gpubench.Findings(r)...)}
	a.Verdict, a.Reason = checks.Judge(a.Findings)
	return a
}

// run returns the answer as a run of the image, which has a rendering for terminals.
func (a *benchAnswer) run() *report.Run {
	r := &report.Run{Findings: a.Findings, Verdict: &report.Verdict{Verdict: a.Verdict, Reason: a.Reason}, Result: a.Result, Comparison: a.Comparison}
	start := &report.RunStart{DUT: report.DUT{ID: cmp.Or(a.Machine.Board, "unnamed")}}
	for _, m := range a.machine()[1:] {
		start.DUT.Software = append(start.DUT.Software, report.SoftwareInfo{Name: m[0], Version: m[1]})
	}
	r.Start = start
	return r
}

// machine describes the machine, its board first.
func (a *benchAnswer) machine() [][2]string {
	m := a.Machine
	all := [][2]string{{"board", m.Board}, {"BIOS", m.Firmware}, {"CPU", m.CPU}, {"linux", m.Kernel}, {"nvidia", m.Driver}}
	kept := all[:1]
	for _, line := range all[1:] {
		if line[1] != "" {
			kept = append(kept, line)
		}
	}
	return kept
}

func (o benchOptions) write(w io.Writer, a *benchAnswer, quiet bool) error {
	if o.csv != "" {
		var b bytes.Buffer
		r := a.Result
		if r == nil {
			r = &measure.Result{}
		}
		if err := benchview.WriteCSV(&b, r); err != nil {
			return err
		}
		if err := output(w, o.csv, b.Bytes()); err != nil {
			return err
		}
	}
	if o.html != "" {
		page := benchview.Report{Verdict: a.Verdict, Reason: a.Reason, Machine: a.machine(), Result: a.Result, Comparison: a.Comparison}
		for _, f := range a.Findings {
			if slices.Contains([]checks.Status{checks.Fail, checks.Warn, checks.Unknown}, f.Status) {
				page.Findings = append(page.Findings, f)
			}
		}
		var b bytes.Buffer
		if err := page.WriteHTML(&b); err != nil {
			return err
		}
		if err := output(w, o.html, b.Bytes()); err != nil {
			return err
		}
	}
	switch {
	case o.json:
		return printJSON(w, a)
	case quiet:
		return nil
	}
	opt := screenOptions(w)
	if o.verbose {
		opt.Passes, opt.Evidence = true, 1<<10
	}
	return report.Screen(w, a.run(), opt)
}

// output writes data to a file, or to w if that is what the name stands for.
func output(w io.Writer, name string, data []byte) error {
	if name == stdio {
		_, err := w.Write(data)
		return err
	}
	return writeFile(name, data)
}

// maxAnswer bounds what is read of an earlier run, in bytes: many times what 16
// GPUs give, in several arms.
const maxAnswer = 256 << 20

// read reads the answer of an earlier run.
func (o benchOptions) read(stdin io.Reader) (*benchAnswer, error) {
	if o.from != stdio {
		f, err := os.Open(o.from)
		if err != nil {
			return nil, err
		}
		defer f.Close() // only read
		stdin = f
	}
	text, err := readUpTo(stdin, maxAnswer)
	if errors.Is(err, errTooLong) {
		return nil, dataError{fmt.Errorf("%s: %w", o.from, err)}
	}
	if err != nil {
		return nil, err
	}
	a, err := parseAnswer(text)
	if err != nil {
		return nil, dataError{fmt.Errorf("%s: %w", o.from, err)}
	}
	return a, nil
}

var errTooLong = errors.New("too long for a result or a report")

// readUpTo reads all of r, of which limit bytes at most are sound.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = errTooLong
	}
	return text, err
}
