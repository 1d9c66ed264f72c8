package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"mkp2pimg/firmware-checks/facts"
)

// driverPatience is how long a loaded driver may take to answer: it starts GPUs
// that nobody uses, which takes seconds for each.
const driverPatience = 2 * time.Minute

// gathering is where facts are gathered, and which.
type gathering struct {
	root, log        string
	private, passive bool
}

// addFlags defines the flags that all commands have that gather facts.
func (g *gathering) addFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&g.root, "root", "/", "the root folder of the machine, or of a copy of its /sys and /proc")
	f.StringVar(&g.log, "kernel-log", "", "file with the kernel's log as dmesg prints it, instead of /dev/kmsg below the root")
	f.BoolVar(&g.passive, "passive", false, "don't ask a loaded NVIDIA driver")
}

// facts gathers the facts. Its errors are those of files and of usage.
func (g gathering) facts(ctx context.Context) (*facts.Facts, error) {
	opt := facts.Options{Private: g.private}
	if g.log != "" {
		log, err := os.Open(g.log)
		if err != nil {
			return nil, err
		}
		defer log.Close() // only read
		opt.KernelLog = log
	}
	f, err := facts.Gather(g.root, opt)
	if err != nil {
		return nil, usageError{err} // it fails only for what --root names
	}
	if !g.passive {
		asking, cancel := context.WithTimeout(ctx, driverPatience)
		defer cancel()
		f.Ask(asking, g.root)
	}
	return f, ctx.Err()
}

// writeFile writes an answer to a file, whole or not at all. What is no regular
// file, such as a pipe or a terminal, is written to as it is.
func writeFile(name string, data []byte) error {
	write := func() error { return renameio.WriteFile(name, data, 0o644) }
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		write = func() error { return os.WriteFile(name, data, 0o644) }
	}
	if err := write(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
