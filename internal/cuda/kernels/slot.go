package kernels

import (
	"encoding/binary"
	"errors"
	"time"

	"mkp2pimg/internal/cuda"
)

// slotSize is the size in bytes of the largest result.
const slotSize = 64

// A Slot is where a kernel leaves its result: in the GPU's memory, copied to the
// host when the kernel has ended. A slot serves one kernel at a time; its results
// are valid when the stream is done.
type Slot struct {
	ctx        cuda.Context
	device     cuda.Ptr
	host       cuda.HostMemory
	start, end cuda.Event // right before and behind the kernel
}

// NewSlot returns a slot for kernels of k.
func (k *Kernels) NewSlot() (_ *Slot, err error) {
	s := &Slot{ctx: k.ctx}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.device, err = k.ctx.Alloc(slotSize); err != nil {
		return nil, err
	}
	if s.host, err = k.ctx.AllocHost(slotSize); err != nil {
		return nil, err
	}
	if s.start, err = k.ctx.NewEvent(); err != nil {
		return nil, err
	}
	if s.end, err = k.ctx.NewEvent(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close frees the slot.
func (s *Slot) Close() error {
	var errs []error
	if s.device != 0 {
		errs = append(errs, s.ctx.Free(s.device))
	}
	if s.host.Bytes != nil {
		errs = append(errs, s.ctx.FreeHost(s.host))
	}
	for _, e := range []cuda.Event{s.start, s.end} {
		if e != nil {
			errs = append(errs, e.Close())
		}
	}
	return errors.Join(errs...)
}

// around queues the kernel that launch starts between what prepares the slot and
// what fetches its result.
func (s *Slot) around(q cuda.Stream, launch func(out uint64) error) error {
	if err := q.Fill(s.device, 0, slotSize); err != nil {
		return err
	}
	if err := q.Record(s.start); err != nil {
		return err
	}
	if err := launch(uint64(s.device)); err != nil {
		return err
	}
	if err := q.Record(s.end); err != nil {
		return err
	}
	return q.Copy(s.host.Ptr, s.device, slotSize)
}

// Elapsed returns the GPU time of the kernel by itself.
func (s *Slot) Elapsed() (time.Duration, error) { return s.end.Since(s.start) }

// value returns value i of the result.
func (s *Slot) value(i int) uint64 { return binary.LittleEndian.Uint64(s.host.Bytes[8*i:]) }

// Sum is the result of [Kernels.Read].
func (s *Slot) Sum() uint64 { return s.value(0) }

// Verified is the result of [Kernels.Verify]: how many 64-bit words are wrong, by
// what is there instead.
type Verified struct {
	Poison    int64 // never written
	Zero      int64
	Ones      int64 // all bits set, as an absent PCIe device answers
	Stale     int64 // the previous pattern
	Misplaced int64 // the pattern, of another place
	Foreign   int64 // anything else

	// First and Last are the offsets in the buffer of the first and the last wrong
	// word, in bytes.
	First, Last int64
}

// Wrong returns the number of wrong words.
func (v Verified) Wrong() int64 {
	return v.Poison + v.Zero + v.Ones + v.Stale + v.Misplaced + v.Foreign
}

// Verified returns the result of [Kernels.Verify].
func (s *Slot) Verified() Verified {
	var n [6]int64
	for i := range n {
		n[i] = int64(s.value(i))
	}
	v := Verified{Poison: n[0], Zero: n[1], Ones: n[2], Stale: n[3], Misplaced: n[4], Foreign: n[5]}
	if v.Wrong() > 0 {
		v.First = int64(^s.value(6)) * wordSize
		v.Last = int64(s.value(7)-1) * wordSize
	}
	return v
}

// Chased is the result of [Kernels.Chase].
type Chased struct {
	End    cuda.Ptr // where the chain led, which [ChainEnd] foretells
	Clocks int64    // cycles of the multiprocessor's clock
	SM     int      // the number of the multiprocessor
}

// Chased returns the result of [Kernels.Chase].
func (s *Slot) Chased() Chased {
	return Chased{cuda.Ptr(s.value(0)), int64(s.value(1)), int(s.value(2))}
}

// Exchanged is the result of [Kernels.PingPong], [Kernels.Produce] and
// [Kernels.Consume].
type Exchanged struct {
	Rounds   int           // that were completed
	Elapsed  time.Duration // by the GPU's clock, from when the kernel began
	TimedOut bool

	Wrong      int64 // of Consume: words that were not the producer's
	WrongRound int   // the first round, from 0, that had any
}

// Exchanged returns the result of the kernels that exchange flags.
func (s *Slot) Exchanged() Exchanged {
	e := Exchanged{
		Rounds:   int(s.value(0)),
		Elapsed:  time.Duration(s.value(1)),
		TimedOut: s.value(2) != 0,
		Wrong:    int64(s.value(3)),
	}
	if e.Wrong > 0 {
		e.WrongRound = int(^s.value(4))
	}
	return e
}

// Atomics is the result of [Kernels.Atomics].
type Atomics struct {
	Added   int64 // additions done
	Swapped int64 // compare-and-swaps that the GPU says it has won
}

// Atomics returns the result of [Kernels.Atomics].
func (s *Slot) Atomics() Atomics { return Atomics{int64(s.value(0)), int64(s.value(1))} }
