package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func newFacts() *cobra.Command {
	o := factsOptions{}
	c := &cobra.Command{
		Use:   "facts",
		Short: "gather what this machine says about itself that bears on peer-to-peer",
		Long: `Gather what this machine says about itself that bears on PCIe peer-to-peer between
its GPUs, and print it as JSON: PCI functions with the configuration space of GPUs
and of the bridges above them, IOMMUs, ACPI tables, BIOS, processors, kernel, its
log, and NVIDIA's driver. It changes nothing. A loaded NVIDIA driver is asked as
well, which starts GPUs that nobody uses; --passive leaves it alone.

The document says of each source that could not be read why. Most of the reasons go
away as root. Serial numbers, UUIDs, MAC addresses and credentials are left out, so
that the document can be sent to others.`,
		Example: `  sudo mkp2pimg facts -o facts.json
  mkp2pimg facts --root /mnt/copy`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return o.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	o.addFlags(c)
	f.BoolVar(&o.private, "private", false, "keep serial numbers, UUIDs, MAC addresses and credentials")
	f.StringVarP(&o.out, "output", "o", "", "write to this file instead of standard output")
	return c
}

type factsOptions struct {
	gathering
	out string
}

func (o factsOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	f, err := o.facts(ctx)
	if err != nil {
		return err
	}
	var doc bytes.Buffer
	if err := f.Save(&doc); err != nil {
		return err
	}
	if o.out == "" {
		_, err = stdout.Write(doc.Bytes())
	} else {
		err = writeFile(o.out, doc.Bytes())
	}
	if err != nil {
		return err
	}
	advice := ""
	if len(f.Unknown) > 0 && os.Geteuid() != 0 {
		advice = "; run it as root to know more"
	}
	_, err = fmt.Fprintf(stderr, "%d PCI functions, %d GPUs, %d things not known%s\n", len(f.Devices), len(f.GPUs()), len(f.Unknown), advice)
	return err
}
