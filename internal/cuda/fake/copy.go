package fake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
)

// Copy implements [cuda.Stream]. It runs at once.
func (s *stream) Copy(dst, src cuda.Ptr, n int64) error {
	return s.copy(dst, src, n, false)
}

// CopyPeer implements [cuda.Stream].
func (s *stream) CopyPeer(dst cuda.Ptr, dstCtx cuda.Context, src cuda.Ptr, srcCtx cuda.Context, n int64) error {
	d, p := dstCtx.(*ctx).index, srcCtx.(*ctx).index
	return s.copy(dst, src, n, d != p && !s.ctx.peers[d] && !s.ctx.peers[p])
}

// Fill implements [cuda.Stream].
func (s *stream) Fill(dst cuda.Ptr, word uint32, n int64) error {
	if s.ctx.broken != nil {
		return s.ctx.broken
	}
	s.ctx.sys.mu.Lock()
	defer s.ctx.sys.mu.Unlock()
	a, err := s.ctx.sys.find(dst, n)
	if err != nil {
		return err
	}
	if a.owner != s.ctx.index {
		return fmt.Errorf("fake: GPU %d fills memory of GPU %d", s.ctx.index, a.owner)
	}
	copy(a.data[dst-a.base:][:n], bytes.Repeat(binary.LittleEndian.AppendUint32(nil, word), int(n/4)))
	return nil
}

func (s *stream) copy(dst, src cuda.Ptr, n int64, staged bool) error {
	sys := s.ctx.sys
	sys.mu.Lock()
	defer sys.mu.Unlock()
	if s.ctx.broken != nil {
		return s.ctx.broken
	}
	d, err := sys.find(dst, n)
	if err != nil {
		return err
	}
	f, err := sys.find(src, n)
	if err != nil {
		return err
	}
	peer, fault := s.route(d, f)
	self := &sys.GPUs[s.ctx.index]
	gbps := self.Copy
	switch {
	case peer != s.ctx.index:
		link := sys.link(Route{s.ctx.index, peer})
		gbps = link.GBps
		if staged {
			gbps, fault = link.StagedGBps, Fault{}
		} else if !s.ctx.peers[peer] {
			return fmt.Errorf("fake: GPU %d has no peer access to GPU %d", s.ctx.index, peer)
		}
	case d.owner == host || f.owner == host:
		gbps = self.HostGBps
	}
	s.clock += time.Duration(float64(n) / gbps)

	to := s.view(d, staged)[dst-d.base:][:n]
	from := s.view(f, staged)[src-f.base:]
	if fault.Kind != None && fault.After > 0 {
		r := Route{s.ctx.index, peer}
		if sys.copies == nil {
			sys.copies = map[Route]int{}
		}
		if sys.copies[r]++; sys.copies[r] <= fault.After {
			fault = Fault{}
		}
	}
	return s.move(to, from, fault)
}

// route returns the GPU at the other end of a copy, which is the stream's own
// one for local copies, and the fault on the way.
func (s *stream) route(dst, src *allocation) (int, Fault) {
	self := s.ctx.index
	for _, end := range []struct {
		owner int
		write bool
	}{{dst.owner, true}, {src.owner, false}} {
		if end.owner == self || end.owner == host {
			continue
		}
		link := s.ctx.sys.link(Route{self, end.owner})
		if end.write {
			return end.owner, link.Write
		}
		return end.owner, link.Read
	}
	return self, s.ctx.sys.GPUs[self].Local
}

// view returns the bytes that the stream's GPU sees of a.
func (s *stream) view(a *allocation, staged bool) []byte {
	sys, self := s.ctx.sys, s.ctx.index
	if a.owner == self || a.owner == host || staged || !sys.link(Route{self, a.owner}).Mirror {
		return a.data
	}
	if sys.mirrors == nil {
		sys.mirrors = map[mirror][]byte{}
	}
	key := mirror{self, a}
	if sys.mirrors[key] == nil {
		sys.mirrors[key] = make([]byte, len(a.data))
	}
	return sys.mirrors[key]
}

// move copies the head of from to all of to, through fault.
func (s *stream) move(to, from []byte, fault Fault) error {
	if fault.Kind == None {
		copy(to, from)
		return nil
	}
	kept := bytes.Clone(to)
	copy(to, from)
	lo, hi := fault.Offset, fault.Offset+fault.Size
	if fault.Size == 0 {
		hi = int64(len(to))
	}
	lo, hi = min(lo, int64(len(to))), min(hi, int64(len(to)))
	bad := to[lo:hi]
	switch fault.Kind {
	case Drop:
		copy(bad, kept[lo:hi])
	case Clear:
		clear(bad)
	case Ones:
		copy(bad, bytes.Repeat([]byte{0xff}, len(bad)))
	case Flip:
		for i := 0; i < len(bad); i += 4096 {
			bad[i] ^= 1
		}
	case Shift:
		copy(bad, from[min(lo+fault.Shift, int64(len(from))):])
	case Fail:
		copy(to, kept)
		s.ctx.broken = fault.Err
	case Hang:
		s.hung = true
	}
	return nil
}
