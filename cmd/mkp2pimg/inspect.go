package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mkp2pimg/images"
	"mkp2pimg/images/inspect"
)

func newInspect() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "tell what is in an image",
		Long: `Tell what is in an image of any format, after checking it against its checksums:
versions, edits, inputs, and the sizes of its parts. IMAGE is a netboot
directory, a disk, ISO, UKI or OCI image, or a stick that one was written to.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			contents, err := inspect.Open(c.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return inspectJSON(c.OutOrStdout(), contents)
			}
			return inspectText(c.OutOrStdout(), contents)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print all of it as JSON, manifest and bill of materials included")
	return c
}

func inspectJSON(w io.Writer, c *images.Contents) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		*images.Contents
		Components []inspect.Component `json:"components"`
		SBOM       json.RawMessage     `json:"sbom"`
	}{c, inspect.Components(c.Manifest), c.Documents[images.SBOMName]})
}

func inspectText(w io.Writer, c *images.Contents) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	m := c.Manifest
	row("format", "%s, %s, as its checksums say", c.Format, size(c.Size))
	row("made by", "%s %s with %s", m.Product.Name, m.Product.Version, m.Go)
	row("driver", "%s", m.Driver)
	row("kernel", "%s", m.Kernel)
	if m.GPUs != nil {
		row("GPUs", "%s", strings.Join(m.GPUs, ", "))
		row("profile", "%s", m.Profile)
	}
	row("parameters", "%s", strings.Join(m.CommandLine, " "))
	for _, s := range m.ModuleSets {
		edits := strings.Join(s.Edits, " ")
		if edits == "" {
			edits = "no edits"
		}
		row("modules "+s.Name, "%s", edits)
	}
	shipped := 0
	for _, in := range m.Inputs {
		if in.Shipped {
			shipped++
		}
	}
	row("inputs", "%d, of which %d have files in the image; %d Go modules", len(m.Inputs), shipped, len(m.GoModules))
	fmt.Fprintf(t, "\nPARTS\n")
	for _, p := range c.Parts {
		row("  "+p.Name, "%s", size(p.Size))
	}
	fmt.Fprintf(t, "\nINITRAMFS, UNPACKED\n")
	for _, p := range inspect.Components(m) {
		row("  "+strings.TrimSpace(p.Name+" "+p.Version), "%s in %d files", size(p.Size), p.Files)
	}
	return t.Flush()
}

// size is a number of bytes for a person.
func size(n int64) string { return humanize.Bytes(uint64(max(n, 0))) }
