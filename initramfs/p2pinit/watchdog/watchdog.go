// Package watchdog resets a machine whose init hangs: a hardware or software
// watchdog is petted only while the current stage has time left.
package watchdog

import (
	"sync"
	"time"
)

// Modules are the watchdog drivers worth trying, in order; the first that finds
// its device wins. i6300esb is what the owner of a virtual machine gives it; it
// comes before iTCO_wdt, whose resets QEMU before 8.0 ignores by default (ICH9-LPC,
// noreboot). lpc_ich and i2c_i801 are no watchdogs: they make the device of
// iTCO_wdt. softdog, a timer of the kernel, always does and comes last: it
// can't help when the kernel itself hangs.
var Modules = []string{"wdat_wdt", "i6300esb", "lpc_ich", "i2c_i801", "iTCO_wdt", "sp5100_tco", "softdog"}

// Path is the first watchdog of the machine, the one that the run arms.
const Path = "/dev/watchdog0"

// Timeout is the time without petting after which the machine is reset.
const Timeout = time.Minute

// Device is an armed watchdog.
type Device interface {
	Name() string           // for a person: driver and timeout
	Timeout() time.Duration // time without petting until the reset
	Pet() error
	Disarm() error // stops and closes the watchdog
}

// Guard pets a device while it is allowed to.
type Guard struct {
	dev  Device
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	until time.Time
	err   error // of the last pet
}

// NewGuard starts petting dev, three times per timeout, until the time that Allow
// has set last.
func NewGuard(dev Device, until time.Time) *Guard {
	g := &Guard{dev: dev, until: until, stop: make(chan struct{}), done: make(chan struct{})}
	go g.loop()
	return g
}

// Allow lets the guard pet until this time.
func (g *Guard) Allow(until time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.until = until
}

func (g *Guard) loop() {
	defer close(g.done)
	tick := time.NewTicker(g.dev.Timeout() / 3)
	defer tick.Stop()
	for {
		select {
		case <-g.stop:
			return
		case now := <-tick.C:
			g.pet(now)
		}
	}
}

// pet pets the device unless the time is over.
func (g *Guard) pet(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.until) {
		g.err = g.dev.Pet()
	}
}

// Disarm stops petting and the watchdog. The error may be that of a pet before.
func (g *Guard) Disarm() error {
	close(g.stop)
	<-g.done
	if err := g.dev.Disarm(); err != nil {
		return err
	}
	return g.err
}
