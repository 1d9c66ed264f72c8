// Package limit bounds how often each of many askers is answered.
package limit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limiter gives each asker a bucket of tokens of its own. Its methods may be called
// from several goroutines.
type Limiter struct {
	every time.Duration
	burst int
	max   int

	mu     sync.Mutex
	askers map[string]*rate.Limiter
}

// New returns a limiter that answers an asker burst times at once, and in the long
// run once in the time every. It remembers so many askers; while as many have
// asked of late, others get no answer.
func New(every time.Duration, burst, askers int) *Limiter {
	return &Limiter{every: every, burst: burst, max: askers, askers: map[string]*rate.Limiter{}}
}

// Allow tells whether an asker gets an answer now.
func (l *Limiter) Allow(now time.Time, who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.askers[who]
	if !ok {
		if len(l.askers) >= l.max {
			l.forget(now)
		}
		if len(l.askers) >= l.max {
			return false
		}
		one = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.askers[who] = one
	}
	return one.AllowN(now, 1)
}

// forget drops the askers whose bucket is full: a new one would be as well.
func (l *Limiter) forget(now time.Time) {
	for who, one := range l.askers {
		if one.TokensAt(now) >= float64(l.burst) {
			delete(l.askers, who)
		}
	}
}

// Every is the time between two answers, in the long run.
func (l *Limiter) Every() time.Duration { return l.every }

// Address is the asker that a remote address of net/http, host and port, stands
// for: of IPv6 its /64, which one host has all of.
func Address(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
