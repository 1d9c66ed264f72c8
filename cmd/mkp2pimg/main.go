// Command mkp2pimg builds a bootable image that tells whether PCIe
// peer-to-peer works between the GPUs of a machine, how fast, and if not, what
// to change.
package main

import (
	"context"
	"errors"
	"fmt"
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
	err := newRoot().ExecuteContext(ctx)
	if err != nil && !errors.As(err, new(quietError)) {
		fmt.Fprintf(os.Stderr, "mkp2pimg: %v\n", err)
	}
	os.Exit(exitCode(ctx, err))
}
