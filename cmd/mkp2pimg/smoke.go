package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mkp2pimg/internal/pipeline"
	"mkp2pimg/qemu"
)

// smokeFlags are the flags of the command smoke.
type smokeFlags struct {
	machines  []string
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

QEMU is the host's, or else comes from the Debian packages in the image's lock
file. Machines: ` + strings.Join(qemu.Names(), ", ") + `.`,
		Example: `  mkp2pimg smoke out
  mkp2pimg smoke out --machine iommu,iommu-pt --keep logs
  mkp2pimg smoke out --machine all --json
  mkp2pimg smoke out --append p2p.driver=stock
  mkp2pimg smoke out --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return s.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringSliceVarP(&s.machines, "machine", "m", []string{"pair"}, `machines to boot, or "all"`)
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
	if s.asJSON && s.asTimes {
		return usageError{errors.New("--json and --times: want one of them")}
	}
	machines, err := s.load()
	if err != nil {
		return usageError{err}
	}
	accel, err := qemu.ParseAccel(s.accel)
	if err != nil {
		return usageError{err}
	}
	image, err := qemu.OpenImage(dir)
	if err != nil {
		return err
	}
	request := pipeline.Options{Cache: s.cache, Offline: s.offline}
	follow(&request, c.ErrOrStderr())
	emulator, err := pipeline.Emulator(c.Context(), dir, request, s.inSandbox)
	if err != nil {
		return err
	}
	o := qemu.Options{Image: image, Emulator: emulator, Accel: accel, Keep: s.keep}
	if s.verbose {
		o.Follow = c.ErrOrStderr()
	}
	if s.dryRun {
		return printArgv(c, o, machines)
	}
	return s.boot(c, o, machines)
}

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
		machines = append(machines, m)
	}
	return machines, nil
}

func printArgv(c *cobra.Command, o qemu.Options, machines []*qemu.Machine) error {
	for _, m := range machines {
		o.Machine = m
		argv, err := o.Argv(c.Context())
		if err != nil {
			return err
		}
		fmt.Fprintln(c.OutOrStdout(), qemu.Quote(argv))
	}
	return nil
}

func (s *smokeFlags) boot(c *cobra.Command, o qemu.Options, machines []*qemu.Machine) error {
	var results []*qemu.Result
	failed := false
	for _, m := range machines {
		o.Machine = m
		for range s.repeat {
			r, err := qemu.Smoke(c.Context(), o)
			if err != nil {
				return err
			}
			results = append(results, r)
			failed = failed || !r.OK()
			if err := s.print(c.OutOrStdout(), r); err != nil {
				return err
			}
		}
	}
	if s.asTimes {
		if err := qemu.WriteTimes(c.OutOrStdout(), results); err != nil {
			return err
		}
	}
	if failed {
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
