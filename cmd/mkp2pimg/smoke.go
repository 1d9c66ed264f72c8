package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mkp2pimg/internal/pipeline"
	"mkp2pimg/qemu"
)

// knobHelp is the value of --set that asks for a list of knobs.
const knobHelp = "help"

// smokeFlags are the flags of the command smoke.
type smokeFlags struct {
	machines  []string
	settings  []string
	knobs     bool
	jobs      int
	deadline  time.Duration
	words     []string
	accel     string
	keep      string
	repeat    int
	dryRun    bool
	asJSON    bool
	asTimes   bool
	verbose   bool
	cache     string
	offline   bool
	inSandbox bool
}

func newSmoke() *cobra.Command {
	var s smokeFlags
	c := &cobra.Command{
		Use:   "smoke DIR",
		Short: "boot an image under QEMU and judge its report",
		Long: `Boot the image in DIR under QEMU on a described machine, read its report stream
and judge it: what the init did, what it found, that the driver ran, that the
report is whole and the power off clean. There is no GPU in QEMU: what needs one
is skipped, with the reason, and never counts as passed.

Some machines have emulated GPUs, which look like boards to firmware, kernel and
checks, and knobs, which --set turns: --machine NAME --set help lists them. With
--knobs each value of each knob is booted, and the report has to hold exactly the
findings, predictions and verdict that the machine's description expects.

QEMU is the host's, or else comes from the Debian packages in the image's lock
file. Emulated GPUs need QEMU 10.1; where the host's is older it comes from the
packages of Debian's trixie-backports, and where these can't be had, machines with
emulated GPUs are skipped. Machines: ` + strings.Join(qemu.Names(), ", ") + `.`,
		Example: `  mkp2pimg smoke out
  mkp2pimg smoke out --machine iommu,iommu-pt --keep logs
  mkp2pimg smoke out --machine all --json
  mkp2pimg smoke out --append p2p.driver=stock
  mkp2pimg smoke out --machine epyc-4x4090 --set acs=on
  mkp2pimg smoke out --machine epyc-4x4090 --knobs --jobs 0 --times
  mkp2pimg smoke out --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringSliceVarP(&s.machines, "machine", "m", []string{"pair"}, `machines to boot, or "all"`)
	f.StringArrayVar(&s.settings, "set", nil, `turn a knob of the machine, knob=value (repeatable); "help" lists the knobs`)
	f.BoolVar(&s.knobs, "knobs", false, "boot the machine once more for each value of each knob")
	f.IntVar(&s.jobs, "jobs", 1, "boots at the same time; 0: as many as processors and memory allow")
	f.DurationVar(&s.deadline, "deadline", qemu.DefaultDeadline, "time that a boot may take")
	f.StringArrayVar(&s.words, "append", nil, "word to add to the kernel's command line (repeatable)")
	f.StringVar(&s.accel, "accel", string(qemu.TCG), "accelerator: tcg, kvm, or auto (kvm if a probe proves that it works)")
	f.StringVar(&s.keep, "keep", "", "directory for the console, report and emulator logs of each run")
	f.IntVar(&s.repeat, "repeat", 1, "boots of each machine")
	f.BoolVar(&s.dryRun, "dry-run", false, "print the emulator's command lines and stop")
	f.BoolVar(&s.asJSON, "json", false, "print the results as JSON, one object for each boot")
	f.BoolVar(&s.asTimes, "times", false, "print median times as a table; checks only of boots that failed")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "follow the guest's console on stderr")
	f.StringVar(&s.cache, "cache", defaultCache(), "cache directory, for QEMU from Debian packages")
	f.BoolVar(&s.offline, "offline", false, "use only what is in the cache")
	f.BoolVar(&s.inSandbox, "sandbox", false, "use QEMU from Debian packages even if the host has one")
	return c
}

func (s *smokeFlags) run(c *cobra.Command, dir string) error {
	if s.repeat < 1 {
		return usageError{fmt.Errorf("--repeat %d: want at least 1", s.repeat)}
	}
	if s.deadline <= 0 {
		return usageError{fmt.Errorf("--deadline %v: want more than 0", s.deadline)}
	}
	if s.jobs < 0 {
		return usageError{fmt.Errorf("--jobs %d: want at least 0", s.jobs)}
	}
	if s.asJSON && s.asTimes {
		return usageError{errors.New("--json and --times: want one of them")}
	}
	if s.knobs && len(s.settings) > 0 {
		return usageError{errors.New("--knobs and --set: want one of them")}
	}
	machines, err := s.load()
	if err != nil {
		return usageError{err}
	}
	if slices.Contains(s.settings, knobHelp) {
		return printKnobs(c.OutOrStdout(), machines)
	}
	accel, err := qemu.ParseAccel(s.accel)
	if err != nil {
		return usageError{err}
	}
	image, err := qemu.OpenImage(dir)
	if err != nil {
		return err
	}
	o := qemu.Options{Image: image, Accel: accel, Keep: s.keep, Deadline: s.deadline}
	if s.verbose {
		o.Follow = c.ErrOrStderr()
	}
	boots, err := s.boots(c, dir, o, machines)
	if err != nil {
		return err
	}
	if s.dryRun {
		return printArgv(c, boots)
	}
	return s.boot(c, boots)
}

// load returns the machines, each as often as knobs make another of it.
func (s *smokeFlags) load() ([]*qemu.Machine, error) {
	names := s.machines
	if len(names) == 1 && names[0] == "all" {
		names = qemu.Names()
	}
	var machines []*qemu.Machine
	for _, name := range names {
		m, err := qemu.Lookup(name)
		if err != nil {
			return nil, err
		}
		if err := m.Append(s.words...); err != nil {
			return nil, fmt.Errorf("--append: %w", err)
		}
		switch {
		case s.knobs:
			machines = append(machines, m.Variants()...)
			continue
		case !slices.Contains(s.settings, knobHelp):
			for _, setting := range s.settings {
				if err := m.Set(setting); err != nil {
					return nil, fmt.Errorf("--set: %w", err)
				}
			}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

func printKnobs(w io.Writer, machines []*qemu.Machine) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range machines {
		fmt.Fprintf(tw, "%s: %s\n", m.Name, m.Summary)
		for _, k := range m.Knobs {
			fmt.Fprintf(tw, "  %s\t%s\n", k, k.Summary)
		}
		if len(m.Knobs) == 0 {
			fmt.Fprintln(tw, "  no knobs")
		}
	}
	return tw.Flush()
}

// boots gives each machine an emulator. One whose emulator can't be had is left
// out, unless that leaves none.
func (s *smokeFlags) boots(c *cobra.Command, dir string, o qemu.Options, machines []*qemu.Machine) ([]qemu.Options, error) {
	request := pipeline.Options{Cache: s.cache, Offline: s.offline}
	follow(&request, c.ErrOrStderr())
	plain := sync.OnceValues(func() (*qemu.Emulator, error) {
		return pipeline.Emulator(c.Context(), dir, request, s.inSandbox)
	})
	withGPUs := sync.OnceValues(func() (*qemu.Emulator, error) {
		return pipeline.NewEmulator(c.Context(), request, s.inSandbox)
	})
	var boots []qemu.Options
	var skipped error
	for _, m := range machines {
		emulator := plain
		if len(m.GPUs()) > 0 {
			emulator = withGPUs
		}
		e, err := emulator()
		if errors.Is(err, qemu.ErrNoVFIOUser) {
			fmt.Fprintf(c.ErrOrStderr(), "machine %s skipped: %v\n", m.Title(), err)
			skipped = err
			continue
		}
		if err != nil {
			return nil, err
		}
		o.Machine, o.Emulator = m, e
		boots = append(boots, o)
	}
	if len(boots) == 0 {
		return nil, skipped
	}
	return boots, nil
}

func printArgv(c *cobra.Command, boots []qemu.Options) error {
	for _, o := range boots {
		argv, err := o.Argv(c.Context())
		if err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s%s\n", o.Surroundings(), qemu.Quote(argv))
	}
	return nil
}

// boot boots all and prints the results, in order, as they come.
func (s *smokeFlags) boot(c *cobra.Command, boots []qemu.Options) error {
	var all []qemu.Options
	for _, o := range boots {
		all = append(all, slices.Repeat([]qemu.Options{o}, s.repeat)...)
	}
	results := make([]*qemu.Result, len(all))
	var mu sync.Mutex
	printed := 0
	g, ctx := errgroup.WithContext(c.Context())
	g.SetLimit(cmp.Or(s.jobs, qemu.Jobs(boots)))
	for i, o := range all {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r, err := qemu.Smoke(ctx, o)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for results[i] = r; printed < len(all) && results[printed] != nil; printed++ {
				if err := s.print(c.OutOrStdout(), results[printed]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if s.asTimes {
		if err := qemu.WriteTimes(c.OutOrStdout(), results); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(results, func(r *qemu.Result) bool { return !r.OK() }) {
		return quietError{exitFailed}
	}
	return nil
}

func (s *smokeFlags) print(w io.Writer, r *qemu.Result) error {
	switch {
	case s.asJSON:
		return json.NewEncoder(w).Encode(r)
	case s.asTimes && r.OK():
		return nil
	}
	return r.WriteText(w)
}
