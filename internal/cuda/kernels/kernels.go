// Package kernels holds the code that runs on GPUs, as PTX, and starts it through
// package cuda.
//
// The driver compiles the PTX when it is loaded. Ready-made code for each
// architecture would save that moment, but only NVIDIA's proprietary assembler
// makes it, nobody could rebuild it without, and it would not run on GPUs that
// appear later. The compiler, libnvidia-ptxjitcompiler.so.1, comes with every
// driver.
package kernels

import (
	_ "embed"
	"fmt"
	"time"

	"mkp2pimg/internal/cuda"
)

// PTX is the source of all kernels.
//
//go:embed kernels.ptx
var PTX string

// The names of the kernels, which kernels.ptx describes.
const (
	NameCopyStride = "copy_stride"
	NameCopyOnce   = "copy_once"
	NameFill       = "fill"
	NameRead       = "read"
	NameVerify     = "verify"
	NameChase      = "chase"
	NameChaseSys   = "chase_sys"
	NameSpin       = "spin"
	NamePingPong   = "ping_pong"
	NameProduce    = "produce"
	NameConsume    = "consume"
	NameAtomics    = "atomics"
)

var names = []string{
	NameCopyStride, NameCopyOnce, NameFill, NameRead, NameVerify, NameChase,
	NameChaseSys, NameSpin, NamePingPong, NameProduce, NameConsume, NameAtomics,
}

// Shapes of the grids. With 512 threads for each multiprocessor and 12 loads in
// flight, 96 KiB are under way per multiprocessor, several times what any link
// needs. Verify needs more registers a thread, and Read has the GPU's own memory
// to keep busy.
const (
	strideThreads = 512
	onceThreads   = 256
	verifyThreads = 256
	verifyBlocks  = 3 // per multiprocessor
	readBlocks    = 4

	exchangeThreads = 256 // of Produce and Consume

	// strideFrom is the size in bytes from which Copy strides. A smaller copy has
	// too few quads per thread for that.
	strideFrom = 64 << 20
)

// quad is the size in bytes that kernels move at once.
const quad = 16

// Kernels are the kernels, loaded into one context. The zero value is not usable.
type Kernels struct {
	ctx       cuda.Context
	sms       int
	module    cuda.Module
	functions map[string]cuda.Function
}

