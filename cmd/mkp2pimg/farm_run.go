package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"mkp2pimg/internal/farm/export"
	"mkp2pimg/internal/farm/lab"
	"mkp2pimg/internal/farm/nightly"
	"mkp2pimg/internal/farm/power"
)

// farmRunOptions are the flags of farm run.
type farmRunOptions struct {
	lab, server, tokenFile string
	nodes                  []string
	junit, json, metrics   string
	again, dryRun          bool
	poll                   time.Duration
}

func newFarmRun() *cobra.Command {
	var o farmRunOptions
	c := &cobra.Command{
		Use:   "run",
		Short: "start the machines of a lab with the image and wait for their reports",
		Long: `Start machines of a lab from the network, wait until they have delivered their
reports to the server that "mkp2pimg serve" is, and say what came of each.

Each machine is armed at the server, then started through its BMC or whatever
lab.yaml gives as power; one that runs is restarted without asking what runs on it.
A machine without power is armed, and somebody else has to start it. lab.yaml says
how many run at once, in all and of a group that shares power, how long they have,
and how often one is started that delivered nothing. Machines with a complete report
of this night are left alone, so a run that was interrupted can be started again.

When it ends or is interrupted, no machine stays armed; those that run the image then
deliver all the same.

Exit codes: 0 all machines are P2P-READY and nothing is worse than before; 1 one is
not, or something is worse; 3 nothing like that, but of a machine it could not be
told, since it did not come back for example.`,
		Example: `  mkp2pimg farm run
  mkp2pimg farm run --lab /etc/mkp2pimg/lab.yaml --nodes rack1-1,rack1-2 --again
  mkp2pimg farm run --junit night.xml --json night.json --metrics night.prom
  mkp2pimg farm run --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&o.lab, "lab", "lab.yaml", "description of the lab")
	f.StringSliceVar(&o.nodes, "nodes", nil, "only these machines: names with commas between them (repeatable)")
	f.StringVar(&o.server, "server", "", "URL of the server, in place of lab.yaml's")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the server's admin token, in place of lab.yaml's")
	f.StringVar(&o.junit, "junit", "", "write the result to this file as JUnit XML")
	f.StringVar(&o.json, "json", "", "write the result to this file as JSON")
	f.StringVar(&o.metrics, "metrics", "", "write the result to this file as OpenMetrics")
	f.BoolVar(&o.again, "again", false, "start machines too that have a complete report of this night")
	f.DurationVar(&o.poll, "poll", 5*time.Second, "how often to ask the server how far the machines are")
	f.BoolVar(&o.dryRun, "dry-run", false, "print which machines would be started, and how")
	return c
}

func (o *farmRunOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	l, err := lab.Load(o.lab)
	if err != nil {
		return err
	}
	chosen, err := chooseNodes(l, o.nodes)
	if err != nil {
		return err
	}
	night := l.Night(time.Now())
	if o.dryRun {
		return writePlan(stdout, l, night, chosen)
	}
	client, err := o.client(l)
	if err != nil {
		return err
	}
	log := func(node, text string) {
		if node == "" {
			node = "server"
		}
		fmt.Fprintf(stderr, "%s %s: %s\n", time.Now().In(l.Clock.Zone).Format(time.TimeOnly), node, text)
	}
	settings := nightly.Settings{
		Night: night, Concurrency: l.Nightly.Concurrency, PerGroup: l.Nightly.PerGroup,
		Attempts: l.Nightly.Attempts, Deadline: l.Nightly.Deadline, Again: o.again, Poll: o.poll,
	}
	var nodes []nightly.Node
	for _, n := range chosen {
		nodes = append(nodes, nightly.Node{
			Name: n.Name, Group: n.Group, Image: n.Image, Plan: n.Plan, Attempts: n.Attempts, Deadline: n.Deadline, Start: power.New(n),
		})
	}
	out, err := nightly.Run(ctx, client, settings, nodes, log)
	if err != nil {
		return err
	}
	if err := o.write(stdout, out); err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(out.Armed)) {
		fmt.Fprintf(stderr, "mkp2pimg: %s is STILL ARMED: %v\n", node, out.Armed[node])
	}
	return verdictOf(out)
}

// chooseNodes returns the nodes of some names; without names all that may boot the
// image.
func chooseNodes(l *lab.Lab, names []string) ([]*lab.Node, error) {
	var chosen []*lab.Node
	for i := range l.Nodes {
		if n := &l.Nodes[i]; n.Boot != lab.Never && (names == nil || slices.Contains(names, n.Name)) {
			chosen = append(chosen, n)
		}
	}
	for _, name := range names {
		switch n, ok := l.Named(name); {
		case !ok:
			return nil, usageError{fmt.Errorf("there is no node %q in %s", name, l.Path)}
		case n.Boot == lab.Never:
			return nil, usageError{fmt.Errorf("node %s has boot: never in %s", name, l.Path)}
		}
	}
	if len(chosen) == 0 {
		return nil, dataError{fmt.Errorf("%s has no nodes that may boot the image: list the machines below nodes", l.Path)}
	}
	return chosen, nil
}

// writePlan says what a night would do.
func writePlan(w io.Writer, l *lab.Lab, night string, nodes []*lab.Node) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tGROUP\tIMAGE\tPLAN\tSTARTED BY") // to memory
	for _, n := range nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", n.Name, orDash(n.Group), n.Image, n.Plan, power.Describe(n))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	c := l.Nightly
	_, err := fmt.Fprintf(w, "night %s: %d nodes, %s at once, %s of a group, at most %d starts of each, all within %v; server %s\n",
		night, len(nodes), anyNumber(c.Concurrency), anyNumber(c.PerGroup), c.Attempts, c.Deadline, l.API())
	return err
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func anyNumber(n int) string {
	if n == 0 {
		return "any number"
	}
	return fmt.Sprint(n)
}

// client speaks to the server of a lab. A certificate that the server made itself
// is trusted, if its file is here.
func (o *farmRunOptions) client(l *lab.Lab) (*nightly.Client, error) {
	server := l.API()
	if o.server != "" {
		server = o.server
	}
	base, err := url.Parse(server)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.User != nil {
		return nil, usageError{fmt.Errorf("%q is no URL of a server such as http://10.0.0.1:8080", server)}
	}
	file := l.AdminTokenFile
	if o.tokenFile != "" {
		file = o.tokenFile
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the server's admin token: %w (mkp2pimg serve makes it when it first starts; copy it here, or give --token-file)", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return nil, dataError{fmt.Errorf("the server's admin token: %s is to have it in one line, and nothing else", file)}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if base.Scheme == "https" {
		if transport.TLSClientConfig, err = trusting(l.TLS.Cert); err != nil {
			return nil, err
		}
	}
	return &nightly.Client{Base: base, Token: token, HTTP: &http.Client{Transport: transport, CheckRedirect: noRedirect}}, nil
}

// noRedirect keeps the token with the server that it is for.
func noRedirect(*http.Request, []*http.Request) error {
	return errors.New("it redirects: give the URL that it redirects to")
}

// trusting trusts the authorities of this host and, if there is one, a certificate.
func trusting(file string) (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pem, err := os.ReadFile(file)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case !pool.AppendCertsFromPEM(pem):
		return nil, dataError{fmt.Errorf("%s has no certificate in PEM", file)}
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// write writes the result: for a person, then the files that were asked for.
func (o *farmRunOptions) write(stdout io.Writer, out nightly.Outcome) error {
	night := out.Export()
	if err := writeOutcome(stdout, out); err != nil {
		return err
	}
	for _, f := range []struct {
		path  string
		write func(*export.Night, io.Writer) error
	}{
		{o.json, (*export.Night).WriteJSON},
		{o.junit, (*export.Night).WriteJUnit},
		{o.metrics, (*export.Night).WriteOpenMetrics},
	} {
		if f.path == "" {
			continue
		}
		var b bytes.Buffer
		if err := f.write(night, &b); err != nil {
			return err
		}
		if err := renameio.WriteFile(f.path, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeOutcome says what came of each node, in lab.yaml's order, with what was
// tried in vain below it.
func writeOutcome(w io.Writer, out nightly.Outcome) error {
	var b bytes.Buffer
	count := map[nightly.Status]int{}
	for _, r := range out.Results {
		count[r.Status]++
		fmt.Fprintf(&b, "%-11s  %s", r.Status, r.Node)
		if r.Run != nil {
			fmt.Fprintf(&b, ", run %s", r.Run.ID)
		}
		if r.Earlier {
			b.WriteString(", from before")
		}
		if r.Why != "" {
			fmt.Fprintf(&b, ": %s", r.Why)
		}
		b.WriteByte('\n')
		failed := r.Failed
		if len(failed) > 0 && failed[len(failed)-1] == r.Why {
			failed = failed[:len(failed)-1] // said already
		}
		for i, why := range failed {
			fmt.Fprintf(&b, "             start %d: %s\n", i+1, why)
		}
		for _, note := range r.Notes {
			fmt.Fprintf(&b, "             note: %s\n", note)
		}
	}
	var sums []string
	for _, s := range []nightly.Status{nightly.Good, nightly.Regressed, nightly.NotReady, nightly.Unknown, nightly.Lost, nightly.NotStarted} {
		if count[s] > 0 {
			sums = append(sums, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	fmt.Fprintf(&b, "night %s, %d nodes in %v: %s\n", out.Night, len(out.Results), out.Ended.Sub(out.Began).Round(time.Second), strings.Join(sums, ", "))
	_, err := w.Write(b.Bytes())
	return err
}

// verdictOf is the exit code of a night as an error: what is known to be wrong goes
// before what is not known.
func verdictOf(out nightly.Outcome) error {
	switch {
	case out.Count(nightly.Regressed, nightly.NotReady) > 0:
		return quietError{exitFailed}
	case out.Count(nightly.Good) < len(out.Results):
		return quietError{exitUnknown}
	}
	return nil
}
