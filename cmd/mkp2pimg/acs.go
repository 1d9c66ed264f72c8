package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mkp2pimg/firmware-checks/remedy"
)

// acsState is where the registers are saved: a file system that is emptied when
// the machine starts, as the registers are.
const acsState = "/run/mkp2pimg/acs.json"

func newACS() *cobra.Command {
	o := acsOptions{}
	c := &cobra.Command{
		Use:   "acs --show | --clear | --restore",
		Short: "show or switch off ACS redirect on the ports between GPUs, until the next start",
		Long: `Show, switch off or put back the access controls (ACS) that take traffic between
GPUs up to the root complex instead of straight through a switch.

Only ports on the paths between GPUs are touched, and of those only the bits that
redirect: RR, CR and EC. DT, which address translation services need, and all other
bits stay. A port above a device that a virtual machine has is left alone, since the
redirect is what isolates it. Each register is read back; when one can't be written,
those written before are put back.

What is cleared lasts until the port is reset or the machine starts anew; "mkp2pimg
check" prints the kernel parameter that makes it last. IOMMU groups keep their shape.
The registers as they were are saved for --restore.`,
		Example: `  mkp2pimg acs --show
  sudo mkp2pimg acs --clear
  sudo mkp2pimg acs --clear --pairs 0000:03:00.0,0000:04:00.0 --yes
  sudo mkp2pimg acs --restore
  mkp2pimg acs --show --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.BoolVar(&o.show, "show", false, "show the ports between GPUs and what --clear would change")
	f.BoolVar(&o.clear, "clear", false, "switch the redirect off")
	f.BoolVar(&o.restore, "restore", false, "put back what --clear saved")
	f.StringArrayVar(&o.pairs, "pairs", nil, "clear the paths between these GPUs only: addresses with commas between them (repeatable)")
	f.StringVar(&o.state, "file", acsState, "file that the registers are saved in")
	f.BoolVar(&o.dryRun, "dry-run", false, "print what would be written and stop")
	f.BoolVarP(&o.yes, "yes", "y", false, "don't ask")
	f.BoolVar(&o.isolated, "isolated", false, "clear ports above devices of virtual machines too")
	f.BoolVar(&o.force, "force", false, "restore ports whose registers were changed since; pass over those that are gone")
	f.BoolVar(&o.json, "json", false, "print what was found and done as JSON")
	f.StringVar(&o.root, "root", "/", "the root folder of the machine")
	return c
}

type acsOptions struct {
	show, clear, restore         bool
	pairs                        []string
	root, state                  string
	dryRun, yes, isolated, force bool
	json                         bool
}

func (o acsOptions) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	asked := 0
	for _, flag := range []bool{o.show, o.clear, o.restore} {
		if flag {
			asked++
		}
	}
	switch {
	case asked != 1:
		return usageError{errors.New("give one of --show, --clear and --restore")}
	case o.restore:
		return o.putBack(stdin, stdout, stderr)
	}
	pairs, err := parsePairs(o.pairs)
	if err != nil {
		return usageError{err}
	}
	f, err := gathering{root: o.root, passive: true}.facts(ctx)
	if err != nil {
		return err
	}
	plan, err := remedy.NewPlan(f, remedy.Options{Pairs: pairs, Isolated: o.isolated})
	if err != nil {
		return usageError{fmt.Errorf("--pairs: %w", err)}
	}
	words := o.words(stdout, stderr)
	for _, p := range plan.Ports {
		fmt.Fprintln(words, p)
	}
	if len(plan.Ports) == 0 {
		fmt.Fprintf(words, "%d GPUs, no port between two of them\n", len(f.GPUs()))
	}
	if o.show {
		return o.answer(stdout, remedy.NewAnswer("show", false, plan))
	}
	return o.apply(plan, stdin, stdout, stderr)
}

// words is where to write what is for a person to read: with a document on
// standard output, what has to be read before answering a question goes beside it.
func (o acsOptions) words(stdout, stderr io.Writer) io.Writer {
	switch {
	case !o.json:
		return stdout
	case o.show || o.dryRun || o.yes:
		return io.Discard
	}
	return stderr
}

// answer writes the document, if it was asked for.
func (o acsOptions) answer(stdout io.Writer, a remedy.Answer) error {
	if !o.json {
		return nil
	}
	return printJSON(stdout, a)
}

func (o acsOptions) apply(plan remedy.Plan, stdin io.Reader, stdout, stderr io.Writer) error {
	words, answer := o.words(stdout, stderr), remedy.NewAnswer("clear", o.dryRun, plan)
	changes := plan.Changes()
	if o.dryRun {
		for _, p := range changes {
			answer.Changes = append(answer.Changes, p.Clearing())
		}
		return o.answer(stdout, answer)
	}
	if len(changes) == 0 {
		fmt.Fprintln(words, "nothing to clear")
		if os.Geteuid() != 0 && plan.Unread() {
			return &remedy.ForbiddenError{Err: fmt.Errorf("configuration space: %w", os.ErrPermission)}
		}
		return o.answer(stdout, answer)
	}
	if err := o.confirm(stdin, stderr, fmt.Sprintf("Write the ACS control of %d ports?", len(changes))); err != nil {
		return err
	}
	done, err := remedy.Clear(o.root, o.state, changes)
	if err != nil {
		return err
	}
	fmt.Fprintf(words, "%d ports written and read back; to undo: mkp2pimg acs --restore%s\n", len(done), o.fileFlag())
	answer.Changes = done
	return o.answer(stdout, answer)
}

// fileFlag is the flag that names the state file, unless that is the usual one.
func (o acsOptions) fileFlag() string {
	if o.state == acsState {
		return ""
	}
	return " --file " + o.state
}

func (o acsOptions) putBack(stdin io.Reader, stdout, stderr io.Writer) error {
	saved, err := remedy.Load(o.state)
	if err != nil {
		return err
	}
	words, answer := o.words(stdout, stderr), remedy.NewAnswer("restore", o.dryRun, remedy.Plan{})
	if o.dryRun {
		for _, p := range saved {
			answer.Changes = append(answer.Changes, p.Restoring())
		}
	} else {
		if err := o.confirm(stdin, stderr, fmt.Sprintf("Restore the ACS control of %d ports?", len(saved))); err != nil {
			return err
		}
		var done []remedy.Change
		if done, err = remedy.Restore(o.root, o.state, o.force); len(done) > 0 {
			answer.Changes = done
		}
	}
	for _, c := range answer.Changes {
		fmt.Fprintln(words, c)
	}
	switch {
	case is[*remedy.ChangedError](err):
		return fmt.Errorf("%w; nothing was written (--force restores the rest)", err)
	case err != nil:
		return err
	case !o.dryRun:
		fmt.Fprintf(words, "%d ports restored\n", len(answer.Changes))
	}
	return o.answer(stdout, answer)
}

// confirm asks on a terminal. Where nobody can be asked, --yes has to be given.
func (o acsOptions) confirm(stdin io.Reader, stderr io.Writer, question string) error {
	if o.yes {
		return nil
	}
	if f, ok := stdin.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return usageError{errors.New("standard input is no terminal to ask on: give --yes, or --dry-run to see what would be written")}
	}
	fmt.Fprintf(stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
		fmt.Fprintln(stderr, "nothing was written")
		return quietError{exitFailed}
	}
	return nil
}

// parsePairs reads lists of GPUs: of each all pairs are meant.
func parsePairs(lists []string) ([][2]string, error) {
	var pairs [][2]string
	for _, list := range lists {
		gpus := strings.Split(strings.ToLower(list), ",")
		if len(gpus) < 2 {
			return nil, fmt.Errorf("--pairs %s: want two addresses or more, such as 0000:03:00.0,0000:04:00.0", list)
		}
		for i, a := range gpus {
			for _, b := range gpus[i+1:] {
				pairs = append(pairs, [2]string{a, b})
			}
		}
	}
	return pairs, nil
}
