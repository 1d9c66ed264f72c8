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
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

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
	return execute(ctx, newRoot(), args, stdout, stderr)
}

func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) (code int) {
	// The runtime would end the program with 2, which says "blocked".
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "mkp2pimg: a mistake in this program, please report it: %v\n\n%s", p, debug.Stack())
			code = exitSoftware
		}
	}()
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
