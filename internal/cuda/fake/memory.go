package fake

import (
	"bytes"
	"encoding/binary"
	"slices"
	"time"
	"unsafe"

	"mkp2pimg/internal/cuda"
)

// host is the owner of the host's memory.
const host = -1

// pageSize is the least that a mapping maps.
const pageSize = 4096

type allocation struct {
	base    cuda.Ptr
	data    []byte
	owner   int            // index of the GPU, or host
	mirrors map[int][]byte // by initiator: its private memory instead of this
	seen    map[int][]byte // by initiator: what it read first
}

// allocate returns n bytes owned by the GPU owner, or host. Addresses leave a
// gap behind each allocation so that an overrun is found.
func (s *System) allocate(owner int, n int64) *allocation {
	const gap = 1 << 20
	s.next = (s.next + 2*gap - 1) &^ (gap - 1)
	// Made of words, to be aligned for the flags that kernels poll.
	words := make([]uint64, n/8+1)
	data := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), n)
	a := &allocation{base: s.next, data: data, owner: owner, mirrors: map[int][]byte{}, seen: map[int][]byte{}}
	s.next += cuda.Ptr(n)
	s.memory = append(s.memory, a)
	return a
}

// free frees the allocation at p and returns its size in the GPU's memory.
func (s *System) free(p cuda.Ptr) (int64, error) {
	s.run()
	i := slices.IndexFunc(s.memory, func(a *allocation) bool { return a.base == p })
	if i < 0 {
		return 0, failure("cuMemFree_v2", cuda.InvalidValue, "INVALID_VALUE", "invalid argument")
	}
	n := int64(len(s.memory[i].data))
	s.memory = slices.Delete(s.memory, i, i+1)
	return n, nil
}

func (s *System) find(p cuda.Ptr, n int64) *allocation {
	for _, a := range s.memory {
		if p >= a.base && p+cuda.Ptr(n) <= a.base+cuda.Ptr(len(a.data)) {
			return a
		}
	}
	return nil
}

// An area is memory as one GPU sees it.
type area struct {
	s     *stream
	a     *allocation
	at, n int64 // offset and size in a
	link  Link  // if remote
	local bool
}

// reach finds the memory at p for an access by the stream's GPU. It breaks the
// context if there is none.
func (s *stream) reach(t *thread, p cuda.Ptr, n int64) area {
	sys, self := s.ctx.sys, s.ctx.index
	a := sys.find(p, n)
	if a == nil || a.owner != self && a.owner != host && !s.ctx.peers[a.owner] {
		s.fail(t, failure("cuStreamQuery", cuda.IllegalAddress, "ILLEGAL_ADDRESS", "an illegal memory access was encountered"))
	}
	x := area{s: s, a: a, at: int64(p - a.base), n: n, local: a.owner == self || a.owner == host}
	if !x.local {
		x.link = sys.link(Route{self, a.owner})
	}
	return x
}

// fail breaks the context and ends the program.
func (s *stream) fail(t *thread, err *cuda.Error) {
	sys := s.ctx.sys
	if sys.broken == nil {
		sys.broken = map[int]*cuda.Error{}
	}
	sys.broken[s.ctx.index] = err
	t.until(nil, forever)
}

// direct tells whether the GPU's mapping leads where it should.
func (x area) direct() bool { return x.local || x.link.Offset == 0 && x.link.Alias == 0 }

// pages calls f with each piece of the area and the memory that the GPU's mapping
// leads to, or nil where it leads to none.
func (x area) pages(f func(offset, n int64, memory []byte)) {
	if x.direct() {
		f(0, x.n, x.memory()[x.at:x.at+x.n])
		return
	}
	for done := int64(0); done < x.n; {
		at := x.at + done
		n := min(pageSize-at%pageSize, x.n-done)
		if x.link.Alias != 0 {
			at %= x.link.Alias
		}
		at += x.link.Offset
		if at < 0 || at+n > int64(len(x.a.data)) {
			f(done, n, nil)
		} else {
			f(done, n, x.memory()[at:at+n])
		}
		done += n
	}
}

// memory returns the bytes of the whole allocation that the GPU sees.
func (x area) memory() []byte {
	if !x.link.Mirror {
		return x.a.data
	}
	self := x.s.ctx.index
	if x.a.mirrors[self] == nil {
		x.a.mirrors[self] = make([]byte, len(x.a.data))
	}
	return x.a.mirrors[self]
}

// load returns what the GPU reads of the area.
func (x area) load(f Fault) []byte {
	b := make([]byte, x.n)
	x.pages(func(offset, n int64, memory []byte) {
		if memory == nil { // what a PCIe read that nobody answers gives
			memory = bytes.Repeat([]byte{0xff}, int(n))
		}
		copy(b[offset:], memory)
	})
	if f.Kind != Drop {
		return f.damage(b)
	}
	self := x.s.ctx.index
	if x.a.seen[self] == nil {
		x.a.seen[self] = bytes.Clone(x.a.data)
	}
	lo, hi := f.bounds(x.n)
	copy(b[lo:hi], x.a.seen[self][x.at+lo:])
	return b
}

// store lets the GPU write b, of the area's size.
func (x area) store(b []byte, f Fault) {
	lo, hi := f.bounds(x.n)
	if f.Kind != Drop {
		b, lo, hi = f.damage(b), 0, 0
	}
	x.pages(func(offset, n int64, memory []byte) {
		if memory == nil {
			return
		}
		// All of the piece but what lies between lo and hi.
		cut := func(at int64) int64 { return min(max(at-offset, 0), n) }
		b := b[offset : offset+n]
		copy(memory[:cut(lo)], b)
		copy(memory[cut(hi):], b[cut(hi):])
	})
}

