package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mkp2pimg/images"
	"mkp2pimg/images/oci"
)

func newPush() *cobra.Command {
	o := oci.PushOptions{UserAgent: images.ProductName + "/" + version()}
	var asJSON bool
	c := &cobra.Command{
		Use:   "push IMAGE REGISTRY/REPOSITORY[:TAG]",
		Short: "bring an image to a registry of containers",
		Long: `Bring an image to a registry of containers, from which a fleet pulls it. IMAGE is
the archive that "mkp2pimg build --format oci" makes, or its directory. It is
compared with its checksums first. What the registry has already is not sent
again. Credentials are those of "docker login" and "oras login".

The files of the netboot directory come back with "oras pull".`,
		Example: `  mkp2pimg build --format oci
  mkp2pimg push out registry.lab/mkp2pimg:535
  oras pull registry.lab/mkp2pimg:535 -o /srv/http/mkp2pimg`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			path, err := artifactFile(args[0])
			if err != nil {
				return err
			}
			if _, err := oci.OpenContents(c.Context(), path); errors.Is(err, images.ErrOtherFormat) {
				return dataError{fmt.Errorf("%s: %w: make one with \"mkp2pimg build --format oci\"", path, err)}
			} else if err != nil {
				return err
			}
			a, err := oci.Open(c.Context(), path)
			if err != nil {
				return err
			}
			pushed, err := a.Push(c.Context(), args[1], o)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(pushed)
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s, tag %s, %s\n", pushed.Reference, pushed.Tag, size(pushed.Size))
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&o.PlainHTTP, "plain-http", false, "talk to the registry without TLS")
	f.BoolVar(&asJSON, "json", false, "print where it went as JSON")
	return c
}

// artifactFile is the archive that an argument means.
func artifactFile(arg string) (string, error) {
	st, err := os.Stat(arg)
	if err != nil || !st.IsDir() {
		return arg, err
	}
	path := filepath.Join(arg, oci.Name)
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", dataError{fmt.Errorf("%s has no %s: make it with \"mkp2pimg build --format oci\"", arg, oci.Name)}
	}
	return path, nil
}
