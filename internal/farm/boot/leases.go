package boot

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/google/renameio/v2"
)

// Times for which an address is kept for whom it was offered to, and is not given
// to anybody after a client found it in use.
const (
	offerTime   = time.Minute
	declineTime = 10 * time.Minute
)

// Leases are the addresses of a net and who has them. A machine keeps its address
// while firmware, iPXE and the image ask in turn, since only its MAC address
// counts; and as far as possible across a loss of the file, since the search for a
// free address begins at one that follows from the MAC address.
type Leases struct {
	mu      sync.Mutex
	path    string // empty: they are not kept
	first   uint32
	size    uint32
	server  netip.Addr      // not to give
	known   map[string]bool // MAC addresses that an address is kept free for
	byMAC   map[string]lease
	byAddr  map[netip.Addr]string // MAC address; of one that was declined, the address itself
	changed bool
}

// lease is an address until a time.
type lease struct {
	Addr  netip.Addr `json:"addr"`
	Until time.Time  `json:"until"`
}

// OpenLeases reads the leases of a range of addresses from a file, if it is there.
// The address of the server itself, if it is in the range, is not given.
func OpenLeases(path string, first, last, server netip.Addr) (*Leases, error) {
	l := &Leases{
		path: path, first: number(first), size: number(last) - number(first) + 1, server: server,
		byMAC: map[string]lease{}, byAddr: map[netip.Addr]string{},
	}
	if path == "" {
		return l, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	stored := map[string]lease{}
	if err := json.Unmarshal(data, &stored); err != nil {
		return nil, fmt.Errorf("leases in %s: %w: remove the file to give addresses anew", path, err)
	}
	for mac, v := range stored {
		if _, taken := l.byAddr[v.Addr]; !taken && l.has(v.Addr) {
			l.byMAC[mac], l.byAddr[v.Addr] = v, mac
		}
	}
	return l, nil
}

// Reserve keeps an address free for each of these machines, so that no others can
// use up all of them.
func (l *Leases) Reserve(macs []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = map[string]bool{}
	for _, mac := range macs {
		l.known[mac] = true
	}
}

// Offer finds an address for a machine: the one that it has, else the one that it
// wants if that is free, else any. It is false if none is left.
func (l *Leases) Offer(now time.Time, mac string, wanted netip.Addr) (netip.Addr, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own, ok := l.byMAC[mac]; ok {
		l.hold(mac, own.Addr, later(own.Until, now.Add(offerTime)))
		return own.Addr, true
	}
	l.expire(now)
	if !l.known[mac] && l.left() <= 0 {
		return netip.Addr{}, false
	}
	if _, taken := l.byAddr[wanted]; taken || !l.has(wanted) {
		var ok bool
		if wanted, ok = l.free(mac); !ok {
			return netip.Addr{}, false
		}
	}
	l.hold(mac, wanted, now.Add(offerTime))
	return wanted, true
}

// Take gives a machine an address that it asks for: the one that was offered to
// it, or one that it had and nobody else has.
func (l *Leases) Take(now time.Time, mac string, wanted netip.Addr, d time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, has := l.byMAC[mac]
	if has && own.Addr != wanted {
		return false
	}
	if !has {
		l.expire(now)
		if _, taken := l.byAddr[wanted]; taken || !l.has(wanted) || (!l.known[mac] && l.left() <= 0) {
			return false
		}
	}
	l.hold(mac, wanted, now.Add(d))
	l.changed = true
	return true
}

// Forget frees the address of a machine.
func (l *Leases) Forget(mac string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own, ok := l.byMAC[mac]; ok {
		l.drop(mac, own.Addr)
	}
}

// Decline takes an address that a machine found in use away from it.
func (l *Leases) Decline(now time.Time, mac string, addr netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own, ok := l.byMAC[mac]; !ok || own.Addr != addr {
		return // nobody can decline what is another's
	}
	l.drop(mac, addr)
	l.hold(addr.String(), addr, now.Add(declineTime))
}

// Save writes the file if there is anything new.
func (l *Leases) Save() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.changed || l.path == "" {
		return nil
	}
	data, err := json.MarshalIndent(l.byMAC, "", " ")
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(l.path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	l.changed = false
	return nil
}

func (l *Leases) hold(mac string, addr netip.Addr, until time.Time) {
	l.byAddr[addr] = mac
	l.byMAC[mac] = lease{addr, until}
}

func (l *Leases) drop(mac string, addr netip.Addr) {
	delete(l.byAddr, addr)
	delete(l.byMAC, mac)
	l.changed = true
}

// expire drops what is over.
func (l *Leases) expire(now time.Time) {
	for addr, mac := range l.byAddr {
		if l.byMAC[mac].Until.Before(now) {
			l.drop(mac, addr)
		}
	}
}

// left is how many addresses there are for machines that are not known.
func (l *Leases) left() int {
	n := int(l.size) - len(l.byAddr)
	if l.inRange(l.server) {
		n--
	}
	for mac := range l.known {
		if _, has := l.byMAC[mac]; !has {
			n--
		}
	}
	return n
}

// free is the first free address from the one on that follows from the MAC address.
func (l *Leases) free(mac string) (netip.Addr, bool) {
	h := fnv.New32a()
	h.Write([]byte(mac)) //nolint:errcheck // a hash never fails
	for i := range l.size {
		addr := address(l.first + uint32((uint64(h.Sum32())+uint64(i))%uint64(l.size)))
		if _, taken := l.byAddr[addr]; !taken && addr != l.server {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// has says whether an address is one to give.
func (l *Leases) has(addr netip.Addr) bool { return l.inRange(addr) && addr != l.server }

func (l *Leases) inRange(addr netip.Addr) bool { return addr.Is4() && number(addr)-l.first < l.size }

func number(a netip.Addr) uint32 { b := a.As4(); return binary.BigEndian.Uint32(b[:]) }

func address(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