func (f Fault) bounds(n int64) (lo, hi int64) {
	if f.Kind == None {
		return 0, 0
	}
	if f.Size == 0 {
		return min(f.Offset, n), n
	}
	return min(f.Offset, n), min(f.Offset+f.Size, n)
}

// damage returns b, changed as the fault wants it.
func (f Fault) damage(b []byte) []byte {
	lo, hi := f.bounds(int64(len(b)))
	if lo == hi {
		return b
	}
	kept := b
	b = bytes.Clone(b)
	bad := b[lo:hi]
	switch f.Kind {
	case Clear:
		clear(bad)
	case Ones:
		copy(bad, bytes.Repeat([]byte{0xff}, len(bad)))
	case Flip:
		for i := 0; i < len(bad); i += pageSize {
			bad[i] ^= 1
		}
	case Shift:
		copy(bad, kept[min(lo+f.Shift, int64(len(kept))):])
	}
	return b
}

// fault returns what befalls an access to x by the engine, the count'th on its
// link. It does not return if the fault ends the program.
func (s *stream) fault(t *thread, x area, e Engine, write bool, count int) Fault {
	f := x.link.Read
	switch {
	case x.local:
		f = s.ctx.sys.GPUs[s.ctx.index].Local
	case write:
		f = x.link.Write
	}
	if f.Kind == None || f.Only != Any && f.Only != e || count <= f.After || x.n <= 8 && f.Size != 0 {
		return Fault{}
	}
	switch f.Kind {
	case Fail:
		s.fail(t, f.Err)
	case Hang:
		t.until(nil, forever)
	}
	return f
}

// count counts n accesses on the link to the owner of x and returns the number of
// the first.
func (s *stream) count(x area, n int) int {
	sys := s.ctx.sys
	if sys.copies == nil {
		sys.copies = map[Route]int{}
	}
	r := Route{s.ctx.index, x.a.owner}
	if x.local {
		r.Peer = r.Initiator
	}
	first := sys.copies[r] + 1
	sys.copies[r] += n
	return first
}

// transfer copies n bytes loops times over: it takes the time for all of them,
// and does the first and the last.
func (s *stream) transfer(t *thread, dst, src cuda.Ptr, n int64, loops int, e Engine) {
	to, from := s.reach(t, dst, n), s.reach(t, src, n)
	remote, write := to, true
	if to.local {
		remote, write = from, false
	}
	first := s.count(remote, loops)
	s.flow(t, s.between(from, to, remote, write, e, float64(n)*float64(loops)))
	for i, count := range []int{first, first + loops - 1} {
		if i == 1 && loops == 1 {
			break
		}
		var onLoad, onStore Fault
		if write || remote.local {
			onStore = s.fault(t, remote, e, true, count)
		} else {
			onLoad = s.fault(t, remote, e, false, count)
		}
		if onLoad.Kind == None && from.direct() { // spares a copy of what may be large
			to.store(from.memory()[from.at:from.at+n], onStore)
		} else {
			to.store(from.load(onLoad), onStore)
		}
	}
}

// between returns the flow of a copy.
func (s *stream) between(from, to, remote area, write bool, e Engine, n float64) flow {
	self := s.ctx.sys.GPUs[s.ctx.index]
	f := flow{left: n, from: from.a.owner, to: to.a.owner, write: write, peer: !remote.local, route: Route{s.ctx.index, remote.a.owner}}
	speed := self.Copy
	switch {
	case f.peer:
		link := remote.link
		f.alone = func(now float64) float64 { return link.speed(e, write, now) }
		return f
	case from.a.owner == host || to.a.owner == host:
		speed = self.HostGBps
	}
	f.alone = func(float64) float64 { return speed }
	return f
}

func (l Link) speed(e Engine, write bool, now float64) float64 {
	r := l.GBps
	if !write && l.ReadGBps != 0 {
		r = l.ReadGBps
	}
	if e == SM && l.SMGBps != 0 {
		r = l.SMGBps
	}
	if l.ThrottledGBps != 0 && now >= float64(l.Throttle) {
		r = min(r, l.ThrottledGBps)
	}
	return r
}

// staged copies n bytes through host memory, which no fault of the link harms.
func (s *stream) staged(t *thread, r Route, dst, src cuda.Ptr, n int64) {
	sys := s.ctx.sys
	to, from := sys.find(dst, n), sys.find(src, n)
	if to == nil || from == nil {
		s.fail(t, failure("cuMemcpyPeerAsync", cuda.InvalidValue, "INVALID_VALUE", "invalid argument"))
	}
	speed := sys.link(r).StagedGBps
	s.flow(t, flow{left: float64(n), from: from.owner, to: to.owner, alone: func(float64) float64 { return speed }})
	copy(to.data[dst-to.base:][:n], from.data[src-from.base:])
}

// fill sets n bytes of the GPU's own memory to copies of word.
func (s *stream) fill(t *thread, dst cuda.Ptr, word uint32, n int64) {
	x := s.reach(t, dst, n)
	s.work(t, n)
	x.store(bytes.Repeat(binary.LittleEndian.AppendUint32(nil, word), int(n/4)), Fault{})
}

// work lets the time pass that it takes to go over n bytes of the GPU's memory.
func (s *stream) work(t *thread, n int64) {
	self := s.ctx.index
	s.flow(t, flow{left: float64(n), from: self, to: self, alone: func(float64) float64 { return s.ctx.sys.GPUs[self].Copy }})
}

// sleep lets time pass.
func (s *stream) sleep(t *thread, d time.Duration) {
	if d > 0 {
		t.until(nil, s.ctx.sys.now+float64(d))
	}
}
