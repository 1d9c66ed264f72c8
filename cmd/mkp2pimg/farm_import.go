package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"

	"mkp2pimg/internal/farm"
	"mkp2pimg/internal/farm/archive"
	"mkp2pimg/internal/farm/intake"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/nightly"
	"mkp2pimg/internal/farm/store"
)

// importOptions are the flags of farm import.
type importOptions struct {
	storeOptions
	server, tokenFile string
	node, source      string
}

func newFarmImport() *cobra.Command {
	var o importOptions
	c := &cobra.Command{
		Use:   "import FILE…",
		Short: "take in reports that did not come over the network, or what farm export wrote",
		Long: `Take in reports that did not come over the network: files of a stick's partition for
reports, and logs of a serial port, which may have other text between the lines. A
report that is there already is found, not taken in twice. Lines of "mkp2pimg farm
export" are known by their first line; they go to a store only.

The store is opened by itself, also while a server uses it; --server sends the
reports to a server instead. FILE - is the standard input.`,
		Example: `  mkp2pimg farm import /mnt/reports/*.jsonl
  mkp2pimg farm import --source serial --node rack1-3 rack1-3.log
  mkp2pimg farm import --server http://10.0.0.1:8080 report.jsonl
  zstdcat farm.jsonl.zst | mkp2pimg farm import --store postgres://farm@db/farm -`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return o.run(c.Context(), args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.server, "server", "", "URL of a server to send the reports to, in place of a store")
	f.StringVar(&o.tokenFile, "token-file", "", "with --server: file with its admin token, in place of lab.yaml's")
	f.StringVar(&o.node, "node", "", "the machine that the reports are of, if they do not say, or say something else")
	f.StringVar(&o.source, "source", string(farm.Stick), "where the reports come from: stick or serial")
	return c
}

// importer takes one report in.
type importer func(ctx context.Context, text []byte) (run farm.Run, fresh bool, err error)

func (o *importOptions) run(ctx context.Context, files []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if s := farm.Source(o.source); s != farm.Stick && s != farm.Serial {
		return usageError{fmt.Errorf("--source %s: want %s or %s", o.source, farm.Stick, farm.Serial)}
	}
	if o.store != "" && o.server != "" {
		return usageError{errors.New("--store and --server are two places to import to: give one")}
	}
	take, s := importer(nil), (*store.Store)(nil)
	if o.server != "" {
		take, err = o.sender()
	} else {
		var l *lab.Lab
		if s, l, err = o.open(ctx, true); err == nil {
			defer func() { err = errors.Join(err, s.Close()) }()
			in := o.intake(s, l, stderr)
			defer func() { err = errors.Join(err, in.Settle(ctx)) }()
			take = func(ctx context.Context, text []byte) (farm.Run, bool, error) {
				return in.Import(ctx, farm.Source(o.source), o.node, text)
			}
		}
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range files {
		if err := importFile(ctx, name, stdin, stdout, s, take); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// intake takes reports in without a server.
func (o *importOptions) intake(s *store.Store, l *lab.Lab, stderr io.Writer) *intake.Intake {
	return intake.New(intake.Config{
		Store: s, Judge: judgement, Log: slog.New(slog.NewTextHandler(stderr, nil)),
		Night: func(t time.Time) string {
			if l == nil {
				return t.Format(time.DateOnly)
			}
			return l.Night(t)
		},
		Known: func(name string) bool {
			if l != nil {
				if _, ok := l.Named(name); ok {
					return true
				}
			}
			return archive.CheckName(name) == nil && (l == nil || name == o.node)
		},
		Pinned: func(name string) []farm.Baseline {
			if l != nil {
				if n, ok := l.Named(name); ok {
					return n.Baseline
				}
			}
			return nil
		},
	})
}

// importFile takes a file in: s is nil if it can go to a server only.
func importFile(ctx context.Context, name string, stdin io.Reader, stdout io.Writer, s *store.Store, take importer) error {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close() // it was only read
		from = f
	}
	in := bufio.NewReader(from)
	start, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if archive.Is(start) {
		if s == nil {
			return usageError{errors.New("lines of farm export go to a store: give --store, or --lab")}
		}
		n, err := archive.Read(ctx, in, s)
		fmt.Fprintf(stdout, "%s: %d nodes, %d pinned baselines, %d runs, %d of them were there already\n", name, n.Nodes, n.Baselines, n.Runs, n.Present)
		if _, bad := errors.AsType[*archive.LineError](err); bad {
			err = dataError{err}
		}
		return err
	}
	text, err := io.ReadAll(io.LimitReader(in, store.MaxReport+1))
	if err != nil {
		return err
	}
	run, fresh, err := take(ctx, text)
	if err != nil {
		if _, bad := errors.AsType[*intake.ImportError](err); bad {
			err = dataError{err}
		}
		return err
	}
	said := ""
	if !fresh {
		said = ", which was there already"
	}
	_, err = fmt.Fprintf(stdout, "%s: run %s of %s, night %s%s\n", name, run.ID, run.Node, run.Night, said)
	return err
}

// sender sends reports to a server.
func (o *importOptions) sender() (importer, error) {
	l, err := o.read(o.tokenFile == "")
	if err != nil {
		return nil, err
	}
	if l == nil {
		l = &lab.Lab{}
	}
	client, err := (&farmRunOptions{server: o.server, tokenFile: o.tokenFile}).client(l)
	if err != nil {
		return nil, err
	}
	u := client.Base.JoinPath("v1", "import")
	u.RawQuery = url.Values{"source": {o.source}, "node": {o.node}}.Encode()
	return func(ctx context.Context, text []byte) (farm.Run, bool, error) {
		var answer struct {
			Run   farm.Run `json:"run"`
			Fresh bool     `json:"fresh"`
			Error string   `json:"error"`
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(text))
		if err != nil {
			return answer.Run, false, err
		}
		req.Header.Set("Authorization", "Bearer "+client.Token)
		req.Header.Set("Content-Type", "application/x-ndjson")
		request := "POST " + u.Redacted()
		resp, err := client.HTTP.Do(req)
		if err != nil {
			if outer, ok := errors.AsType[*url.Error](err); ok {
				err = outer.Err // method and URL are said already
			}
			return answer.Run, false, &nightly.ServerError{Request: request, Err: err}
		}
		defer resp.Body.Close()
		const largest = 16 << 20 // a run with its findings
		bad := json.NewDecoder(io.LimitReader(resp.Body, largest)).Decode(&answer)
		switch {
		case resp.StatusCode == http.StatusBadRequest:
			return answer.Run, false, dataError{fmt.Errorf("the server does not take it: %s", answer.Error)}
		case resp.StatusCode/100 != 2:
			return answer.Run, false, &nightly.ServerError{Request: request, Status: resp.StatusCode, Answer: answer.Error}
		case bad != nil:
			return answer.Run, false, &nightly.ServerError{Request: request, Err: fmt.Errorf("the answer is no JSON of a farm's server: %w", bad)}
		}
		return answer.Run, answer.Fresh, nil
	}, nil
}
