package fake

import (
	"encoding/binary"
	"time"

	"mkp2pimg/internal/cuda"
	"mkp2pimg/internal/cuda/kernels"
)

// A grid is the number of blocks and of threads in each.
type grid struct{ blocks, threads int }

// programs are the kernels by name. Their parameters are those of the PTX.
var programs map[string]func(s *stream, t *thread, g grid, p []uint64)

func init() {
	programs = map[string]func(*stream, *thread, grid, []uint64){
		kernels.NameCopyStride: copyQuads,
		kernels.NameCopyOnce:   copyQuads,
		kernels.NameFill:       fillPattern,
		kernels.NameRead:       read,
		kernels.NameVerify:     verify,
		kernels.NameChase:      chase,
		kernels.NameChaseSys:   chase,
		kernels.NameSpin:       spin,
		kernels.NamePingPong:   pingPong,
		kernels.NameProduce:    produce,
		kernels.NameConsume:    consume,
		kernels.NameAtomics:    atomics,
	}
}

// quad is the size in bytes that the parameters of kernels count in.
const quad = 16

// get loads n bytes at p by the stream's GPU, with the faults of one access.
func (s *stream) get(t *thread, p cuda.Ptr, n int64) []byte {
	x := s.reach(t, p, n)
	if x.local {
		return x.load(Fault{})
	}
	return x.load(s.fault(t, x, SM, false, s.count(x, 1)))
}

// put stores b at p by the stream's GPU, with the faults of one access.
func (s *stream) put(t *thread, p cuda.Ptr, b []byte) {
	x := s.reach(t, p, int64(len(b)))
	if x.local {
		x.store(b, Fault{})
		return
	}
	x.store(b, s.fault(t, x, SM, true, s.count(x, 1)))
}

// result stores values at p.
func (s *stream) result(t *thread, p uint64, values ...uint64) {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	s.put(t, cuda.Ptr(p), b)
}

// scan lets the time pass that it takes to read n bytes at p, from wherever they
// are.
func (s *stream) scan(t *thread, p cuda.Ptr, n int64) {
	x := s.reach(t, p, n)
	if x.local {
		s.work(t, n)
		return
	}
	self := area{a: &allocation{owner: s.ctx.index}, local: true}
	s.flow(t, s.between(x, self, x, false, SM, float64(n)))
}

func copyQuads(s *stream, t *thread, _ grid, p []uint64) {
	s.transfer(t, cuda.Ptr(p[0]), cuda.Ptr(p[1]), int64(p[2])*quad, int(p[3]), SM)
}

func fillPattern(s *stream, t *thread, _ grid, p []uint64) {
	n := int64(p[1]) * quad
	s.scan(t, cuda.Ptr(p[0]), n)
	b := make([]byte, n)
	kernels.Pattern{Key: p[2]}.Fill(b, int64(p[3])*8)
	s.put(t, cuda.Ptr(p[0]), b)
}

func read(s *stream, t *thread, _ grid, p []uint64) {
	n := int64(p[1]) * quad
	s.scan(t, cuda.Ptr(p[0]), n)
	var sum uint64
	for b := s.get(t, cuda.Ptr(p[0]), n); len(b) > 0; b = b[8:] {
		sum ^= binary.LittleEndian.Uint64(b)
	}
	s.result(t, p[2], sum)
}

func verify(s *stream, t *thread, _ grid, p []uint64) {
	n := int64(p[1]) * quad
	want, first, total, previous, poison := kernels.Pattern{Key: p[2]}, p[3], p[4], kernels.Pattern{Key: p[5]}, p[6]
	s.scan(t, cuda.Ptr(p[0]), n)
	var out [8]uint64
	b := s.get(t, cuda.Ptr(p[0]), n)
	for i := first; len(b) > 0; i, b = i+1, b[8:] {
		got := binary.LittleEndian.Uint64(b)
		if got == want.Word(i) {
			continue
		}
		kind := 5
		switch {
		case got == poison:
			kind = 0
		case got == 0:
			kind = 1
		case got == ^uint64(0):
			kind = 2
		case previous.Key != 0 && got == previous.Word(i):
			kind = 3
		case want.Index(got) < total:
			kind = 4
		}
		out[kind]++
		out[6], out[7] = max(out[6], ^i), max(out[7], i+1)
	}
	s.result(t, p[7], out[:]...)
}

// latency is how long a load from x takes.
func (s *stream) latency(x area) time.Duration {
	if x.local {
		return s.ctx.sys.GPUs[s.ctx.index].Latency
	}
	return x.link.Latency
}

func chase(s *stream, t *thread, g grid, p []uint64) {
	at, n, block := p[0], p[1], p[2]
	if block >= uint64(g.blocks) {
		return
	}
	each := s.latency(s.reach(t, cuda.Ptr(at), 8))
	s.sleep(t, each*time.Duration(n))
	for range n {
		at = binary.LittleEndian.Uint64(s.get(t, cuda.Ptr(at), 8))
	}
	s.result(t, p[3], at, n*uint64(each), block)
}

