package main

import "github.com/spf13/cobra"

func newFarm() *cobra.Command {
	c := &cobra.Command{
		Use:   "farm",
		Short: "run the machines of a lab for a night; import, export and remove what they reported",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newFarmRun(), newFarmImport(), newFarmExport(), newFarmRetain())
	return c
}
