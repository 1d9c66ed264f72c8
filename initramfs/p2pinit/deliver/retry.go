package deliver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// refused is a final no: trying again changes nothing.
type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// Final reports whether an error of this package is a no that stays a no.
func Final(err error) bool {
	_, ok := errors.AsType[refused](err)
	return ok
}

// busy is a failure of a server that said how long it wants to be left alone.
type busy struct {
	error
	wait time.Duration
}

const (
	longestDelay = 16 * time.Second
	longestBusy  = 2 * time.Minute // what a server may ask for
)

// Delay is how long to wait after the try-th failure in a row, which counts from
// 1: as long as the server asked for, else about 1, 2, 4 … 16 seconds. A part of
// it is left to chance, so that machines which lost their server at the same time
// do not come back at the same time.
func Delay(try int, err error) time.Duration {
	if b, ok := errors.AsType[busy](err); ok {
		return min(b.wait, longestBusy)
	}
	most := min(time.Second<<min(try-1, 10), longestDelay)
	return most/2 + rand.N(most/2)
}

// persist tries until a try succeeds or is refused or the context ends. Who sends
// to hurry cuts a wait short that the server did not ask for.
func persist(ctx context.Context, delay func(try int, err error) time.Duration, hurry <-chan struct{}, try func(context.Context) error) error {
	for n := 1; ; n++ {
		err := try(ctx)
		if err == nil || Final(err) {
			return err
		}
		cut := hurry
		if _, ok := errors.AsType[busy](err); ok {
			cut = nil
		}
		select {
		case <-ctx.Done():
		case <-cut:
		case <-time.After(delay(n, err)):
		}
		if ctx.Err() != nil {
			return fmt.Errorf("given up after %d tries: %w", n, err)
		}
	}
}
