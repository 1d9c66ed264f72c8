package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"mkp2pimg/internal/farm/archive"
	"mkp2pimg/internal/farm/export"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/store"
)

// exportOptions are the flags of farm export.
type exportOptions struct {
	storeOptions
	query       store.Query
	format, out string
}

// nightFormats write a night.
var nightFormats = map[string]func(*export.Night, io.Writer) error{
	"json":        (*export.Night).WriteJSON,
	"junit":       (*export.Night).WriteJUnit,
	"openmetrics": (*export.Night).WriteOpenMetrics,
	"text":        (*export.Night).WriteText,
}

// lines is the format that farm import reads.
const lines = "lines"

func newFarmExport() *cobra.Command {
	var o exportOptions
	c := &cobra.Command{
		Use:   "export",
		Short: "write what a store holds, or what came of a night",
		Long: `Write what a store holds as lines of JSON: nodes, pinned baselines, and the runs
that are over with their reports, which "mkp2pimg farm import" takes in again. Or
write what came of a night, by default the last one, as JSON, JUnit XML, OpenMetrics
or text. The store may be in use meanwhile.`,
		Example: `  mkp2pimg farm export -o farm.jsonl
  mkp2pimg farm export --night 2026-03-05 --format junit -o night.xml
  mkp2pimg farm export --format text`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.query.Night, "night", "", "this night only: 2026-03-05")
	f.StringVar(&o.query.Since, "since", "", "this night and later ones")
	f.StringVar(&o.query.Node, "node", "", "this machine only")
	f.StringVar(&o.format, "format", lines, "lines; of a night: json, junit, openmetrics or text")
	f.StringVarP(&o.out, "out", "o", "", "write to this file, in place of standard output")
	return c
}

func (o *exportOptions) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	write, ofNight := nightFormats[o.format]
	if !ofNight && o.format != lines {
		return usageError{fmt.Errorf("--format %s: want %s or one of %s", o.format, lines, strings.Join(slices.Sorted(maps.Keys(nightFormats)), ", "))}
	}
	for _, night := range []string{o.query.Night, o.query.Since} {
		if _, err := time.Parse(time.DateOnly, night); night != "" && err != nil {
			return usageError{fmt.Errorf("%q is no night such as 2026-03-05", night)}
		}
	}
	s, l, err := o.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if ofNight {
		night, err := o.night(ctx, s, l)
		if err != nil {
			return err
		}
		return o.to(stdout, func(w io.Writer) error { return write(night, w) })
	}
	return o.to(stdout, func(w io.Writer) error {
		n, err := archive.Write(ctx, s, w, o.query)
		if err == nil {
			fmt.Fprintf(stderr, "%d nodes, %d pinned baselines, %d runs\n", n.Nodes, n.Baselines, n.Runs)
			for _, id := range n.Damaged {
				fmt.Fprintf(stderr, "warning: run %s: the store has lost its report; what was found out is exported\n", id)
			}
		}
		return err
	})
}

// to writes to the file that was asked for, all of it or nothing, else to stdout.
func (o *exportOptions) to(stdout io.Writer, write func(io.Writer) error) error {
	if o.out == "" {
		return write(stdout)
	}
	f, err := renameio.NewPendingFile(o.out, renameio.WithPermissions(0o600)) // reports are nobody else's business
	if err != nil {
		return err
	}
	if err = write(f); err == nil {
		err = f.CloseAtomicallyReplace()
	}
	return errors.Join(err, f.Cleanup())
}

// night returns what came of a night. The nodes of the lab are expected in it.
func (o *exportOptions) night(ctx context.Context, s *store.Store, l *lab.Lab) (*export.Night, error) {
	q := o.query
	q.Whole = true
	if q.Night == "" {
		last, err := s.Nights(ctx, 1)
		if err != nil {
			return nil, err
		}
		if len(last) == 0 {
			return nil, errors.New("the store has no runs yet")
		}
		q.Night = last[0].Night
	}
	runs, err := s.Runs(ctx, q)
	if err != nil {
		return nil, err
	}
	var expected []export.Expected
	if l != nil {
		for _, n := range l.Nodes {
			if n.Boot != lab.Never && (q.Node == "" || q.Node == n.Name) {
				expected = append(expected, export.Expected{Node: n.Name})
			}
		}
	}
	return export.New(q.Night, expected, runs), nil
}

// retainOptions are the flags of farm retain.
type retainOptions struct {
	storeOptions
	reports, runs int
}

func newFarmRetain() *cobra.Command {
	var o retainOptions
	c := &cobra.Command{
		Use:   "retain",
		Short: "remove old reports and runs from a store",
		Long: `Remove reports, and runs with what is known about them, that are older than
lab.yaml's retention says; a server does so by itself once an hour. The flags are
in place of what lab.yaml says; 0 keeps all. Runs that are not over stay.`,
		Example: `  mkp2pimg farm retain
  mkp2pimg farm retain --store farm.db --reports 90 --runs 730`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), c.Flags().Changed, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flags(f)
	f.IntVar(&o.reports, "reports", 0, "keep the reports as they arrived for this many days; the runs stay")
	f.IntVar(&o.runs, "runs", 0, "keep runs for this many days")
	return c
}

func (o *retainOptions) run(ctx context.Context, given func(flag string) bool, stdout io.Writer) (err error) {
	if o.reports < 0 || o.runs < 0 {
		return usageError{errors.New("days can't be negative")}
	}
	s, l, err := o.open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	var p store.Policy
	if l != nil {
		p = store.Policy{Reports: l.Retention.Reports, Summaries: l.Retention.Runs}
	}
	const day = 24 * time.Hour
	if given("reports") {
		p.Reports = time.Duration(o.reports) * day
	}
	if given("runs") {
		p.Summaries = time.Duration(o.runs) * day
	}
	n, err := s.Retain(ctx, p, time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "removed %d runs, and %d reports of others\n", n.Runs, n.Reports)
	return err
}
