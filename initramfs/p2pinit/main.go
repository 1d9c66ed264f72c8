// P2pinit runs the image on a machine: it loads what the hardware needs, gathers
// and judges the facts, loads the NVIDIA driver, measures, shows the verdict and
// delivers the report. u-root's init starts it as its uinit; kernel parameters
// named p2p.* steer it.
//
// Usage:
//
//	p2pinit [--params] [--force]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"mkp2pimg/initramfs/p2pinit/node"
	"mkp2pimg/initramfs/p2pinit/params"
)

func main() {
	f := flag.NewFlagSet("p2pinit", flag.ExitOnError)
	list := f.Bool("params", false, "list the kernel parameters and exit")
	force := f.Bool("force", false, "run although not started by the image's init; at the end this machine may be switched off")
	_ = f.Parse(os.Args[1:]) // exits on an error
	if *list {
		for _, p := range params.Doc() {
			fmt.Printf("%s=%s\n    %s\n    Default: %s.\n", p.Name, p.Values, p.Text, p.Default)
		}
		return
	}
	if os.Getppid() != 1 && !*force {
		fmt.Fprintln(os.Stderr, "p2pinit: not started by the image's init (see --force)")
		os.Exit(1)
	}
	signal.Ignore(os.Interrupt) // a Ctrl-C at the console must not end the run
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	n := &node.Node{Root: "/", System: node.Linux{}, Started: time.Now()}
	if err := n.Run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "p2pinit: %v\n", err)
		os.Exit(1)
	}
}
