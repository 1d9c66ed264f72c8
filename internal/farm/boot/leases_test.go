package boot

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}) }

func open(t *testing.T, path string, first, last int) *Leases {
	t.Helper()
	l, err := OpenLeases(path, addr(first), addr(last), addr(1))
	require.NoError(t, err)
	return l
}

func TestLeaseIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.json")
	l := open(t, path, 100, 110)
	a, ok := l.Offer(noon, "a", netip.Addr{})
	require.True(t, ok)
	require.True(t, l.Take(noon, "a", a, time.Hour))
	require.NoError(t, l.Save())

	again := open(t, path, 100, 110)
	b, ok := again.Offer(noon.Add(time.Minute), "a", addr(105))
	require.True(t, ok)
	assert.Equal(t, a, b, "firmware, iPXE and the image keep one address")
	assert.False(t, again.Take(noon, "b", a, time.Hour), "another's")

	lost := open(t, "", 100, 110)
	c, ok := lost.Offer(noon, "a", netip.Addr{})
	require.True(t, ok)
	assert.Equal(t, a, c, "the same without the file")
}

func TestLeasesRunOut(t *testing.T) {
	l := open(t, "", 100, 102)
	l.Reserve([]string{"known"})
	given := map[netip.Addr]bool{}
	for i := range 2 {
		a, ok := l.Offer(noon, fmt.Sprint("stranger ", i), netip.Addr{})
		require.True(t, ok)
		require.True(t, l.Take(noon, fmt.Sprint("stranger ", i), a, time.Hour))
		given[a] = true
	}
	_, ok := l.Offer(noon, "stranger 2", netip.Addr{})
	assert.False(t, ok, "the last one is reserved")
	for n := 100; n <= 102; n++ {
		assert.False(t, l.Take(noon, "stranger 2", addr(n), time.Hour))
	}
	a, ok := l.Offer(noon, "known", netip.Addr{})
	require.True(t, ok)
	assert.False(t, given[a])

	_, ok = l.Offer(noon.Add(2*time.Hour), "stranger 2", netip.Addr{})
	assert.True(t, ok, "leases end")
}

func TestServersAddressIsNotGiven(t *testing.T) {
	l := open(t, "", 1, 2)
	a, ok := l.Offer(noon, "a", addr(1))
	require.True(t, ok)
	assert.Equal(t, addr(2), a)
	_, ok = l.Offer(noon, "b", netip.Addr{})
	assert.False(t, ok)
	assert.False(t, l.Take(noon, "b", addr(1), time.Hour))
}

func TestDecline(t *testing.T) {
	l := open(t, "", 100, 101)
	a, _ := l.Offer(noon, "a", addr(100))
	l.Decline(noon, "b", a)
	assert.True(t, l.Take(noon, "a", a, time.Hour), "nobody declines for another")
	l.Decline(noon, "a", a)
	b, ok := l.Offer(noon, "a", a)
	require.True(t, ok)
	assert.Equal(t, addr(101), b)
	l.Forget("a")
	c, ok := l.Offer(noon.Add(time.Hour), "c", a)
	require.True(t, ok)
	assert.Equal(t, a, c, "in a while it is tried again")
}

func TestLeaseFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err := OpenLeases(path, addr(100), addr(110), addr(1))
	require.ErrorContains(t, err, "remove the file")

	require.NoError(t, os.WriteFile(path, []byte(`{"a":{"addr":"10.0.0.105","until":"2026-11-30T13:00:00Z"},"b":{"addr":"10.0.9.1"},"c":{"addr":"10.0.0.105"},"d":{"addr":""}}`), 0o600))
	l := open(t, path, 100, 110)
	assert.Len(t, l.byMAC, 1, "one for each address of the range")
}
