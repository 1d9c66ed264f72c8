package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mkp2pimg/internal/pipeline"
)

func newFetch() *cobra.Command {
	var o pipeline.Options
	c := &cobra.Command{
		Use:   "fetch",
		Short: "download all inputs of a build into the cache",
		Long: `Download every input of a build, and the emulator of "mkp2pimg smoke", into the
cache and write the lock file. A build with --offline then needs no network.`,
		Example: `  mkp2pimg fetch
  mkp2pimg fetch --mirror http://mirror.lab/debian --security-mirror http://mirror.lab/debian-security
  mkp2pimg fetch --mirror http://aptly.lab --security-mirror http://aptly.lab/security --keyring lab.asc`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			follow(&o, c.ErrOrStderr())
			l, err := pipeline.Fetch(c.Context(), o)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %d files for driver %s and kernel %s are in %s\n",
				o.LockFile, len(l.Inputs), l.Driver, l.Kernel, o.Cache)
			return err
		},
	}
	addInputFlags(c, &o)
	return c
}
