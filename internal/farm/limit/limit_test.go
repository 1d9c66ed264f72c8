package limit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAllow(t *testing.T) {
	now := time.Date(2026, 3, 5, 22, 0, 0, 0, time.UTC)
	l := New(time.Second, 2, 3)
	count := func(now time.Time, who string) int {
		n := 0
		for range 10 {
			if l.Allow(now, who) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 2, count(now, "a"), "the burst")
	assert.Equal(t, 2, count(now, "b"), "another asker has a bucket of its own")
	assert.Equal(t, 1, count(now.Add(time.Second), "a"))
	assert.Equal(t, 2, count(now.Add(time.Second), "c"))
	assert.Equal(t, 0, count(now.Add(time.Second), "d"), "a fourth is not remembered")
	assert.Equal(t, 2, count(now.Add(time.Hour), "d"), "the others are forgotten")
}

func TestAskersAreBounded(t *testing.T) {
	now := time.Date(2026, 3, 5, 22, 0, 0, 0, time.UTC)
	l := New(time.Minute, 1, 100)
	for i := range 10000 {
		l.Allow(now.Add(time.Duration(i)*time.Second), fmt.Sprint(i))
	}
	assert.LessOrEqual(t, len(l.askers), 100)
}

func TestAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:51000":             "192.0.2.7",
		"[::ffff:192.0.2.7]:51000":    "192.0.2.7",
		"[2001:db8:1:2:3:4:5:6]:5100": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5100":         "fe80::/64",
		"@":                           "@", // a UNIX socket
	} {
		assert.Equal(t, want, Address(remote), remote)
	}
}
