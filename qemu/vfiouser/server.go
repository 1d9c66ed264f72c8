package vfiouser

import (
	"context"
	"errors"
	"net"
)

// Serve waits for one client on l and serves d to it until the client hangs up
// (nil), breaks the protocol (an error that names the message), or ctx ends
// (ctx's error). It closes l as soon as the client is there, since a device
// has one owner.
func Serve(ctx context.Context, l *net.UnixListener, d Device) error {
	return errors.ErrUnsupported
}
