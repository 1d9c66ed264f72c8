package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mkp2pimg/kmod/catalog"
)

func newDrivers() *cobra.Command {
	var gpu string
	var all, asJSON bool
	c := &cobra.Command{
		Use:   "drivers",
		Short: "list driver releases and what they need for peer-to-peer",
		Long: `List the driver releases that --driver of other commands takes, by branch, with
what each GPU family needs for peer-to-peer over BAR1:

    edits    the driver's source must be edited, as "mkp2pimg build" does for the
             image and "mkp2pimg patch" for a source tree
    options  module options are enough: "mkp2pimg options" prints them

--driver takes a release (570.148.08), a branch for its newest release (570), or
"latest".`,
		Example: `  mkp2pimg drivers
  mkp2pimg drivers --all --json
  mkp2pimg drivers --gpu 4090
  mkp2pimg drivers --gpu 10de:2bb1`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := listDrivers(catalog.Load(), gpu, all)
			if err != nil {
				return usageError{err}
			}
			if asJSON {
				return printJSON(c.OutOrStdout(), l)
			}
			return l.print(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&gpu, "gpu", "", "a GPU: words of its name (4090, \"rtx pro 6000\") or its PCI id (10de:2684)")
	f.BoolVar(&all, "all", false, "list every release, not only the newest of each branch")
	f.BoolVar(&asJSON, "json", false, "print the list as JSON")
	return c
}

// driverList is what "mkp2pimg drivers" prints.
type driverList struct {
	Default  string         `json:"default"`
	Families []familyEntry  `json:"families"` // those of GPUs, or all
	GPUs     []gpuEntry     `json:"gpus,omitempty"`
	Releases []releaseEntry `json:"releases"` // oldest first
}

type familyEntry struct {
	Name        string `json:"name"`
	About       string `json:"about"`
	Recommended string `json:"recommended"` // release
}

type gpuEntry struct {
	catalog.GPU
	Traps []string `json:"traps,omitempty"`
}

type releaseEntry struct {
	Version    string                  `json:"version"`
	Branch     int                     `json:"branch"`
	Generation string                  `json:"generation"`
	About      string                  `json:"about"` // the generation
	Needs      map[string]catalog.Need `json:"needs"` // by family; one that is missing is not supported
	Commit     string                  `json:"commit"`
	Tree       string                  `json:"tree"`
	Debian     string                  `json:"debian,omitempty"`    // the suite that has all of it
	Elsewhere  string                  `json:"elsewhere,omitempty"` // a suite that has it, which builds do not read
	Origin     string                  `json:"origin"`
}

// listDrivers lists the releases of c, newest of each branch or all, for a GPU or for every family.
func listDrivers(c *catalog.Catalog, gpu string, all bool) (*driverList, error) {
	l := &driverList{Default: c.Default}
	if gpu != "" {
		found, err := c.LookupGPU(gpu)
		if err != nil {
			return nil, err
		}
		for _, g := range found {
			e := gpuEntry{GPU: g}
			for _, trap := range g.Traps {
				e.Traps = append(e.Traps, c.Traps[trap])
			}
			l.GPUs = append(l.GPUs, e)
		}
	}
	for _, f := range c.Families {
		if len(l.GPUs) == 0 || slices.ContainsFunc(l.GPUs, func(g gpuEntry) bool { return g.Family == f.Name }) {
			l.Families = append(l.Families, familyEntry{f.Name, f.About, c.Newest(f.Recommended).Version})
		}
	}
	for i := range c.Releases {
		r := &c.Releases[i]
		if !all && r != c.Newest(r.Branch()) && r.Debian == nil {
			continue
		}
		g, err := c.Generation(r)
		if err != nil {
			return nil, err
		}
		e := releaseEntry{
			Version: r.Version, Branch: r.Branch(), Generation: g.Name, About: g.About, Needs: map[string]catalog.Need{},
			Commit: r.Commit, Tree: r.Tree, Origin: c.Origin(r),
		}
		for _, f := range l.Families {
			if need, ok := c.Need(r, f.Name); ok {
				e.Needs[f.Name] = need
			}
		}
		if r.Debian != nil {
			e.Debian = r.Debian.Suite
		}
		if r.Elsewhere != nil {
			e.Elsewhere = r.Elsewhere.Suite
		}
		l.Releases = append(l.Releases, e)
	}
	return l, nil
}

// print writes the list for a person.
func (l *driverList) print(w io.Writer) error {
	var b strings.Builder
	for _, g := range l.GPUs {
		g.print(&b)
	}
	l.table(&b)
	b.WriteString("\nRecommended:\n")
	for _, f := range l.Families {
		fmt.Fprintf(&b, "  %s for %s (%s)\n", f.Recommended, f.Name, f.About)
	}
	b.WriteString("\nedits: the source must be edited, by mkp2pimg build or mkp2pimg patch.\n" +
		"options: module options are enough, see mkp2pimg options.\n")
	generations := map[string]bool{}
	for _, r := range l.Releases {
		if !generations[r.Generation] {
			generations[r.Generation] = true
			fmt.Fprintf(&b, "%s: %s.\n", r.Generation, r.About)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table writes a line for each release.
func (l *driverList) table(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0) // a Builder takes everything
	fmt.Fprint(t, "RELEASE\tGENERATION")
	for _, f := range l.Families {
		fmt.Fprint(t, "\t", strings.ToUpper(f.Name))
	}
	fmt.Fprint(t, "\tFROM\n")
	for _, r := range l.Releases {
		fmt.Fprint(t, r.Version, "\t", r.Generation)
		for _, f := range l.Families {
			need := string(r.Needs[f.Name])
			if need == "" {
				need = "-"
			}
			fmt.Fprint(t, "\t", need)
		}
		from := "NVIDIA: source on GitHub, the rest in the .run"
		if r.Debian != "" {
			from = "Debian " + r.Debian + ", all of it"
		}
		if r.Elsewhere != "" {
			from += "; by hand Debian " + r.Elsewhere
		}
		if r.Version == l.Default {
			from += " (default)"
		}
		fmt.Fprint(t, "\t", from, "\n")
	}
	_ = t.Flush() // a Builder takes everything
}

// stockWords say what the unmodified driver does.
var stockWords = map[catalog.Stock]string{
	catalog.Refused: "reports no peer-to-peer over PCIe",
	catalog.Mailbox: "peer-to-peer through the mailbox, where it knows the chipset",
	catalog.Full:    "peer-to-peer, where the topology allows it",
}

// print writes what is known of a GPU.
func (g *gpuEntry) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s, %s\n", &g.GPU, g.Chip, g.Family)
	switch {
	case g.BAR1 > 0 && g.BAR1 == g.LargestBAR1:
		fmt.Fprintf(b, "  BAR1: %d MiB\n", g.BAR1)
	case g.BAR1 > 0:
		fmt.Fprintf(b, "  BAR1: %d MiB as sold, %d MiB at most\n", g.BAR1, g.LargestBAR1)
	case g.LargestBAR1 > 0:
		fmt.Fprintf(b, "  BAR1: %d MiB at most\n", g.LargestBAR1)
	}
	if words := stockWords[g.Stock]; words != "" {
		fmt.Fprintf(b, "  unmodified driver: %s\n", words)
	}
	if !g.CanHold(0) {
		b.WriteString("  peer-to-peer over BAR1: not possible as sold, BAR1 can't hold all its memory\n")
	}
	for _, trap := range g.Traps {
		fmt.Fprintf(b, "  beware: %s\n", trap)
	}
	b.WriteByte('\n')
}

// printJSON writes v as JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
