package measure

import (
	"iter"
	"math/rand/v2"
	"slices"
)

const (
	// windowSize is the size of a window of a buffer, unless all of the buffer
	// is one.
	windowSize = 1 << 20
	// windowAlign is the smallest page that a GPU maps; windows start on one.
	windowAlign = 4096
	// randomWindows is how many windows lie at random, besides the first, the
	// middle and the last.
	randomWindows = 5
)

// windows returns the parts of a buffer of size bytes that the host looks at, in
// order and without overlap: all of it if full is set or it is small, otherwise
// the first, the middle, the last and a few chosen by seed. Size is a multiple of
// windowAlign.
func windows(size int64, full bool, seed uint64) []Window {
	if full || size <= windowSize*(randomWindows+3) {
		return []Window{{0, size}}
	}
	last := size - windowSize
	starts := []int64{0, last / 2 &^ (windowAlign - 1), last}
	return place(size, windowSize, starts, randomWindows, seed)
}

const (
	// reachPage is the largest page of a GPU below its 2 MiB ones; a window of
	// the reach has one on each side of a boundary.
	reachPage = 64 << 10
	// reachStep is the distance of boundaries. 512 MiB is where peers' DMA
	// addresses were seen to go wrong; the 4 GiB of 32-bit offsets, the 32 GiB of
	// large BAR windows and the sizes that a BAR1 can have are multiples of it.
	reachStep = 512 << 20
	// smallBAR1 is the BAR1 of a GPU whose BAR1 was not resized.
	smallBAR1 = 256 << 20
	// reachRandom is how many more windows lie at random.
	reachRandom = 64
)

// reachWindows returns the parts of an allocation of size bytes that show how
// far it can be reached: the first and the last page, both sides of each
// boundary, and random ones; or, if full is set, all of it. bar1 is the size of
// the owner's BAR1, or zero.
func reachWindows(size, bar1 int64, full bool, seed uint64) []Window {
	if full {
		return []Window{{0, size}}
	}
	starts := []int64{0, size - reachPage}
	for b := int64(reachStep); b < size; b += reachStep {
		starts = append(starts, b-reachPage)
	}
	for _, b := range []int64{smallBAR1, bar1} {
		if b > 0 && b < size {
			starts = append(starts, b-reachPage)
		}
	}
	return place(size, 2*reachPage, starts, reachRandom, seed)
}

// place returns windows of n bytes of a buffer of size bytes, at starts and at
// some more chosen by seed, in order; what overlaps is cut off.
func place(size, n int64, starts []int64, random int, seed uint64) []Window {
	rng := rand.New(rand.NewPCG(seed, uint64(size)))
	for range random {
		starts = append(starts, rng.Int64N(max(size-n, windowAlign)/windowAlign)*windowAlign)
	}
	slices.Sort(starts)
	var ws []Window
	for _, at := range starts {
		end := min(at+n, size)
		if last := len(ws); last > 0 {
			at = max(at, ws[last-1].Offset+ws[last-1].Size)
		}
		if at = max(at, 0); end > at {
			ws = append(ws, Window{at, end - at})
		}
	}
	return ws
}

// chunks cuts windows into pieces of at most n bytes, which bounds the memory
// that a check needs.
func chunks(ws []Window, n int64) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		for _, w := range ws {
			for at := int64(0); at < w.Size; at += n {
				if !yield(Window{w.Offset + at, min(n, w.Size-at)}) {
					return
				}
			}
		}
	}
}

// A piece is a window of the peer's memory with its place in a buffer of the
// initiator.
type piece struct {
	Window
	at int64
}

// batches packs windows into a buffer of size bytes, as often as it takes.
func batches(ws []Window, size int64) iter.Seq[[]piece] {
	return func(yield func([]piece) bool) {
		var batch []piece
		var used int64
		for w := range chunks(ws, size) {
			if used+w.Size > size {
				if !yield(batch) {
					return
				}
				batch, used = nil, 0
			}
			batch = append(batch, piece{w, used})
			used += w.Size
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}