// flag returns the 32-bit word at p as the stream's GPU sees it now, without
// counting the look as an access.
func (s *stream) flag(t *thread, p uint64) uint32 {
	x := s.reach(t, cuda.Ptr(p), 4)
	if x.a.owner == host {
		return cuda.HostMemory{Bytes: x.a.data}.Load(int(x.at))
	}
	return binary.LittleEndian.Uint32(x.load(Fault{}))
}

// await waits until the flag at p is v, until the deadline at most.
func (s *stream) await(t *thread, p uint64, v uint32, deadline float64) bool {
	return t.until(func() bool { return s.flag(t, p) == v }, deadline)
}

// raise stores the flag v at p, where it arrives after the link's latency.
func (s *stream) raise(t *thread, p uint64, v uint32) {
	x := s.reach(t, cuda.Ptr(p), 4)
	s.sleep(t, s.latency(x))
	if x.link.LoseFlag != int(v) {
		s.put(t, cuda.Ptr(p), binary.LittleEndian.AppendUint32(nil, v))
	}
}

func spin(s *stream, t *thread, _ grid, p []uint64) {
	if t.until(func() bool { return s.flag(t, p[0]) != 0 }, s.ctx.sys.now+float64(p[1])) {
		return
	}
	x := s.reach(t, cuda.Ptr(p[2]), 4)
	cuda.HostMemory{Bytes: x.a.data}.Store(int(x.at), 1)
}

// exchanged stores what the kernels that exchange flags have in common.
func (s *stream) exchanged(t *thread, out uint64, done int, begin float64, inTime bool, more ...uint64) {
	var late uint64
	if !inTime {
		late = 1
	}
	s.result(t, out, append([]uint64{uint64(done), uint64(s.ctx.sys.now - begin), late}, more...)...)
}

func pingPong(s *stream, t *thread, _ grid, p []uint64) {
	own, peer, rounds, first := p[0], p[1], int(p[2]), p[3] != 0
	begin, done, inTime := s.ctx.sys.now, 0, true
	for done < rounds {
		v := uint32(done + 1)
		if first {
			s.raise(t, peer, v)
		}
		if inTime = s.await(t, own, v, begin+float64(p[4])); !inTime {
			break
		}
		if !first {
			s.raise(t, peer, v)
		}
		done++
	}
	s.exchanged(t, p[5], done, begin, inTime)
}

func produce(s *stream, t *thread, _ grid, p []uint64) {
	data, words, rounds := cuda.Ptr(p[0]), int64(p[3]), int(p[4])
	pattern := kernels.Pattern{Key: p[5]}
	begin, done, inTime := s.ctx.sys.now, 0, true
	x := s.reach(t, data, words*8)
	for done < rounds {
		b := make([]byte, words*8)
		pattern.Fill(b, int64(done+1)*words*8)
		if x.link.FlagFirst {
			s.raise(t, p[1], uint32(done+1))
			s.sleep(t, 2*x.link.Latency)
			s.put(t, data, b)
		} else {
			s.put(t, data, b)
			s.raise(t, p[1], uint32(done+1))
		}
		if inTime = s.await(t, p[2], uint32(done+1), begin+float64(p[6])); !inTime {
			break
		}
		done++
	}
	s.exchanged(t, p[7], done, begin, inTime)
}

func consume(s *stream, t *thread, _ grid, p []uint64) {
	data, words, rounds := cuda.Ptr(p[0]), int64(p[3]), int(p[4])
	pattern := kernels.Pattern{Key: p[5]}
	begin, done, inTime := s.ctx.sys.now, 0, true
	var wrong, early uint64
	for done < rounds {
		if inTime = s.await(t, p[1], uint32(done+1), begin+float64(p[6])); !inTime {
			break
		}
		b := s.get(t, data, words*8)
		for i := int64(done+1) * words; len(b) > 0; i, b = i+1, b[8:] {
			if binary.LittleEndian.Uint64(b) != pattern.Word(uint64(i)) {
				wrong++
				early = max(early, ^uint64(done))
			}
		}
		s.raise(t, p[2], uint32(done+1))
		done++
	}
	s.exchanged(t, p[7], done, begin, inTime, wrong, early)
}

func atomics(s *stream, t *thread, g grid, p []uint64) {
	x := s.reach(t, cuda.Ptr(p[0]), 16)
	n := uint64(g.blocks*g.threads) * p[1]
	effective := n
	switch x.link.Atomics {
	case AtomicsFail:
		s.fail(t, failure("cuStreamQuery", cuda.LaunchFailed, "LAUNCH_FAILED", "unspecified launch failure"))
	case AtomicsLost:
		effective = n / 2
	}
	s.sleep(t, s.latency(x)*time.Duration(p[1]))
	b := x.load(Fault{})
	for i := range 2 {
		binary.LittleEndian.PutUint64(b[8*i:], binary.LittleEndian.Uint64(b[8*i:])+effective)
	}
	x.store(b, Fault{})
	s.result(t, p[2], n, n)
}