// Load compiles the kernels for ctx, whose device has sms multiprocessors.
func Load(ctx cuda.Context, sms int) (*Kernels, error) {
	m, err := ctx.LoadModule(PTX)
	if err != nil {
		return nil, err
	}
	k := &Kernels{ctx: ctx, sms: max(sms, 1), module: m, functions: map[string]cuda.Function{}}
	for _, name := range names {
		if k.functions[name], err = m.Function(name); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// Unload frees the code.
func (k *Kernels) Unload() error { return k.module.Unload() }

func (k *Kernels) launch(s cuda.Stream, name string, blocks, threads int, params ...uint64) error {
	return s.Launch(k.functions[name], blocks, threads, params...)
}

// quads returns the number of quads in size bytes.
func quads(what string, size int64) (uint64, error) {
	if size < 0 || size%quad != 0 {
		return 0, fmt.Errorf("%s of %d bytes: the size must be a multiple of %d", what, size, quad)
	}
	return uint64(size / quad), nil
}

// Copy queues copies of size bytes, a multiple of 16, from src to dst, loops
// times over, by the multiprocessors of the stream's GPU. If src is a peer's
// memory they load remotely, if dst is, they store remotely. All loops run in one
// launch, so that nothing of the link's time is lost between them.
func (k *Kernels) Copy(s cuda.Stream, dst, src cuda.Ptr, size int64, loops int) error {
	n, err := quads("copy", size)
	if err != nil || n == 0 {
		return err
	}
	if size >= strideFrom {
		return k.launch(s, NameCopyStride, k.sms, strideThreads, uint64(dst), uint64(src), n, uint64(loops))
	}
	blocks := (n + onceThreads - 1) / onceThreads
	return k.launch(s, NameCopyOnce, int(blocks), onceThreads, uint64(dst), uint64(src), n, uint64(loops))
}

// Fill queues the writing of the pattern's bytes from offset to offset+size, both
// multiples of 16, to dst.
func (k *Kernels) Fill(s cuda.Stream, dst cuda.Ptr, p Pattern, offset, size int64) error {
	n, err := quads("fill", size)
	if err != nil {
		return err
	}
	return k.launch(s, NameFill, readBlocks*k.sms, strideThreads, uint64(dst), n, p.Key, uint64(offset/wordSize))
}

// Read queues the reading of size bytes, a multiple of 16, at src; [Slot.Sum]
// shows their exclusive or. It is as fast as reading gets, to compare Verify with.
func (k *Kernels) Read(s cuda.Stream, slot *Slot, src cuda.Ptr, size int64) error {
	n, err := quads("read", size)
	if err != nil {
		return err
	}
	return slot.around(s, func(out uint64) error {
		return k.launch(s, NameRead, readBlocks*k.sms, strideThreads, uint64(src), n, out)
	})
}

// An Expectation is what memory should hold and what may be there instead.
type Expectation struct {
	Pattern  Pattern
	Offset   int64   // of the memory's first byte in the pattern, a multiple of 8
	Total    int64   // bytes of the whole buffer, to tell misplaced words
	Previous Pattern // what was there before the poison, or the zero Pattern
	Poison   uint32  // what the owner filled the memory with
}

// Verify queues the comparison of size bytes, a multiple of 16, at src with what
// is expected; [Slot.Verified] shows the result.
func (k *Kernels) Verify(s cuda.Stream, slot *Slot, src cuda.Ptr, size int64, e Expectation) error {
	n, err := quads("verification", size)
	if err != nil {
		return err
	}
	poison := uint64(e.Poison)<<32 | uint64(e.Poison)
	return slot.around(s, func(out uint64) error {
		return k.launch(s, NameVerify, verifyBlocks*k.sms, verifyThreads, uint64(src), n,
			e.Pattern.Key, uint64(e.Offset/wordSize), uint64(e.Total/wordSize), e.Previous.Key, poison, out)
	})
}

// Chase queues accesses dependent loads along the chain that starts at start, by
// one thread, in block number block of as many as there are multiprocessors.
// [Slot.Elapsed], divided by accesses, is the latency of a load; [Slot.Chased]
// tells whether the chain was followed. With sys the loads are
// ld.relaxed.sys, else plain ones, which a cache may answer when a chain is
// followed more than once.
func (k *Kernels) Chase(s cuda.Stream, slot *Slot, start cuda.Ptr, accesses, block int, sys bool) error {
	name := NameChase
	if sys {
		name = NameChaseSys
	}
	return slot.around(s, func(out uint64) error {
		return k.launch(s, name, k.sms, 1, uint64(start), uint64(accesses), uint64(block), out)
	})
}

// PingPong queues one side of rounds of flags to and fro between two GPUs, or two
// streams of one. Each side polls the 32-bit flag at own, best in its own memory,
// and writes the other's at peer; both start at 0. The side with first begins. A
// side gives up after timeout. [Slot.Exchanged] shows what was done.
func (k *Kernels) PingPong(s cuda.Stream, slot *Slot, own, peer cuda.Ptr, rounds int, first bool, timeout time.Duration) error {
	var serves uint64
	if first {
		serves = 1
	}
	return slot.around(s, func(out uint64) error {
		return k.launch(s, NamePingPong, 1, 1, uint64(own), uint64(peer), uint64(rounds), serves, uint64(timeout), out)
	})
}

// A Channel is memory through which a producer hands data to a consumer. Flag and
// Ack are 32-bit words that start at 0.
type Channel struct {
	Data, Flag, Ack cuda.Ptr
	Words           int    // 64-bit words of data in each round
	Rounds          int    // each has other data, at the same place
	Seed            uint64 // from which the data is made
}

// Produce queues the producer's side of c: plain stores of the data, then a store
// of the round's number to the flag with release at system scope, as all-reduce
// kernels of machine learning do. It gives up after timeout. [Slot.Exchanged]
// shows what was done.
func (k *Kernels) Produce(s cuda.Stream, slot *Slot, c Channel, timeout time.Duration) error {
	return k.exchange(s, slot, NameProduce, c, timeout)
}

// Consume queues the consumer's side of c: it waits for the flag with acquire at
// system scope and then checks the data with plain loads.
func (k *Kernels) Consume(s cuda.Stream, slot *Slot, c Channel, timeout time.Duration) error {
	return k.exchange(s, slot, NameConsume, c, timeout)
}

func (k *Kernels) exchange(s cuda.Stream, slot *Slot, name string, c Channel, timeout time.Duration) error {
	return slot.around(s, func(out uint64) error {
		return k.launch(s, name, 1, exchangeThreads, uint64(c.Data), uint64(c.Flag), uint64(c.Ack),
			uint64(c.Words), uint64(c.Rounds), c.Seed, uint64(timeout), out)
	})
}

// Atomics queues n atomic additions of 1 at system scope to the 64-bit word at
// target by each of threads threads, up to 1024, and as many tries to increment
// the next word by compare-and-swap. [Slot.Atomics] shows what the memory should
// hold, of this side's doing.
func (k *Kernels) Atomics(s cuda.Stream, slot *Slot, target cuda.Ptr, threads, n int) error {
	return slot.around(s, func(out uint64) error {
		return k.launch(s, NameAtomics, 1, threads, uint64(target), uint64(n), out)
	})
}

// Hold queues a wait for the gate to open, for timeout at most.
func (k *Kernels) Hold(s cuda.Stream, g *Gate, timeout time.Duration) error {
	return k.launch(s, NameSpin, 1, 1, uint64(g.host.Ptr), uint64(timeout), uint64(g.host.Ptr)+gateLate)
}
