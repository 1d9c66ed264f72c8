package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mkp2pimg/images"
	"mkp2pimg/images/inspect"
)

func newDiff() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "diff IMAGE IMAGE",
		Short: "tell in what two images differ",
		Long: `Tell in what two images, of any format, differ: versions, driver edits, options,
inputs and the files of the initramfs. Exits with 1 if they do.`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			var m [2]*images.Manifest
			for i, path := range args {
				contents, err := inspect.Open(c.Context(), path)
				if err != nil {
					return err
				}
				m[i] = contents.Manifest
			}
			changes := inspect.Diff(m[0], m[1])
			if err := printDiff(c.OutOrStdout(), changes, asJSON); err != nil {
				return err
			}
			if len(changes) > 0 {
				return quietError{exitFailed}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the differences as JSON")
	return c
}

func printDiff(w io.Writer, changes []inspect.Change, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(append([]inspect.Change{}, changes...))
	}
	for _, c := range changes {
		name := c.What
		if c.Name != "" {
			name += " " + c.Name
		}
		_, err := fmt.Fprintf(w, "%s\n  - %s\n  + %s\n", name, cmp.Or(c.Old, "absent"), cmp.Or(c.New, "absent"))
		if err != nil {
			return err
		}
	}
	return nil
}
