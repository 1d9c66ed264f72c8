package boot

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter bounds how often each of many askers is answered.
type limiter struct {
	every time.Duration // between two answers, in the long run
	burst int
	max   int // askers that are remembered; further ones are refused

	mu    sync.Mutex
	asker map[string]*rate.Limiter
}

func newLimiter(every time.Duration, burst, askers int) *limiter {
	return &limiter{every: every, burst: burst, max: askers, asker: map[string]*rate.Limiter{}}
}

// allow says whether an asker gets an answer now.
func (l *limiter) allow(now time.Time, who string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.asker[who]
	if !ok {
		if len(l.asker) >= l.max {
			l.forget(now)
		}
		if len(l.asker) >= l.max {
			return false
		}
		one = rate.NewLimiter(rate.Every(l.every), l.burst)
		l.asker[who] = one
	}
	return one.AllowN(now, 1)
}

// forget drops those who have not asked for long.
func (l *limiter) forget(now time.Time) {
	for who, one := range l.asker {
		if one.TokensAt(now) >= float64(l.burst) {
			delete(l.asker, who)
		}
	}
}
