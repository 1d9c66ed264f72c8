// Command mkp2pimg builds a bootable image that tells whether PCIe
// peer-to-peer works between the GPUs of a machine, how fast, and if not, what
// to change.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"mkp2pimg/internal/sandbox"
)

func main() {
	sandbox.MaybeChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil || errors.As(err, new(quietError)):
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "mkp2pimg: interrupted (%v); nothing half-done is left, what was finished is used again\n", err)
	default:
		fmt.Fprintf(stderr, "mkp2pimg: %v\n", err)
	}
	return exitCode(ctx, err)
}
