package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const long = `mkp2pimg builds one bootable image that tells whether PCIe peer-to-peer works
between the GPUs of a machine, how fast, and if not, what exactly to change.

The image holds a Debian kernel, NVIDIA's open kernel modules built from source
with the BAR1 P2P edits (and without them, to compare), GSP firmware, libcuda and
a small userland whose init checks the machine, loads the driver, measures,
verifies the data and reports.`

// newRoot returns the command line. Commands write results to stdout and
// progress to stderr.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "mkp2pimg",
		Short:         "build and boot an image that checks PCIe peer-to-peer between GPUs",
		Long:          long,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see \"%s --help\")", err, c.CommandPath())}
	})
	root.AddCommand(newBuild(), newFlash(), newPush(), newInspect(), newDiff(), newFetch(), newSmoke(), newPatch(), newDrivers(), newOptions(), newFacts(), newCheck(), newBenchCommand(), newACS(), newServe(), newFarm(), newExitCodes())
	checkArgs(root)
	return root
}

// checkArgs makes wrong arguments and empty values of flags of every command usage errors.
func checkArgs(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := cmp.Or(check(c, args), checkValues(c)); err != nil {
				return usageError{fmt.Errorf("%w (see \"%s --help\")", err, c.CommandPath())}
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		checkArgs(sub)
	}
}

// checkValues refuses empty values: --gpu "$GPU" without such a variable is a mistake, not the default.
func checkValues(c *cobra.Command) (err error) {
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if slices.Contains(values, "") {
			err = fmt.Errorf("the value of --%s is empty: give one, or leave the flag out", f.Name)
		}
	})
	return err
}

func newExitCodes() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "what the exit codes mean",
		Long: `Exit codes of every command:

    0  done; for smoke: no check failed; for check, bench: the machine is ready;
       for farm run: all machines are, and nothing is worse than before
    1  what was tested did not hold (smoke), peer-to-peer works slower or with a
       risk (check, bench), a machine is not ready or worse than before (farm
       run), two images differ (diff), or an error without its own code
    2  something blocks peer-to-peer (check), its data does not arrive (bench)
    3  it could not be told, or there are no two GPUs (check, bench, farm run):
       a machine that did not come back, for example
   64  usage: an unknown command, flag, driver, kernel or machine, or a device
       that must not be written to
   65  data: a wrong checksum or signature, a damaged file, a source tree that
       the edits do not fit, a mistake in lab.yaml
   69  unavailable: a download or upload failed, or one is needed but not allowed
       (--offline); the farm's server does not answer, or refuses
   70  the compiler failed, or a mistake in this program
   71  the host forbids what is needed, such as user namespaces or a port
   74  input/output: no space, or the cache, a file or a device can't be read or
       written
  130  interrupted`,
	}
}
